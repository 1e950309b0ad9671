"""What the closed form for clusters rests on: B(d) <= l |d_T| + l_R |d_R| for every d."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from extremal import models
from extremal.certify import neuron_clusters
from extremal.certify.l2_problem import point_products

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
        for split in neuron_clusters._output_pair(-mass, gram, p, float(mass.sum())).splits:
            for _ in range(6):
                s = alpha @ gram  # <u_j, d> for d = U' alpha
                square = (alpha * s).sum(1)
                inside = ((alpha @ split.basis) ** 2).sum(1)
                outside = (square - inside).clamp(min=0.0).sqrt()
                b = (mass * s.clamp(min=0.0) ** p).sum(1) ** (1.0 / p)
                bound = split.top * inside.sqrt() + split.rest * outside
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
    for split in neuron_clusters._output_pair(-mass, u @ u.T, p, float(mass.sum())).splits:
        k = split.basis.shape[1]
        left = float(mass[k]) if k < len(mass) else 0.0
        assert split.top == pytest.approx(float(mass[0]) ** (1 / p) if k else 0.0)
        assert split.rest == pytest.approx(left ** (1 / p), abs=2e-3)


def closed_form(u: Tensor, a: Tensor, p: float, z: Tensor) -> Tensor:
    """The radii (n,) of points z (n, dim) of class +1, of sum_j a_j relu(<u_j, z>)^p."""
    init = models.Explicit(u, a.unsqueeze(0))
    net = models.PReLUNet(
        u.shape[1], len(u), p, init=init, dtype=torch.float64, generator=torch.Generator()
    )
    rounding, gram = models.shallow_rounding(net, torch.float64), u @ u.T
    form = rounding.form
    own, foreign = torch.ones(len(z), dtype=torch.long), torch.tensor([[True, False]])
    seen = point_products(form, gram, z)
    slack = torch.zeros(len(z), dtype=torch.float64)
    return neuron_clusters.NeuronClusters(form, gram, rounding).radii(
        seen, own, foreign.expand(len(z), 2), slack
    )


@pytest.mark.parametrize("p", [2.0, 3.0, 6.0])
def test_neurons_that_are_silent_at_the_point_are_farther_away(p):
    """One own centre, two against: (s + m) / sqrt(2) if these lack m or more, which is exact."""
    a = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    z = torch.tensor([[0.98, -0.03, -0.05], [0.98, -0.03, 0.02]], dtype=torch.float64)
    found = closed_form(torch.eye(3, dtype=torch.float64), a, p, z)
    wanted = torch.tensor([0.98 + 0.03, 0.98 - 0.02], dtype=torch.float64) / 2**0.5
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("tilt", [0.05, 0.5, 5.0])
def test_silent_neurons_leave_the_closed_form_sound(p, tilt, generator):
    """Crowded neurons against, all silent at z: nothing within the radius is found to break it."""
    other, mass = against("crowded", generator)
    other = nn.functional.pad(other, (2, 0))
    other[:, 1] = -tilt
    other = other / torch.linalg.vector_norm(other, dim=1, keepdim=True)
    u = torch.cat([torch.eye(1, 6, dtype=torch.float64), other])
    a = torch.cat([torch.ones(1, dtype=torch.float64), -mass])
    z = torch.tensor([[0.8, 0.8, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    rho = float(closed_form(u, a, p, z)[0])
    d = torch.randn(2000, 6, generator=generator, dtype=torch.float64)
    for _ in range(30):  # full steps downhill
        d = rho * d / torch.linalg.vector_norm(d, dim=1, keepdim=True)
        s = ((z + d) @ u.T).clamp(min=0.0)
        assert bool(((a * s**p).sum(1) > 0).all())
        slope = torch.where(s > 0, p * s ** (p - 1.0), 0.0)
        down = -(a * slope) @ u
        d = torch.where(down.any(1, keepdim=True), down, d)
