"""Patch-structured data: strong sparse robust features beside weak dense non-robust ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset, check_draw

Interval = tuple[float, float]


class PatchData:
    """Points of P patches: alpha_p u_y + noise on robust ones, beta_p v_y + noise on the others.

    Li & Li 2025. Robust patches come first. u_y and v_y are the first k axes and the next k.
    Coefficients are uniform in intervals; noise is N(0, noise^2 I).

    A point is flat, (P d,), with classes 0..k-1. Networks that sum over patches do not see their
    order.

    Arguments:

    - `classes`: k, the number of classes, 2 or more.
    - `dim`: d, the number of coordinates of a patch, at least 2 k.
    - `robust`: |J_R|, the number of robust patches, 1 or more.
    - `dense`: |J_NR|, the number of other patches, 1 or more.
    - `alpha`: the interval (low, high) of the robust coefficients, low > 0; one for all classes or
      k of them.
    - `beta`: the interval of the others, in the same form.
    - `noise`: the noise's standard deviation in each coordinate, 0 or more.
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
        self.robust_features, self.dense_features = axes[: self.classes], axes[self.classes :]

    def __repr__(self) -> str:
        return (
            f"PatchData(classes={self.classes}, dim={self.patch_dim}, robust={self.robust}, "
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
        """Draw points of every class, one class after the other.

        Arguments:

        - `count`: the number of points of each class.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        y = torch.arange(self.classes).repeat_interleave(count)
        return self._points_of(y, generator, dtype)

    def sample(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw points of random classes.

        Arguments:

        - `count`: the number of points.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        y = torch.randint(self.classes, (count,), generator=generator)
        return self._points_of(y, generator, dtype)

    def _points_of(self, y: Tensor, generator: torch.Generator, dtype: torch.dtype) -> Dataset:
        """One point of each of the given classes (n,)."""
        shares = torch.rand(len(y), self.count, generator=generator, dtype=torch.float64)
        kinds = [
            (self.alpha, shares[:, : self.robust], self.robust_features),
            (self.beta, shares[:, self.robust :], self.dense_features),
        ]
        parts = [
            (ends[y, :1] + share * (ends[y, 1:] - ends[y, :1])).unsqueeze(2)
            * features[y].unsqueeze(1)
            for ends, share, features in kinds
        ]  # each (n, patches, d)
        x = torch.cat(parts, dim=1)
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return Dataset((x + self.noise * noise).flatten(1).to(dtype), y, source=self)

    def perturbed_by_features(
        self, data: Dataset, radius: float, *, kind: Literal["inside", "replaced"] = "inside"
    ) -> Dataset:
        """The data under an attack that knows the features and no network, with true labels.

        On dense patches, toward the next class t = y + 1: "inside" the l-inf ball of that radius,
        x_p - min(radius, beta_p) v_y + radius v_t; "replaced" takes all of the feature away,
        x_p - beta_p v_y + radius v_t. beta_p = <x_p, v_y>. Li & Li 2025, Theorem 1: perturbations
        that are generated by non-robust features; the formula is ours.

        Arguments:

        - `data`: points of this kind with labels 0..k-1, a `Dataset`.
        - `radius`: the l-inf size of the attack, 0 or more.
        - `kind`: "inside" (the default) or "replaced", see above; only the first keeps to the ball.
        """
        _check.instance("data", data, Dataset, "be a Dataset")
        fits = data.dim == self.dim
        _check.require(fits, "data", f"have points of {self.dim} coordinates", data.dim)
        size = _check.number("radius", radius, minimum=0.0)
        _check.choice("kind", kind, ("inside", "replaced"))
        known = int(data.y.min()) >= 0 and int(data.y.max()) < self.classes
        rule = f"have labels 0..{self.classes - 1}"
        _check.require(known, "data", rule, data.y.unique().tolist())
        x = data.x.double().unflatten(1, (self.count, self.patch_dim)).clone()
        own = self.dense_features[data.y].unsqueeze(1)  # (n, 1, d)
        other = self.dense_features[(data.y + 1) % self.classes].unsqueeze(1)
        dense = x[:, self.robust :]
        beta = (dense * own).sum(2, keepdim=True)
        removed = beta if kind == "replaced" else beta.clamp(0.0, size)
        x[:, self.robust :] = dense - removed * own + size * other
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
