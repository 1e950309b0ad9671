"""Theorem 2: where neurons near a class average or near a centre drift, in closed form.

Data are the centres themselves, orthonormal, with labels y; a positive neuron has direction u and
coordinates z_k = <mu_k, u>. All drifts are those of the alignment flow (eq. 6), whose speed is that
of the sum of exponential losses. `field` is x^(p)(w), which turns neurons while they are small.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from extremal._check import choice, integer, matrix, number, require, signs, tensor, unit_rows


def field(
    w: Tensor, x: Tensor, y: Tensor, p: float, weights: Literal["inner", "cosine"] = "inner"
) -> Tensor:
    """Return x^(p)(w) = p sum_i gamma_i y_i <x_i, u>^(p-1) x_i with u = w/||w||.

    Shapes: neurons w (h, D), data x (n, D), labels y (n,) in {-1, +1}; returns (h, D).
    gamma_i = 1 where <x_i, u> > 0 and 0 elsewhere: at the kink <x_i, u> = 0 of p = 1, where any
    value in [0, 1] is a subgradient, it is 0.

    Min & Vidal 2024, eq. 5 has cos(x_i, w)^(p-1), the same for data of norm 1, which it assumes.
    For other data the gradient flow has the inner product with u; weights="cosine" is eq. 5 to the
    letter. The sum belongs to the sum of exponential losses: the mean divides by n, the logistic
    loss by 2.

    Arguments:

    - `w`: (h, D), one neuron's weights in each row, none of them all 0; only directions count.
    - `x`: (n, D), the training points.
    - `y`: (n,), their labels, -1 or +1.
    - `p`: the power of the pReLU, 1 or more.
    - `weights`: "inner", <x_i, u> as above (the default), or "cosine", cos(x_i, w) in its place.
    """
    x = matrix("x", x)
    w = matrix("w", w, columns=x.shape[1])
    require(w.dtype == x.dtype, "w", f"have the dtype of x, {x.dtype}", w.dtype)
    y = signs("y", y, count=x.shape[0]).to(x.dtype)
    p = number("p", p, minimum=1.0)
    choice("weights", weights, ("inner", "cosine"))
    products = directions(w) @ x.T  # (h, n)
    if weights == "cosine":
        products = products / x.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    active = products > 0
    slope = torch.where(
        active, p * products.clamp_min(0.0) ** (p - 1.0), torch.zeros_like(products)
    )
    return (slope * y) @ x


def projected_field(w: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return P_w^perp x^(p)(w), P_w^perp = I - w w^T/||w||^2: how positive neurons turn, (h, D).

    Min & Vidal 2024, eq. 6: d/dt w_j/||w_j|| is close to sign(v_j(0)) times this while all neurons
    are small (`alignment_error` says how close and how long).

    Arguments:

    - `w`: (h, D), one neuron's weights in each row, none of them all 0; only directions count.
    - `x`: (n, D), the training points.
    - `y`: (n,), their labels, -1 or +1.
    - `p`: the power of the pReLU, 1 or more.
    """
    pull = field(w, x, y, p)
    u = directions(w)
    return pull - (pull * u).sum(dim=1, keepdim=True) * u


def cosine_drift(w: Tensor, target: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return d/dt cos(w, target) of positive neurons under the alignment flow eq. 6, (h,).

    <P_w^perp x^(p)(w), target>/||target||, straight from the field; a negative neuron's is minus
    this. `target` has shape (D,). Min & Vidal 2024, eq. 67 and 83 without their error term.

    Arguments:

    - `w`: (h, D), one neuron's weights in each row, none of them all 0; only directions count.
    - `target`: (D,), not all 0; the cosine with it is what changes.
    - `x`: (n, D), the training points.
    - `y`: (n,), their labels, -1 or +1.
    - `p`: the power of the pReLU, 1 or more.
    """
    flow = projected_field(w, x, y, p)
    target = tensor("target", target, (flow.shape[1],))
    require(target.dtype == flow.dtype, "target", f"have the dtype of x, {x.dtype}", target.dtype)
    return flow @ directions(target[None, :], "target")[0]


def directions(w: Tensor, name: str = "w") -> Tensor:
    """Return the rows of w divided by their norms, which must not be zero."""
    norms = w.norm(dim=1, keepdim=True)
    require(
        bool((norms > 0).all()), name, "have no zero rows: they have no direction", "a zero row"
    )
    unit: Tensor = w / norms
    return unit


def average_drift(z: Tensor, p: float) -> Tensor:
    """Return d/dt cos(w, mu_+) for w in the span of its class's centres, z (h, K1) -> (h,).

    p (sum_{z_k > 0} z_k^(p-1) - (sum_k z_k) (sum_{z_k > 0} z_k^p)) / sqrt(K1), rows of norm 1.

    Min & Vidal 2024, the display before eq. 75. The printed one has 1/K and then no factor;
    mu_+ = sum mu_k / sqrt(K1) has norm 1, so 1/sqrt(K1) is right. Where all z_k > 0 it is
    p (g_p(2; z) - g_p(1; z)) / sqrt(K1) with g_p(q; z) = (sum_k z_k^q) (sum_k z_k^(p+1-q)), which
    is convex in q with its minimum at (p+1)/2 (Lemma 5).

    Arguments:

    - `z`: (h, K1), <mu_k, u> of each neuron (row) and centre of its class; rows of norm 1.
    - `p`: the power of the pReLU, 1 or more.
    """
    z = matrix("z", z)
    unit_rows("z", z)
    p = number("p", p, minimum=1.0)
    active = (z > 0).to(z.dtype)
    pull = (active * z.clamp_min(0.0) ** (p - 1.0)).sum(dim=1)
    growth = (active * z.clamp_min(0.0) ** p).sum(dim=1)
    drift: Tensor = p * (pull - z.sum(dim=1) * growth) / math.sqrt(z.shape[1])
    return drift


def average_drift_sign(w: Tensor, centers: Tensor, p: float, tolerance: float = 1e-9) -> int | None:
    """Return the proven sign of d/dt cos(w, mu_+), -1, 0 or +1, or None where there is none.

    w (D,), centers (K1, D) the orthonormal centres of the neuron's class; any number of opposing
    centres, orthonormal to those. Provided that no z_k is negative and some are positive, all up
    to `tolerance`:

    - w in the span of the class's centres: the sign of 2 - p, or 0 where all positive z_k are equal
      (they are at mu_+) or p = 2;
    - w outside of it: +1 for p <= 2, and nothing for p > 2.

    Min & Vidal 2024, eq. 7 claims +1 for p = 1 and -1 for p >= 3 at cos(w, mu_+) = 1 - delta with
    delta small; its proof takes w to be in the span ("lies completely within"), which for p >= 3 is
    needed: (1 - delta) mu_+ plus anything orthogonal to all centres drifts toward mu_+ for every p.
    Hence eq. 74's infimum must be a supremum over the span, and negative, for p >= 3. "Small" is
    delta < 1 - sqrt(1 - 1/K1): nearer than that all z_k are positive. Proof outside of the span:
    sum z^2 <= 1 only adds to g_p(2) - g_p(1), and active opposing centres only to the drift.

    Arguments:

    - `w`: (D,), the neuron's weights, not all 0; only the direction counts.
    - `centers`: (K1, D), the centres of its class; that they are orthonormal is not checked.
    - `p`: the power of the pReLU, 1 or more.
    - `tolerance`: up to where a number counts as zero, 1e-9 by default.
    """
    centers = matrix("centers", centers)
    w = tensor("w", w, (centers.shape[1],))
    p = number("p", p, minimum=1.0)
    tolerance = number("tolerance", tolerance, minimum=0.0)
    u, own = directions(w.double()[None, :])[0], centers.double()
    z = own @ u
    positive = z[z > 0]
    if len(positive) == 0 or bool((z < -tolerance).any()):
        return None
    if float((u - z @ own).norm()) > tolerance:
        return 1 if p <= 2.0 else None
    if p == 2.0 or float(positive.max() - positive.min()) <= tolerance:
        return 0
    return 1 if p < 2.0 else -1


def center_drift(z: Tensor, y: Tensor, index: int, p: float) -> Tensor:
    """Return d/dt cos(w, mu_k) of a positive neuron, for any w with <mu_k, w> > 0, (h, K) -> (h,).

    p c^(p-1) (1 - c^2) - p c sum_{l != k, z_l > 0} y_l z_l^p, c = z_k, for a centre k of the
    positive class; z (h, K) are the coordinates along all centres, sum z^2 <= 1, and y (K,) the
    labels. Min & Vidal 2024, the display after eq. 86, which has + for the - of the sum.

    Arguments:

    - `z`: (h, K), <mu_l, u> of each neuron (row) and centre; above 0 in the column `index`.
    - `y`: (K,), the centres' labels, -1 or +1.
    - `index`: k, the column (from 0) of the centre that the cosine is with; its label must be +1.
    - `p`: the power of the pReLU, 1 or more.
    """
    z = matrix("z", z)
    y = signs("y", y, count=z.shape[1]).to(z.dtype)
    index = integer("index", index, minimum=0)
    p = number("p", p, minimum=1.0)
    require(index < z.shape[1] and bool(y[index] > 0), "index", "be a positive centre's", index)
    c = z[:, index]
    require(bool((c > 0).all()), "z", "be positive at the index", "an inactive neuron")
    others = z.clamp_min(0.0) ** p * y
    others[:, index] = 0.0
    drift: Tensor = p * c ** (p - 1.0) * (1.0 - c**2) - p * c * others.sum(dim=1)
    return drift


def center_drift_floor(cosine: float, p: float) -> float:
    """Return the smallest d/dt cos(w, mu_k) over all w with cos(w, mu_k) = `cosine` > 0, p >= 2.

    Lambda_p = p c (c^(p-2) zeta - zeta^(p/2)), zeta = 1 - c^2, reached where the rest of w lies
    along one other centre of the class. For p > 2 it is positive exactly for sqrt(2)/2 < c < 1, so
    eq. 8 of Min & Vidal 2024 holds for delta < 1 - sqrt(2)/2. For p = 2 it is 0, and for p < 2
    eq. 8 fails at any distance: with p = 1, sqrt(.98) mu_1 + sqrt(.02) mu_2 drifts away from mu_1.

    Arguments:

    - `cosine`: c = cos(w, mu_k), above 0 and at most 1.
    - `p`: the power of the pReLU, 2 or more.
    """
    c = number("cosine", cosine, above=0.0, maximum=1.0)
    p = number("p", p, minimum=2.0)
    rest = 1.0 - c**2
    return float(p * c * (c ** (p - 2.0) * rest - rest ** (p / 2.0)))
