"""f* of Li et al. 2022: the robust classifier of two separated sets."""

from __future__ import annotations

from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models.provable_constructions import (
    POWERS,
    Norm,
    distances,
    finite_set,
    least_distance,
    stretch,
)


class DistanceRatio(nn.Module):
    """f*(x) = (d(x, B) - d(x, A)) / (d(x, B) + d(x, A)) of finite sets A (label +1) and B (-1).

    Li et al. 2022, the lemma on robust classifiers. With `separation` d(A, B) = 2 eps, f* is 1 on
    A, -1 on B, and 1/eps-Lipschitz in its norm: its derivative in the two distances a and b has
    absolute sum 2/(a + b), and a + b >= 2 eps. So every point of A and B keeps its class at each
    radius below eps; at eps itself f* may be 0.
    """

    positive: Tensor
    negative: Tensor

    def __init__(self, positive: Tensor, negative: Tensor, norm: Norm = "linf") -> None:
        super().__init__()
        _check.choice("norm", norm, POWERS)
        self.norm, self.outputs = norm, 1
        self.register_buffer("positive", finite_set("positive", positive))
        self.dim = self.positive.shape[1]
        self.register_buffer("negative", finite_set("negative", negative, self.dim))
        self.separation = least_distance(self.positive, self.negative, norm)
        apart = self.separation > 0
        _check.require(apart, "negative", "have no point in common with positive", "distance 0")

    @classmethod
    def of(cls, data: Dataset, norm: Norm = "linf") -> DistanceRatio:
        """f* of the two classes of data with labels -1 and +1."""
        _check.instance("data", data, Dataset, "be a Dataset")
        both = set(data.y.tolist()) == {-1, 1}
        _check.require(both, "data", "have labels -1 and +1", data.y.unique().tolist())
        return cls(data.x[data.y == 1], data.x[data.y == -1], norm)

    @property
    def lipschitz(self) -> float:
        """1/eps = 2 / separation."""
        return 2.0 / self.separation

    def forward(self, x: Tensor) -> Tensor:
        """(n,)."""
        near, far = self._distances(x)
        return (far - near) / (far + near)

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Half of how much farther the other set is: each distance changes by at most r."""
        near, far = self._distances(x)
        slack = 0.5 * y.to(x.dtype) * (far - near)
        return slack.clamp(min=0.0) / stretch(self.norm, norm, self.dim)

    def _distances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The distances (n,) to A and to B."""
        sets = (self.positive.to(x.dtype), self.negative.to(x.dtype))
        one, two = (distances(x, points, self.norm).amin(1) for points in sets)
        return one, two
