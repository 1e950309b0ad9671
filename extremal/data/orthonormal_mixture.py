"""The data distribution of Min & Vidal 2024: Gaussians around orthonormal subclass centres."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset
from extremal.data.gaussian_clusters import Clusters


class OrthonormalMixture(Clusters):
    """A balanced mixture of K Gaussians with orthonormal centres, grouped into two classes.

    A sample draws z uniformly from the K = positive + negative subclasses, then
    x = mu_z + N(0, spread^2/dim I), with y = +1 for the first `positive` subclasses and -1 for the
    others (Min & Vidal 2024, Section 2; `positive` is K_1, `negative` is K_2, `spread` is alpha).

    The centres are the first K coordinate axes, or, with a `generator`, a random orthonormal
    system (the Q factor of a Gaussian matrix).
    """

    def __init__(
        self,
        dim: int,
        positive: int,
        negative: int,
        spread: float,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        _check.integer("dim", dim, minimum=1)
        self.positive = _check.integer("positive", positive, minimum=1)
        self.negative = _check.integer("negative", negative, minimum=1)
        self.spread = _check.number("spread", spread, minimum=0.0)
        count = self.positive + self.negative
        _check.require(count <= dim, "positive + negative", f"be at most dim = {dim}", count)
        labels = torch.where(torch.arange(count) < self.positive, 1, -1)
        super().__init__(orthonormal(count, dim, generator), labels, self.spread / dim**0.5)

    def __repr__(self) -> str:
        return (
            f"OrthonormalMixture(dim={self.dim}, positive={self.positive}, "
            f"negative={self.negative}, spread={self.spread:g})"
        )

    def average(self, sign: int) -> Tensor:
        """The unit vector (dim,) along the mean of one class's centres.

        sum of mu_k over the class, divided by sqrt(K_1) or sqrt(K_2) (eq. 3).
        """
        _check.choice("sign", sign, (1, -1))
        own = self.centers[self.labels == sign]
        return own.sum(0) / len(own) ** 0.5

    def simplified(self, dtype: torch.dtype = torch.float64) -> Dataset:
        """The K exact centres with their labels: the training set of Section 4.2."""
        group = torch.arange(self.count)
        return Dataset(self.centers.to(dtype), self.labels, group=group, source=self)


def orthonormal(count: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """The first axes (count, dim), or a random orthonormal system: Q of a Gaussian matrix."""
    if generator is None:
        return torch.eye(count, dim, dtype=torch.float64)
    _check.generator("generator", generator)
    draw = torch.randn(dim, count, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(draw).Q.T.contiguous()
