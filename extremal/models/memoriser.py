"""A ReLU network with O(N d) parameters and no robust training error on N separated points."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models.circuit import Circuit, check_dense
from extremal.models.fully_connected import MLP
from extremal.models.provable_constructions import (
    POWERS,
    Norm,
    distances,
    finite_set,
    least_distance,
    stretch,
)

_VALUES = 1 << 22  # coordinates that a block of points has at most


class Memoriser(nn.Module):
    """f(x) = sum over i of v_i relu(1 - e_i(x) / gap): a soft indicator of each point's ball.

    e_i is how far x is outside the ball of `radius` delta around a_i: in linf the sum over
    coordinates of relu(|x_k - a_ik| - delta), in l1 relu(||x - a_i||_1 - delta). So the indicator
    is 1 inside, and 0 from delta + gap on, since e_i >= ||x - a_i|| - delta. With classes
    `separation` = 2 eps apart, delta < eps and gap = 2 (eps - delta), no foreign indicator is
    positive within delta of a point, and the own one is 1: zero robust training error, exactly.

    v_i is the label of a_i for labels -1 / +1, else its unit vector. As a ReLU network it has
    6 N d + 2 N parameters in linf and 6 N d + 4 N in l1 (`parameter_count`), and two or three
    hidden layers; `explicit` is that network with dense matrices. Li et al. 2022, Theorem 2.2, has
    O~(N d); the construction for these norms is ours.
    """

    points: Tensor
    votes: Tensor

    def __init__(self, data: Dataset, radius: float, norm: Norm = "linf") -> None:
        super().__init__()
        _check.instance("data", data, Dataset, "be a Dataset")
        _check.choice("norm", norm, ("linf", "l1"))
        self.radius = _check.number("radius", radius, minimum=0.0)
        self.norm, self.dim = norm, data.dim
        labels = data.y.unique().tolist()
        _check.require(len(labels) > 1, "data", "have points of two classes", labels)
        self.register_buffer("points", finite_set("data", data.x))
        self.outputs = 1 if data.signed else int(data.y.max()) + 1
        signed = data.y.double().unsqueeze(1)
        votes = signed if data.signed else nn.functional.one_hot(data.y, self.outputs).double()
        self.register_buffer("votes", votes)  # (N, outputs)
        self.separation = min(
            least_distance(data.x[data.y == label], data.x[data.y != label], norm)
            for label in labels
        )
        rule = f"be below half the separation, {self.separation / 2:g}"
        _check.require(self.radius < self.separation / 2, "radius", rule, radius)
        self.gap = self.separation - 2.0 * self.radius

    @property
    def parameter_count(self) -> int:
        """Weights and biases of the network: those of `explicit` that are not zero by design."""
        count, each = len(self.points), {"linf": 2, "l1": 4}[self.norm]
        return 6 * count * self.dim + each * count

    def forward(self, x: Tensor) -> Tensor:
        """(n,) where outputs == 1, else (n, outputs)."""
        block = max(1, _VALUES // (max(1, len(x)) * self.dim))
        out = torch.zeros(len(x), self.outputs, dtype=x.dtype, device=x.device)
        for points, votes in zip(self.points.split(block), self.votes.split(block), strict=True):
            outside = self._outside(x, points.to(x.dtype))
            out = out + torch.relu(1.0 - outside / self.gap) @ votes.to(x.dtype)
        return out.squeeze(1) if self.outputs == 1 else out

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Up to where the nearest own indicator is positive and all foreign ones are 0.

        Foreign ones are 0 from delta + gap on. The own one is positive up to delta + gap in l1, and
        up to delta + gap / dim in linf, where all coordinates may add to the excess.
        """
        near, far = self._nearest(x, y)
        reach = self.radius + self.gap / (self.dim if self.norm == "linf" else 1.0) * (1.0 - 1e-9)
        slack = torch.minimum(reach - near, far - self.radius - self.gap)
        return slack.clamp(min=0.0) / stretch(self.norm, norm, self.dim)

    def explicit(self) -> MLP:
        """The same function as linear layers and ReLUs, in float64.

        Its matrices are dense, about 2 N d (d + N) weights with the zeros, up to 2^27, 1 GB.
        """
        first, last = 2 * len(self.points) * self.dim, len(self.points)
        middle = [last] if self.norm == "l1" else []
        check_dense("data", [self.dim, first, *middle, last, self.outputs])
        circuit = Circuit(self.dim)
        points = self.points.tolist()
        edge = self.radius if self.norm == "linf" else 0.0
        circuit.add(
            ({k: sign}, -sign * a - edge)
            for point in points
            for k, a in enumerate(point)
            for sign in (1.0, -1.0)
        )
        wide = 2 * self.dim
        blocks = [range(i * wide, (i + 1) * wide) for i in range(len(points))]
        if self.norm == "l1":
            circuit.add((dict.fromkeys(block, 1.0), -self.radius) for block in blocks)
            blocks = [range(i, i + 1) for i in range(len(points))]
        circuit.add((dict.fromkeys(block, -1.0 / self.gap), 1.0) for block in blocks)
        votes = self.votes.T.tolist()
        return circuit.network([{i: v for i, v in enumerate(row) if v} for row in votes])

    def _outside(self, x: Tensor, points: Tensor) -> Tensor:
        """e_i(x), (n, points)."""
        if self.norm == "l1":
            return torch.relu(distances(x, points, "l1") - self.radius)
        return torch.relu((x.unsqueeze(1) - points).abs() - self.radius).sum(2)

    def _nearest(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The distances (n,) to the nearest point of class y and of any other."""
        labels = self.votes[:, 0].long() if self.outputs == 1 else self.votes.argmax(1)
        block = max(1, _VALUES // max(1, len(x)))
        near = far = torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for points, kinds in zip(self.points.split(block), labels.split(block), strict=True):
            gap = distances(x, points.to(x.dtype), self.norm)
            own = kinds == y.unsqueeze(1)
            near = torch.minimum(near, gap.where(own, torch.inf).amin(1))
            far = torch.minimum(far, gap.where(~own, torch.inf).amin(1))
        return near, far


def cover_network(data: Dataset, radius: float, reach: float, norm: Norm = "linf") -> Memoriser:
    """The memoriser of a cover: robust at `radius` wherever data of its class are within `reach`.

    The cover is a subset of the points such that each is within `reach` of one of its class, and
    the memoriser's radius is `radius` + `reach`: below half the separation. On a k-dimensional
    manifold a cover has about (size / reach)^k points, however many coordinates there are: d exp(k)
    parameters (Li et al. 2022, Theorem 5.5), and no robust error on all that is covered.
    """
    _check.number("radius", radius, minimum=0.0)
    return Memoriser(data.take(cover(data, reach, norm)), radius + reach, norm)


def cover(data: Dataset, reach: float, norm: Norm = "linf") -> Tensor:
    """Places (m,) of a greedy cover: the first points that no earlier one of their class covers."""
    _check.instance("data", data, Dataset, "be a Dataset")
    _check.number("reach", reach, minimum=0.0)
    _check.choice("norm", norm, POWERS)
    chosen: list[int] = []
    x = data.x.double()
    bare = torch.ones(len(x), dtype=torch.bool)
    while bool(bare.any()):
        first = int(bare.byte().argmax())
        chosen.append(first)
        near = distances(x[first : first + 1], x, norm).squeeze(0) <= reach
        bare &= ~(near & (data.y == data.y[first]))
        bare[first] = False
    return torch.tensor(chosen)
