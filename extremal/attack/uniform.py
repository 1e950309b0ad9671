"""Random perturbations in a ball, uniform where there is no box."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.projection import Bounds


def draw_linf(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """Uniform in the cube of half-width `radius`, cut by the bounds: still uniform with a box."""
    share = torch.rand(like.shape, generator=g, device=g.device, dtype=like.dtype).to(like.device)
    high = radius.to(like.dtype).expand_as(like)
    low = -high
    if bounds is not None:
        low, high = torch.maximum(low, bounds[0]), torch.minimum(high, bounds[1])
    return low + share * (high - low)


def draw_l2(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """radius u^(1/dim) z/||z||, z normal and u uniform: uniform in the ball, the box ignored."""
    n, dim = like.shape
    z = torch.randn(n, dim, generator=g, device=g.device, dtype=like.dtype).to(like.device)
    u = torch.rand(n, 1, generator=g, device=g.device, dtype=torch.float64).to(like.device)
    length: Tensor = radius * u ** (1.0 / dim) / torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return z * length.to(like.dtype)


def draw_l1(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """radius s_i e_i / (e_0 + ... + e_dim), e exponential, s random signs: uniform in the ball.

    The box is ignored, as in `draw_l2`.
    """
    n, dim = like.shape
    e = torch.empty(n, dim + 1, device=g.device, dtype=like.dtype).exponential_(generator=g)
    signs = torch.randint(2, (n, dim), generator=g, device=g.device) * 2 - 1
    e, signs = e.to(like.device), signs.to(like.device)
    return e[:, 1:] * signs * (radius / e.sum(1, keepdim=True)).to(like.dtype)
