"""Gaussians around given centres, each of one class, and ways to choose the centres."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset, check_draw


class GaussianClusters:
    """K Gaussians, each with a class and a size.

    A sample draws z in 0..K-1 with probabilities `weights`, then x = centers_z + N(0, noise_z^2 I),
    y = labels_z.

    Arguments:

    - `centers`: (K, dim), the mean of each cluster; kept in float64.
    - `labels`: (K,), the class of each cluster, -1 / +1 or 0..C-1.
    - `noise`: the standard deviation of each coordinate, 0 or more; one number or (K,), one for
      each cluster.
    - `weights`: (K,), how likely each cluster is, in any unit; None for equally likely ones.
    """

    def __init__(
        self,
        centers: Tensor,
        labels: Tensor,
        noise: float | Tensor,
        *,
        weights: Tensor | None = None,
    ) -> None:
        self.centers = _check.matrix("centers", centers).double()
        self.labels = _check.labels("labels", labels, count=len(centers))
        self.noise = _per_cluster("noise", noise, self.count)
        self.weights = None
        if weights is not None:
            self.weights = _per_cluster("weights", weights, self.count)
            positive = bool(self.weights.sum() > 0)
            _check.require(positive, "weights", "have a positive sum", weights)

    def __repr__(self) -> str:
        classes = len(self.labels.unique())
        return f"{type(self).__name__}(dim={self.dim}, clusters={self.count}, classes={classes})"

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return self.centers.shape[1]

    @property
    def count(self) -> int:
        """K, the number of clusters."""
        return len(self.centers)

    @property
    def separation(self) -> float:
        """Half the smallest distance of two centres of different classes.

        Without noise no classifier keeps every centre's class at a larger l2 radius, and the
        nearest centre's class has it.
        """
        return float(self.separations.min())

    @property
    def separations(self) -> Tensor:
        """Half the distance (K,) of each centre to the nearest one of another class.

        Each centre keeps its class up to this l2 radius if points get the nearest centre's.
        """
        apart = self.labels.unsqueeze(0) != self.labels.unsqueeze(1)
        _check.require(bool(apart.any()), "labels", "name at least two classes", self.labels[0])
        distances = torch.cdist(self.centers, self.centers)
        return 0.5 * distances.masked_fill(~apart, torch.inf).amin(1)

    def sample(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw samples; `group` is the cluster and `source` this object.

        Arguments:

        - `count`: the number of samples.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        if self.weights is None:
            group = torch.randint(self.count, (count,), generator=generator)
        else:
            group = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        return self._samples_of(group, generator, dtype)

    def sample_each(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw samples of every cluster, one cluster after the other.

        Arguments:

        - `count`: the number of samples of each cluster.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        group = torch.arange(self.count).repeat_interleave(count)
        return self._samples_of(group, generator, dtype)

    def _samples_of(self, group: Tensor, generator: torch.Generator, dtype: torch.dtype) -> Dataset:
        """One sample of each of the given clusters (n,)."""
        x = torch.randn(len(group), self.dim, generator=generator, dtype=dtype)
        x.mul_(self.noise.to(dtype)[group].unsqueeze(1)).add_(self.centers.to(dtype)[group])
        return Dataset(x, self.labels[group], group=group, source=self)


def correlated_centers(dim: int, count: int, cosine: float) -> Tensor:
    """Unit vectors (count, dim) with one inner product for all pairs, in the first axes' span.

    The symmetric root of the Gram matrix (1 - c) I + c 1 1^T, which exists for cosines c from
    -1/(count - 1) to 1.

    Arguments:

    - `dim`: the number of coordinates of a centre; those beyond `count` are 0.
    - `count`: the number of centres, 2 to `dim`.
    - `cosine`: c, the inner product of each pair; 0 makes the centres orthonormal.
    """
    _check.integer("dim", dim, minimum=1)
    _check.integer("count", count, minimum=2)
    _check.require(count <= dim, "count", f"be at most dim = {dim}", count)
    c = _check.number("cosine", cosine, minimum=-1.0 / (count - 1), maximum=1.0)
    mean = torch.full((count, count), 1.0 / count, dtype=torch.float64)
    rest = torch.eye(count, dtype=torch.float64) - mean
    root = (1.0 - c) ** 0.5 * rest + max(0.0, 1.0 + (count - 1) * c) ** 0.5 * mean
    return torch.nn.functional.pad(root, (0, dim - count))


def random_centers(dim: int, count: int, rank: int, *, generator: torch.Generator) -> Tensor:
    """Unit vectors (count, dim), uniform on the sphere of the first `rank` axes.

    Arguments:

    - `dim`: the number of coordinates of a centre; those beyond `rank` are 0.
    - `count`: the number of centres, 1 or more; it may exceed `rank`.
    - `rank`: the number of axes that the centres lie in, 2 to `dim`.
    - `generator`: the torch.Generator that random numbers are drawn from.
    """
    _check.integer("dim", dim, minimum=1)
    _check.integer("count", count, minimum=1)
    _check.integer("rank", rank, minimum=2)
    _check.require(rank <= dim, "rank", f"be at most dim = {dim}", rank)
    _check.generator("generator", generator)
    draw = torch.randn(count, rank, generator=generator, dtype=torch.float64)
    unit = draw / torch.linalg.vector_norm(draw, dim=1, keepdim=True)
    return torch.nn.functional.pad(unit, (0, dim - rank))


def _per_cluster(name: str, value: float | Tensor, count: int) -> Tensor:
    """One number >= 0 for each cluster, (K,) in float64."""
    rule = f"be a number >= 0, or {count} of them"
    if not isinstance(value, Tensor):
        return torch.full((count,), _check.number(name, value, minimum=0.0), dtype=torch.float64)
    _check.require(value.shape == (count,), name, rule, f"shape {tuple(value.shape)}")
    _check.finite(name, value)
    _check.require(bool((value >= 0).all()), name, rule, f"entry {float(value.min()):g}")
    return value.double()
