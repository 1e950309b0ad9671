"""Two classes of Gaussians around orthogonal centres, in the scalings of two papers.

`OrthonormalMixture` has unit centres and little noise (Min & Vidal 2024), `OrthogonalClusters`
centres of length sqrt(dim) and unit noise (Li et al. 2025).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset
from extremal.data.gaussian_clusters import GaussianClusters, correlated_centers


class OrthogonalClusters(GaussianClusters):
    """Balanced clusters x = mu_j + N(0, sigma^2 I), ||mu_j|| = sqrt(dim), in two classes.

    J_+ are the positive clusters, which come first, J_- the others. Li, Pan, Lyu & Li 2025; the
    fine label of a point, its cluster, is its `group`.

    Arguments:

    - `dim`: d, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: the number of clusters with y = +1, 1 or more.
    - `negative`: the number of clusters with y = -1, 1 or more.
    - `sigma`: the noise's standard deviation in each coordinate, 0 or more; 1 by default.
    - `norms`: (K,), the features' lengths in units of sqrt(dim), above 0; None for 1.
    - `cosine`: of the angle between any two features; 0 by default.
    - `generator`: for features in a random position (the Q factor of a Gaussian matrix); None for
      the first axes.
    """

    def __init__(
        self,
        dim: int,
        positive: int,
        negative: int,
        sigma: float = 1.0,
        *,
        norms: Sequence[float] | None = None,
        cosine: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        labels = _two_class_labels(dim, positive, negative)
        self.positive, self.negative = int(positive), int(negative)
        self.sigma = _check.number("sigma", sigma, minimum=0.0)
        self.cosine = _check.number("cosine", cosine)
        count = len(labels)
        self.norms = _relative_lengths(norms, count)
        unit = correlated_centers(dim, count, cosine)[:, :count]
        axes = orthonormal_rows(count, dim, generator)
        features = math.sqrt(dim) * self.norms.unsqueeze(1) * (unit @ axes)
        super().__init__(features, labels, self.sigma)

    def __repr__(self) -> str:
        return (
            f"OrthogonalClusters(dim={self.dim}, positive={self.positive}, "
            f"negative={self.negative}, sigma={self.sigma:g})"
        )

    def orthonormal(self) -> OrthonormalMixture:
        """The same distribution in the scaling of Min & Vidal 2024, of x / sqrt(dim).

        sigma becomes the spread alpha, since N(0, sigma^2 I) / sqrt(dim) has alpha^2/dim a
        coordinate, and an l2 radius r becomes r / sqrt(dim): sqrt(d/k) is their 1/sqrt(K), and
        sqrt(d/2) their sqrt(2)/2. For orthogonal features of equal length along the axes alone:
        that mixture takes no basis, so that there is none for features in a random position.
        """
        unit = self.centers / math.sqrt(self.dim)
        axes = torch.eye(self.count, self.dim, dtype=torch.float64)
        same = torch.allclose(unit, axes, rtol=0.0, atol=1e-12)
        rule = "lie along the first axes with length sqrt(dim) (no generator, norms or cosine)"
        _check.require(same, "features", rule, self)
        return OrthonormalMixture(self.dim, self.positive, self.negative, self.sigma)


def _relative_lengths(norms: Sequence[float] | None, count: int) -> Tensor:
    if norms is None:
        return torch.ones(count, dtype=torch.float64)
    rule = f"hold {count} numbers > 0, one for each cluster"
    _check.instance("norms", norms, Sequence, rule)
    _check.require(len(norms) == count, "norms", rule, len(norms))
    return torch.tensor(
        [_check.number("norms", norm, above=0.0) for norm in norms], dtype=torch.float64
    )


class OrthonormalMixture(GaussianClusters):
    """A balanced mixture of K Gaussians with orthonormal centres, grouped into two classes.

    A sample draws z uniformly from the K = positive + negative subclasses, then x = mu_z + N(0,
    spread^2/dim I), with y = +1 for the first `positive` subclasses and -1 for the others (Min &
    Vidal 2024, Section 2; `spread` is alpha).

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K_1, the number of subclasses with y = +1, 1 or more.
    - `negative`: K_2, the number of subclasses with y = -1, 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); 0 or more.
    - `generator`: for random orthonormal centres (the Q factor of a Gaussian matrix); None for the
      first K coordinate axes.
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
        labels = _two_class_labels(dim, positive, negative)
        self.positive, self.negative = int(positive), int(negative)
        self.spread = _check.number("spread", spread, minimum=0.0)
        centers = orthonormal_rows(len(labels), dim, generator)
        super().__init__(centers, labels, self.spread / dim**0.5)

    def __repr__(self) -> str:
        return (
            f"OrthonormalMixture(dim={self.dim}, positive={self.positive}, "
            f"negative={self.negative}, spread={self.spread:g})"
        )

    def average(self, sign: int) -> Tensor:
        """The unit vector (dim,) along the mean of the centres of class `sign`, +1 or -1.

        sum of mu_k over the class, divided by sqrt(K_1) or sqrt(K_2) (eq. 3).
        """
        _check.choice("sign", sign, (1, -1))
        own = self.centers[self.labels == sign]
        return own.sum(0) / len(own) ** 0.5

    def simplified(self, dtype: torch.dtype = torch.float64) -> Dataset:
        """The K exact centres with their labels, in `dtype`: the training set of Section 4.2."""
        group = torch.arange(self.count)
        return Dataset(self.centers.to(dtype), self.labels, group=group, source=self)


def _two_class_labels(dim: int, positive: int, negative: int) -> Tensor:
    """The labels (K,) of `positive` clusters of class +1, then `negative` ones of class -1."""
    _check.integer("dim", dim, minimum=1)
    _check.integer("positive", positive, minimum=1)
    _check.integer("negative", negative, minimum=1)
    count = positive + negative
    _check.require(count <= dim, "positive + negative", f"be at most dim = {dim}", count)
    return torch.where(torch.arange(count) < positive, 1, -1)


def orthonormal_rows(count: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """The first axes (count, dim), or a random orthonormal system: Q of a Gaussian matrix."""
    if generator is None:
        return torch.eye(count, dim, dtype=torch.float64)
    _check.generator("generator", generator)
    draw = torch.randn(dim, count, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(draw).Q.T.contiguous()
