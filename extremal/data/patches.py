"""Patch-structured data: strong sparse robust features beside weak dense non-robust ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset

Interval = tuple[float, float]


class Patches:
    """Points of P patches: alpha_p u_y + noise on robust ones, beta_p v_y + noise on the others.

    Li & Li 2025. `classes` is k, `dim` the d of a patch, `robust` |J_R| and `dense` |J_NR| the
    numbers of patches, which come in this order. u_y and v_y are orthonormal: the first k axes and
    the next k, or with a `generator` a random system. `alpha` and `beta` are intervals that
    coefficients are uniform in, one for all classes or one for each; noise is N(0, noise^2 I).

    A point is flat, (P d,), with classes 0..k-1. Networks that sum over patches do not see their
    order.
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        robust: int,
        dense: int,
        *,
        alpha: Interval | Sequence[Interval],
        beta: Interval | Sequence[Interval],
        noise: float,
        generator: torch.Generator | None = None,
    ) -> None:
        self.classes = _check.integer("classes", classes, minimum=2)
        self.patch_dim = _check.integer("dim", dim, minimum=2)
        self.robust = _check.integer("robust", robust, minimum=1)
        self.dense = _check.integer("dense", dense, minimum=1)
        fits = 2 * self.classes <= self.patch_dim
        _check.require(fits, "dim", f"be at least 2 classes = {2 * self.classes}", dim)
        self.alpha = _intervals("alpha", alpha, self.classes)
        self.beta = _intervals("beta", beta, self.classes)
        self.noise = _check.number("noise", noise, minimum=0.0)
        axes = torch.eye(2 * self.classes, self.patch_dim, dtype=torch.float64)
        if generator is not None:
            _check.generator("generator", generator)
            draw = torch.randn(self.patch_dim, 2 * self.classes, generator=generator).double()
            axes = torch.linalg.qr(draw).Q.T.contiguous()
        self.robust_features, self.dense_features = axes[: self.classes], axes[self.classes :]

    def __repr__(self) -> str:
        return (
            f"Patches(classes={self.classes}, dim={self.patch_dim}, robust={self.robust}, "
            f"dense={self.dense}, noise={self.noise:g})"
        )

    @property
    def count(self) -> int:
        """P, the number of patches of a point."""
        return self.robust + self.dense

    @property
    def dim(self) -> int:
        """The number of coordinates of a point, P d."""
        return self.count * self.patch_dim

    def sample_each(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw `count` points of every class, one class after the other."""
        _check.integer("count", count, minimum=1)
        _check.generator("generator", generator)
        _check.floating("dtype", dtype)
        y = torch.arange(self.classes).repeat_interleave(count)
        return self._around(y, generator, dtype)

    def sample(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw `count` points of random classes."""
        _check.integer("count", count, minimum=1)
        _check.generator("generator", generator)
        _check.floating("dtype", dtype)
        y = torch.randint(self.classes, (count,), generator=generator)
        return self._around(y, generator, dtype)

    def _around(self, y: Tensor, generator: torch.Generator, dtype: torch.dtype) -> Dataset:
        """Points of the given classes (n,)."""
        shares = torch.rand(len(y), self.count, generator=generator, dtype=torch.float64)
        sizes = [
            (self.alpha, shares[:, : self.robust], self.robust_features),
            (self.beta, shares[:, self.robust :], self.dense_features),
        ]
        parts = [
            (low_high[y, :1] + share * (low_high[y, 1:] - low_high[y, :1])).unsqueeze(2)
            * features[y].unsqueeze(1)
            for low_high, share, features in sizes
        ]  # each (n, patches, d)
        x = torch.cat(parts, dim=1)
        shake = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return Dataset((x + self.noise * shake).flatten(1).to(dtype), y, source=self)

    def moved(
        self, data: Dataset, radius: float, *, kind: Literal["inside", "replaced"] = "inside"
    ) -> Dataset:
        """The data under an attack that knows the features and no network, with true labels.

        On dense patches, toward the next class t = y + 1: "inside" the l-inf ball of that radius,
        x_p - min(radius, beta_p) v_y + radius v_t, for features along axes alone; "replaced" takes
        all of the feature away, x_p - beta_p v_y + radius v_t. beta_p = <x_p, v_y>. Li & Li 2025,
        Theorem 1: perturbations that are generated by non-robust features; the formula is ours.
        """
        _check.instance("data", data, Dataset, "be a Dataset")
        fits = data.dim == self.dim
        _check.require(fits, "data", f"have points of {self.dim} coordinates", data.dim)
        size = _check.number("radius", radius, minimum=0.0)
        _check.choice("kind", kind, ("inside", "replaced"))
        known = int(data.y.min()) >= 0 and int(data.y.max()) < self.classes
        _check.require(
            known, "data", f"have labels 0..{self.classes - 1}", data.y.unique().tolist()
        )
        flat = bool(((self.dense_features != 0).sum(1) == 1).all())
        rule = 'be "replaced" where features do not lie along axes'
        _check.require(flat or kind == "replaced", "kind", rule, kind)
        x = data.x.double().unflatten(1, (self.count, self.patch_dim)).clone()
        own = self.dense_features[data.y].unsqueeze(1)  # (n, 1, d)
        other = self.dense_features[(data.y + 1) % self.classes].unsqueeze(1)
        dense = x[:, self.robust :]
        beta = (dense * own).sum(2, keepdim=True)
        taken = beta if kind == "replaced" else beta.clamp(0.0, size)
        x[:, self.robust :] = dense - taken * own + size * other
        return Dataset(x.flatten(1).to(data.x.dtype), data.y, source=self)


def _intervals(name: str, value: Interval | Sequence[Interval], classes: int) -> Tensor:
    """(k, 2): the ends of each class's interval."""
    rule = f"be a pair 0 < low <= high, or {classes} of them"
    try:
        ends = torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must {rule}, got {value!r}") from error
    if ends.shape == (2,):
        ends = ends.expand(classes, 2).clone()
    _check.require(ends.shape == (classes, 2), name, rule, f"shape {tuple(ends.shape)}")
    good = bool((ends[:, 0] > 0).all() & (ends[:, 1] >= ends[:, 0]).all() & ends.isfinite().all())
    _check.require(good, name, rule, value)
    return ends
