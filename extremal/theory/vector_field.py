"""The field x^(p)(w) that turns the neurons while they are small, and the drifts of cosines."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from extremal.theory._check import choice, matrix, number, require, signs, vector


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
    """
    x = matrix("x", x)
    w = matrix("w", w, columns=x.shape[1])
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
    """
    pull = field(w, x, y, p)
    u = directions(w)
    return pull - (pull * u).sum(dim=1, keepdim=True) * u


def cosine_drift(w: Tensor, target: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return d/dt cos(w, target) of positive neurons under the alignment flow eq. 6, (h,).

    <P_w^perp x^(p)(w), target>/||target||, straight from the field; a negative neuron's is minus
    this. `target` has shape (D,). Min & Vidal 2024, eq. 67 and 83 without their error term.
    """
    flow = projected_field(w, x, y, p)
    target = vector("target", target, size=flow.shape[1])
    return flow @ directions(target[None, :], "target")[0]


def directions(w: Tensor, name: str = "w") -> Tensor:
    """Return the rows of w divided by their norms, which must not be zero."""
    norms = w.norm(dim=1, keepdim=True)
    require(
        bool((norms > 0).all()), name, "have no zero rows: they have no direction", "a zero row"
    )
    unit: Tensor = w / norms
    return unit
