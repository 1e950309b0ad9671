"""Networks of Li et al. 2022 that know their own robust radii.

f*, the robust classifier of two separated sets; a ReLU network with O(N d) parameters and no robust
training error on N separated points; and the circuits that such networks are put together from,
neuron by neuron, with their parameters counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import NORM_ORDERS, norm_ratio, rounding_share
from extremal.data import Dataset
from extremal.models.fully_connected import MLP

Norm = Literal["linf", "l2", "l1"]

SparseSum = Mapping[int, float]
"""A sum of neurons of the last layer, or of inputs: the weight of each that is part of it."""

Neuron = tuple[SparseSum, float | None]
"""relu(sum + bias), or relu(sum) where the bias is None."""

# A block of points has so many coordinates at most, so that memory stays small.
_BLOCK_COORDINATES = 1 << 22

# So many distances are computed at a time, so that memory stays small.
_BLOCK_DISTANCES = 1 << 24

# What is compared is made of so many norms of points, inputs and radii, at most.
_COMPARED_DISTANCES = 12.0

# A network that is written out has so many weights at most, 1 GB with the zeros.
_MOST_DENSE_WEIGHTS = 1 << 27


class DistanceRatio(nn.Module):
    """f*(x) = (d(x, B) - d(x, A)) / (d(x, B) + d(x, A)) of finite sets A (label +1) and B (-1).

    Li et al. 2022, the lemma on robust classifiers. With `separation` d(A, B) = 2 eps, f* is 1 on
    A, -1 on B, and 1/eps-Lipschitz in its norm: its derivative in the two distances a and b has
    absolute sum 2/(a + b), and a + b >= 2 eps. So every point of A and B keeps its class at each
    radius below eps; at eps itself f* may be 0.

    Arguments:

    - `positive`: the points of A (m, dim), finite; kept in float64.
    - `negative`: the points of B (k, dim), none of which is in A.
    - `norm`: the norm that distances are measured in, "linf" (the default), "l2" or "l1".
    """

    positive: Tensor
    negative: Tensor

    def __init__(self, positive: Tensor, negative: Tensor, norm: Norm = "linf") -> None:
        super().__init__()
        _check.choice("norm", norm, NORM_ORDERS)
        self.norm, self.outputs = norm, 1
        self.register_buffer("positive", as_point_set("positive", positive))
        self.dim = self.positive.shape[1]
        self.register_buffer("negative", as_point_set("negative", negative, self.dim))
        self.separation = least_distance(self.positive, self.negative, norm)
        apart = self.separation > 0
        _check.require(apart, "negative", "have no point in common with positive", "distance 0")

    @classmethod
    def of(cls, data: Dataset, norm: Norm = "linf") -> DistanceRatio:
        """f* of the classes of `data` with labels -1 and +1, for distances in `norm`."""
        _check.instance("data", data, Dataset, "be a Dataset")
        both = set(data.y.tolist()) == {-1, 1}
        _check.require(both, "data", "have labels -1 and +1", data.y.unique().tolist())
        return cls(data.x[data.y == 1], data.x[data.y == -1], norm)

    @property
    def lipschitz(self) -> float:
        """1/eps = 2 / separation."""
        return 2.0 / self.separation

    def forward(self, x: Tensor) -> Tensor:
        """The output (n,) at `x` (n, dim), computed in the dtype of the sets."""
        near, far = self._distances(x.to(self.positive.dtype))
        return ((far - near) / (far + near)).to(x.dtype)

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Half of how much farther the other set is: each distance changes by at most r.

        Arguments as in `KnowsRadii.proven_radii`.
        """
        near, far = self._distances(x)
        largest = max(_largest(part, self.norm) for part in (self.positive, self.negative))
        slack = 0.5 * y.to(x.dtype) * (far - near) - _distance_rounding(x, largest, self.norm)
        return slack.clamp(min=0.0) / norm_ratio(self.norm, norm, self.dim)

    def _distances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The distances (n,) to A and to B."""
        sets = (self.positive, self.negative)
        one, two = (pairwise_distances(x, points, self.norm).amin(1) for points in sets)
        return one, two


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

    Arguments:

    - `data`: a `Dataset` with points of at least two classes.
    - `radius`: at least 0 and below half the classes' separation.
    - `norm`: the norm that distances are measured in, "linf" (the default) or "l1".
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
        self.register_buffer("points", as_point_set("data", data.x))
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
        """The outputs at `x` (n, dim): (n,) where outputs == 1, else (n, outputs).

        They are computed in the dtype of the points.
        """
        block = max(1, _BLOCK_COORDINATES // (max(1, len(x)) * self.dim))
        dtype, x = x.dtype, x.to(self.points.dtype)
        out = torch.zeros(len(x), self.outputs, dtype=x.dtype, device=x.device)
        for points, votes in zip(self.points.split(block), self.votes.split(block), strict=True):
            outside = self._outside(x, points)
            out = out + torch.relu(1.0 - outside / self.gap) @ votes
        out = out.to(dtype)
        return out.squeeze(1) if self.outputs == 1 else out

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Up to where the nearest own indicator is positive and all foreign ones are 0.

        Foreign ones are 0 from delta + gap on. The own one is positive up to delta + gap in l1, and
        up to delta + gap / dim in linf, where all coordinates may add to the excess. Arguments as
        in `KnowsRadii.proven_radii`.
        """
        near, far = self._nearest(x, y)
        reach = self.radius + self.gap / (self.dim if self.norm == "linf" else 1.0) * (1.0 - 1e-9)
        slack = torch.minimum(reach - near, far - self.radius - self.gap)
        largest = _largest(self.points, self.norm) + self.radius + self.gap
        slack = slack - _distance_rounding(x, largest, self.norm)
        return slack.clamp(min=0.0) / norm_ratio(self.norm, norm, self.dim)

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
            return torch.relu(pairwise_distances(x, points, "l1") - self.radius)
        return torch.relu((x.unsqueeze(1) - points).abs() - self.radius).sum(2)

    def _nearest(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The distances (n,) to the nearest point of class y and of any other."""
        labels = self.votes[:, 0].long() if self.outputs == 1 else self.votes.argmax(1)
        block = max(1, _BLOCK_COORDINATES // max(1, len(x)))
        near = far = torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for points, kinds in zip(self.points.split(block), labels.split(block), strict=True):
            gap = pairwise_distances(x, points, self.norm)
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

    Arguments:

    - `data`: a `Dataset` with points of at least two classes.
    - `radius`: the radius of perturbations to withstand, in `norm`.
    - `reach`: how far the data may be from the cover; a larger one needs fewer neurons.
    - `norm`: the norm that distances are measured in, "linf" (the default) or "l1".
    """
    _check.number("radius", radius, minimum=0.0)
    return Memoriser(data.take(cover(data, reach, norm)), radius + reach, norm)


def cover(data: Dataset, reach: float, norm: Norm = "linf") -> Tensor:
    """Places (m,) of a greedy cover: the first points that no earlier one of their class covers.

    Arguments:

    - `data`: a `Dataset`; the places are rows of it.
    - `reach`: the distance up to which a point covers others of its class, at least 0.
    - `norm`: the norm that distances are measured in, "linf" (the default), "l2" or "l1".
    """
    _check.instance("data", data, Dataset, "be a Dataset")
    _check.number("reach", reach, minimum=0.0)
    _check.choice("norm", norm, NORM_ORDERS)
    chosen: list[int] = []
    x = data.x.double()
    bare = torch.ones(len(x), dtype=torch.bool)
    while bool(bare.any()):
        first = int(bare.byte().argmax())
        chosen.append(first)
        near = pairwise_distances(x[first : first + 1], x, norm).squeeze(0) <= reach
        bare &= ~(near & (data.y == data.y[first]))
        bare[first] = False
    return torch.tensor(chosen)


class Circuit:
    """Layers of ReLU neurons over `dim` inputs, each a sparse sum of neurons of the layer before.

    `count` is the number of weights and biases so far: those that a neuron names.
    """

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._inputs = dim
        self._layers: list[tuple[list[SparseSum], list[float | None]]] = []

    def add(self, neurons: Iterable[Neuron]) -> list[SparseSum]:
        """Add a layer; each of its neurons is returned, as a sum of one."""
        listed = list(neurons)
        self._add_layer([row_sum for row_sum, _ in listed], [bias for _, bias in listed])
        return [{i: 1.0} for i in range(len(listed))]

    def network(self, outputs: Sequence[SparseSum]) -> MLP:
        """The network that reads these sums of the last layer, in float64."""
        self.end(outputs)
        layers: list[nn.Module] = []
        inputs = self._inputs
        for sums, biases in self._layers:
            layers += [_dense_layer(inputs, sums, biases), nn.ReLU()]
            inputs = len(sums)
        ends = [nn.Flatten(0)] if len(outputs) == 1 else []
        return MLP(*layers[:-1], *ends)

    def end(self, outputs: Sequence[SparseSum]) -> None:
        """Add the output layer, to count it, with no matrix built."""
        self._add_layer(list(outputs), [None] * len(outputs))

    def _add_layer(self, sums: list[SparseSum], biases: list[float | None]) -> None:
        self.count += sum(map(len, sums)) + sum(bias is not None for bias in biases)
        self._layers.append((sums, biases))


def _dense_layer(inputs: int, sums: list[SparseSum], biases: list[float | None]) -> nn.Linear:
    """A linear layer with these weights, and zeros elsewhere."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, len(sums), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.zero_()
        for row, row_sum in enumerate(sums):
            for place, value in row_sum.items():
                layer.weight[row, place] = value
        values = [0.0 if bias is None else bias for bias in biases]
        layer.bias.copy_(torch.tensor(values, dtype=torch.float64))
    return layer


def check_dense(name: str, widths: Sequence[int]) -> None:
    """Require that dense matrices between layers of these widths have at most 2^27 weights."""
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    rule = f"be small enough for dense matrices of at most {_MOST_DENSE_WEIGHTS} weights"
    _check.require(weights <= _MOST_DENSE_WEIGHTS, name, rule, f"{weights} weights")


def combined(*terms: tuple[float, SparseSum]) -> SparseSum:
    """The sum of some sums, each times a number."""
    total: dict[int, float] = {}
    for factor, row_sum in terms:
        for place, value in row_sum.items():
            total[place] = total.get(place, 0.0) + factor * value
    return total


@runtime_checkable
class KnowsRadii(Protocol):
    """A network whose construction proves radii at which points keep their class.

    A protocol: any network with such a `proven_radii` will do. It can't be made itself, so that it
    takes no `args` or `kwargs`.
    """

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Radii (n,) within which each point provably has its class; 0 where none.

        They hold for the network as it runs, its rounding included.

        Arguments:

        - `x`: points (n, dim), in the dtype of the network's own tensors.
        - `y`: labels (n,), as those that the network was made of.
        - `norm`: "linf", "l2" or "l1", the norm of perturbations.
        """
        ...


def pairwise_distances(x: Tensor, points: Tensor, norm: Norm) -> Tensor:
    """All distances (n, m) between two sets, without the cancellation of matrix products.

    Arguments:

    - `x`: points (n, dim).
    - `points`: points (m, dim) of the same dtype.
    - `norm`: the norm that distances are measured in, "linf", "l2" or "l1".
    """
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(x, points, p=NORM_ORDERS[norm], compute_mode=mode)


def _largest(points: Tensor, norm: Norm) -> float:
    """The largest norm of a point of a set (m, dim)."""
    return float(torch.linalg.vector_norm(points.double(), NORM_ORDERS[norm], dim=1).max())


def _distance_rounding(x: Tensor, largest: float, norm: Norm) -> Tensor:
    """How far rounding may move what is compared of distances to points of norms <= largest, (n,).

    In the dtype of x (n, dim), for inputs that are no farther from it than such points. A distance
    is a difference of rounded coordinates and a sum of dim terms, and a comparison takes two.
    """
    share = rounding_share(x.shape[1] + 8.0, x.dtype)
    size = torch.linalg.vector_norm(x, NORM_ORDERS[norm], dim=1)
    return share * _COMPARED_DISTANCES * (size + largest)


def least_distance(one: Tensor, two: Tensor, norm: Norm) -> float:
    """The smallest distance between a point of one set and a point of another, in float64.

    Arguments:

    - `one`: points (n, dim).
    - `two`: points (m, dim).
    - `norm`: the norm that distances are measured in, "linf", "l2" or "l1".
    """
    parts = one.double().split(max(1, _BLOCK_DISTANCES // len(two)))
    return min(float(pairwise_distances(part, two.double(), norm).min()) for part in parts)


def as_point_set(name: str, points: object, dim: int | None = None) -> Tensor:
    """A finite set of points as a float64 tensor (m, dim) of its own."""
    return _check.matrix(name, points, columns=dim).detach().double().clone()
