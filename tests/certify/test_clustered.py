"""What the closed form for clusters rests on: B(d) <= l |d_T| + l_R |d_R| for every d."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from extremal.certify import clustered

CASES = ("orthonormal", "crowded", "one")


def against(case: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit neurons (h, dim) and their masses (h,)."""
    if case == "one":
        return torch.eye(1, 5, dtype=torch.float64), torch.full((1,), 0.7, dtype=torch.float64)
    if case == "orthonormal":
        mass = torch.tensor([2.0, 1.0, 0.6, 0.3], dtype=torch.float64)
        return torch.eye(4, 5, dtype=torch.float64), mass
    u = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    mass = 0.2 + torch.rand(9, generator=generator, dtype=torch.float64)
    return u / torch.linalg.vector_norm(u, dim=1, keepdim=True), mass


def gains_hold(p: float, generator: torch.Generator) -> bool:
    """Whether the inequality holds for each split, at random d, along neurons, and after ascent."""
    good = True
    for case in CASES:
        u, mass = against(case, generator)
        gram = u @ u.T
        alpha = torch.randn(400, len(u), generator=generator, dtype=torch.float64)
        alpha = torch.cat([alpha, torch.eye(len(u), dtype=torch.float64)])
        for basis, top, rest in clustered._sides(-mass, gram, p).splits:
            for _ in range(6):
                s = alpha @ gram  # <u_j, d> for d = U' alpha
                square = (alpha * s).sum(1)
                inside = ((alpha @ basis) ** 2).sum(1)
                outside = (square - inside).clamp(min=0.0).sqrt()
                b = (mass * s.clamp(min=0.0) ** p).sum(1) ** (1.0 / p)
                bound = top * inside.sqrt() + rest * outside
                good &= bool((b <= bound + 1e-9 * square.sqrt()).all())
                step = mass * s.clamp(min=0.0) ** (p - 1.0) * (s > 0)  # d along the gradient of B
                size = ((step * (step @ gram)).sum(1, keepdim=True)).clamp(min=1e-300).sqrt()
                alpha = torch.where(step.abs().sum(1, keepdim=True) > 0, step / size, alpha)
    return good


@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 1.99, 2.0, 2.5, 3.0, 4.0, 6.0])
def test_the_gain_of_what_stands_against(p, generator):
    assert gains_hold(p, generator)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0])
def test_orthonormal_neurons_have_exact_gains(p, generator):
    """l = (largest mass)^(1/p), and l_R the same of the largest that is left."""
    u, mass = against("orthonormal", generator)
    for basis, top, rest in clustered._sides(-mass, u @ u.T, p).splits:
        k = basis.shape[1]
        left = float(mass[k]) if k < len(mass) else 0.0
        assert top == pytest.approx(float(mass[0]) ** (1 / p) if k else 0.0)
        assert rest == pytest.approx(left ** (1 / p), abs=2e-3)
