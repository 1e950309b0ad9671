"""Bounds on M over a ball: below M at every point that can be thought of, and the dual itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extremal.certify.l2_problem import (
    Perturbation,
    TargetPairs,
    descend_margin,
    margin_value,
    no_perturbation,
    point_products,
)
from extremal.certify.linear_bounds import linear_bound
from extremal.certify.parabolas import (
    Anchor,
    Parabola,
    curvature_bound,
    multiplier_at,
    parabola,
    uniform_curvature_bound,
)
from extremal.certify.trust_region import ascend_dual, dual, first_bound, holds_on_slices
from extremal.models import as_two_layer_form
from tests.certify.networks import Kind, make, right_points

KINDS = [
    Kind(3, 7, 1.0, 2),
    Kind(6, 4, 1.0, 3, bias=True),
    Kind(7, 5, 1.99, 1),
    Kind(4, 9, 1.3, 1, bias=True, hidden_bias=True),
    Kind(5, 6, 1.5, 3, bias=True, normalize="p"),
    Kind(2, 12, 2.0, 1, bias=True, normalize="p", center=True),
    Kind(8, 3, 2.5, 4, scale="small", bias=True),
    Kind(3, 10, 3.0, 2, hidden_bias=True, center=True, scale="large"),
    Kind(9, 6, 4.0, 3, bias=True, normalize=1.0),
    Kind(1, 5, 6.0, 1, bias=True),
]


@dataclass(frozen=True)
class Problem:
    """Pairs, and what makes perturbations explicit: directions (h, dim) and points z (m, dim)."""

    pairs: TargetPairs
    directions: Tensor
    z: Tensor

    def move(self, d: Tensor) -> Perturbation:
        """Perturbations (m, dim) as the certificates see them."""
        return Perturbation(d @ self.directions.T, (self.z * d).sum(1), (d * d).sum(1))

    def values(self, d: Tensor) -> np.ndarray:
        """M (m, k) at perturbations (m, k, dim), by numpy."""
        pairs, d = self.pairs, d.numpy()
        s = pairs.preactivations.numpy()[:, None] + d @ self.directions.numpy().T
        hidden = (pairs.weight_gap.numpy()[:, None] * np.maximum(s, 0.0) ** pairs.p).sum(2)
        if pairs.power == 0.0:
            return hidden + pairs.constant_gap.numpy()[:, None]
        w = ((self.z.numpy()[:, None] + d) ** 2).sum(2)
        return hidden + pairs.constant_gap.numpy()[:, None] * w**pairs.power


def problem(kind: Kind, generator: torch.Generator, share: float) -> Problem:
    """All pairs of up to ten points, at radii of a share of ||z||."""
    net = make(kind, generator)
    x, y = right_points(net, kind, 10, generator)
    form = as_two_layer_form(net)
    own = form.own(y)
    row, target = (~own).nonzero(as_tuple=True)
    radius = share * (0.2 + torch.rand(len(row), generator=generator, dtype=torch.float64))
    z = form.preparation.scaled_offset(x)[row]
    seen = point_products(form, form.directions @ form.directions.T, x)
    radius = radius * torch.linalg.vector_norm(z, dim=1) / seen.stretch
    pairs = seen.pairs(row, own.double().argmax(1)[row], target, radius)
    return Problem(pairs, form.directions, z)


def everywhere(task: Problem, generator: torch.Generator) -> Tensor:
    """Perturbations (m, k, dim) of the ball: inside, on the surface, and where descents end."""
    m, dim = task.z.shape
    rho = task.pairs.radius[:, None, None]
    d = torch.randn(m, 300, dim, generator=generator, dtype=torch.float64)
    d = rho * d / torch.linalg.vector_norm(d, dim=2, keepdim=True)
    size = torch.rand(m, 300, 1, generator=generator, dtype=torch.float64)
    return torch.cat([d, size * d, _descents(task, d[:, :8]), torch.zeros(m, 1, dim).double()], 1)


def _descents(task: Problem, d: Tensor) -> Tensor:
    """Full linear steps down M by autograd, from several perturbations, all iterates."""
    pairs, seen = task.pairs, []
    for _ in range(12):
        d = d.detach().requires_grad_(True)
        s = pairs.preactivations[:, None] + d @ task.directions.T
        total = (pairs.weight_gap[:, None] * torch.relu(s) ** pairs.p).sum()
        if pairs.power:
            w = ((task.z[:, None] + d) ** 2).sum(2)
            total = total + (pairs.constant_gap[:, None] * w**pairs.power).sum()
        (gradient,) = torch.autograd.grad(total, d)
        length = torch.linalg.vector_norm(gradient, dim=2, keepdim=True)
        d = -pairs.radius[:, None, None] * gradient / length.clamp(min=1e-12)
        seen.append(d)
    return torch.cat(seen, 1).detach()


def holds(task: Problem, bound: Tensor, lowest: np.ndarray) -> bool:
    """bound <= M, to a rounding of 1e-9 of the terms; -inf is a bound."""
    pairs = task.pairs
    high = torch.relu(pairs.preactivations + pairs.radius[:, None]) ** pairs.p
    top = (pairs.squared_norm.sqrt() + pairs.radius) ** (2 * pairs.power)
    room = 1e-9 * ((pairs.weight_gap.abs() * high).sum(1) + pairs.constant_gap.abs() * top)
    assert not bool(bound.isnan().any())
    return bool((bound.numpy() <= lowest + room.numpy()).all())


def anchors(task: Problem, generator: torch.Generator) -> list[Perturbation]:
    """Moves to touch at: none, a random one, where descents end."""
    pairs = task.pairs
    d = torch.randn(task.z.shape, generator=generator, dtype=torch.float64)
    d = pairs.radius[:, None] * d / torch.linalg.vector_norm(d, dim=1, keepdim=True)
    start = no_perturbation(pairs)
    return [start, task.move(0.7 * d), task.move(d), descend_margin(pairs, start, 12)]


def parabola_holds(task: Problem, generator: torch.Generator) -> bool:
    """Whether the parabola that touches at a random move is below M everywhere."""
    pairs = task.pairs
    d = everywhere(task, generator)
    m = task.values(d)
    q = parabola(pairs, Anchor.at(pairs, anchors(task, generator)[1]))
    e = d.numpy() @ task.directions.numpy().T
    inner = (task.z.numpy()[:, None] * d.numpy()).sum(2)
    square = (d.numpy() ** 2).sum(2)
    slope, bend = q.neuron_slope.numpy()[:, None], q.neuron_curvature.numpy()[:, None]
    below = q.constant.numpy()[:, None] + (slope * e + 0.5 * bend * e * e).sum(2)
    below += q.point_slope.numpy()[:, None] * inner
    below += 0.5 * q.isotropic_curvature.numpy()[:, None] * square
    return bool((below <= m + 1e-9 * (np.abs(m).max() + np.abs(below).max())).all())


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_bound_is_below_m_everywhere(kind, share, generator):
    task = problem(kind, generator, share)
    lowest = task.values(everywhere(task, generator)).min(1)
    pairs = task.pairs
    never = torch.full_like(pairs.constant_gap, torch.inf)
    for move in anchors(task, generator):
        assert holds(task, linear_bound(pairs, move), lowest)
        assert holds(task, uniform_curvature_bound(pairs, move), lowest)
        first = first_bound(pairs, move)
        assert holds(task, first.bound, lowest)
        assert holds(task, ascend_dual(pairs, first.anchor, 2.5 * first.multiplier, never), lowest)


@pytest.mark.parametrize("kind", KINDS[1::2], ids=str)
def test_slices_never_claim_more_than_the_least_m(kind, generator):
    """And do claim what is well below it."""
    task = problem(kind, generator, 0.5)
    m = task.values(everywhere(task, generator))
    lowest, spread = torch.tensor(m.min(1)), torch.tensor(m.max(1) - m.min(1))
    for move in anchors(task, generator)[2:]:
        mu = first_bound(task.pairs, move).multiplier
        above = lowest + 1e-6 * (lowest.abs() + spread)
        assert not bool(holds_on_slices(task.pairs, move, mu, above).any())
        below = lowest - 3.0 * spread
        assert float(holds_on_slices(task.pairs, move, mu, below).double().mean()) > 0.5


def test_largest_bend_is_above_the_largest_eigenvalue(generator):
    for width, dim in ((5, 3), (4, 9)):
        u = torch.randn(width, dim, generator=generator, dtype=torch.float64)
        u = u / torch.linalg.vector_norm(u, dim=1, keepdim=True)
        bend = torch.rand(50, width, generator=generator, dtype=torch.float64)
        bend = torch.where(bend < 0.3, 0.0, bend)
        exact = torch.linalg.eigvalsh(u.T @ (bend[:, :, None] * u)).amax(1)
        found = curvature_bound(u @ u.T, bend)
        assert bool((found >= exact * (1 - 1e-12)).all())
        assert bool((found <= width**0.5 * exact + 1e-12).all())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_parabola_is_below_m_and_touches_it(kind, generator):
    """At the anchor itself, but for a neuron near its kink and a chord of the norm term."""
    task = problem(kind, generator, 0.3)
    pairs = task.pairs
    assert parabola_holds(task, generator)
    move = anchors(task, generator)[1]
    q = parabola(pairs, Anchor.at(pairs, move))
    scale = float(margin_value(pairs, move).abs().max() + q.constant.abs().max())
    if kind.p >= 2.0 and pairs.power in {0.0, 1.0}:
        e = move.neuron_products
        at = q.constant + (q.neuron_slope * e + 0.5 * q.neuron_curvature * e**2).sum(1)
        at = at + q.point_slope * move.point_product
        at = at + 0.5 * q.isotropic_curvature * move.squared_length
        torch.testing.assert_close(at, margin_value(pairs, move), rtol=1e-8, atol=1e-9 * scale)


def hessian(q: Parabola, mu: Tensor, i: int, u: np.ndarray) -> np.ndarray:
    """H + mu I of one pair, in the data's coordinates."""
    diagonal = float(q.isotropic_curvature[i] + mu[i]) * np.eye(u.shape[1])
    return (u.T * q.neuron_curvature[i].numpy()) @ u + diagonal


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_dual_against_dense_matrices(kind, generator):
    """c - g'(H + mu I)^-1 g / 2 - mu rho^2 / 2 in the data's coordinates; -inf where not definite.

    `dual` may leave out bends that sum to a small share of mu, at a cost: so its value is at most
    the dense one, and hardly less. With more neurons than dimensions H + mu I may be definite where
    mu + even <= 0, which `dual` does not use.
    """
    task = problem(kind, generator, 0.4)
    pairs, u = task.pairs, task.directions.numpy()
    move = anchors(task, generator)[2]
    q = parabola(pairs, Anchor.at(pairs, move))
    base = multiplier_at(pairs, q, move)
    finite, infinite = 0, 0
    for times in (0.0, 0.3, 1.0, 3.0, 30.0):
        mu = times * base
        ours = dual(pairs, q, mu).bound.numpy()
        for i in range(len(pairs)):
            h = hessian(q, mu, i, u)
            least = np.linalg.eigvalsh(h).min()
            size = np.abs(h).max() + 1e-300
            if least < -1e-9 * size:
                assert ours[i] == -np.inf
                infinite += 1
                continue
            if least < 1e-3 * size or mu[i] + q.isotropic_curvature[i] <= 1e-6 * size:
                continue
            g = u.T @ q.neuron_slope[i].numpy() + float(q.point_slope[i]) * task.z[i].numpy()
            fall = 0.5 * g @ np.linalg.solve(h, g) + 0.5 * float(mu[i] * pairs.radius[i] ** 2)
            exact = float(q.constant[i]) - fall
            room = abs(float(q.constant[i])) + fall
            assert ours[i] <= exact + 1e-9 * room
            assert ours[i] >= exact - 1e-2 * room
            finite += 1
    assert finite >= 20
    assert infinite >= 1 or kind.dim == 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_minimiser_of_the_dual_is_where_its_gradient_vanishes(kind, generator):
    task = problem(kind, generator, 0.4)
    pairs, u = task.pairs, task.directions.numpy()
    q = parabola(pairs, Anchor.at(pairs, anchors(task, generator)[2]))
    mu = 30.0 * multiplier_at(pairs, q, anchors(task, generator)[2])
    found = dual(pairs, q, mu)
    checked = 0
    for i in torch.nonzero(found.bound.isfinite()).squeeze(1).tolist():
        h = hessian(q, mu, i, u)
        g = u.T @ q.neuron_slope[i].numpy() + float(q.point_slope[i]) * task.z[i].numpy()
        d = -np.linalg.solve(h, g)
        products = found.minimiser.neuron_products[i].numpy()
        assert products == pytest.approx(u @ d, rel=2e-2, abs=1e-6)
        assert float(found.minimiser.squared_length[i]) == pytest.approx(d @ d, rel=4e-2, abs=1e-9)
        checked += 1
    assert checked >= 3


def test_linear_bound_is_exact_where_no_neuron_switches(generator):
    """p = 1 far from kinks: M is linear on the ball, and its minimum value - rho ||gradient||."""
    task = problem(Kind(4, 6, 1.0, 1, hidden_bias=True, bias=True), generator, 1e-4)
    pairs = task.pairs
    fixed = (pairs.preactivations.abs() > pairs.radius[:, None]).all(1)
    assert bool(fixed.any())
    gradient = (pairs.weight_gap * (pairs.preactivations > 0)) @ task.directions
    exact = margin_value(pairs, no_perturbation(pairs)) - pairs.radius * torch.linalg.vector_norm(
        gradient, dim=1
    )
    found = linear_bound(replace(pairs, rounding_share=0.0), no_perturbation(pairs))
    torch.testing.assert_close(found[fixed], exact[fixed], rtol=1e-12, atol=1e-14)
    allowed = linear_bound(pairs, no_perturbation(pairs))  # what rounding may hide is taken off
    torch.testing.assert_close(allowed[fixed], exact[fixed], rtol=1e-8, atol=1e-14)


def test_the_trust_region_is_exact_for_a_parabola(generator):
    """p = 2 with neurons that stay active: M is a quadratic form, and the best dual its minimum."""
    kind = Kind(3, 4, 2.0, 1, hidden_bias=True)
    net = make(kind, generator)
    with torch.no_grad():
        net.hidden_bias.fill_(20.0)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    form = as_two_layer_form(net)
    row = torch.arange(6)
    radius = torch.full((6,), 0.8, dtype=torch.float64)
    seen = point_products(form, form.directions @ form.directions.T, x)
    pairs = seen.pairs(row, torch.ones(6).long(), torch.zeros(6).long(), radius)
    task = Problem(pairs, form.directions, x)
    u, a = form.directions.numpy(), pairs.weight_gap.numpy()
    q = parabola(pairs, Anchor.at(pairs, no_perturbation(pairs)))
    for i in range(6):
        h, g = 2 * (u.T * a[i]) @ u, 2 * u.T @ (a[i] * pairs.preactivations[i].numpy())
        low, high = max(0.0, -np.linalg.eigvalsh(h).min()) + 1e-9, 1e6
        for _ in range(200):
            middle = (low * high) ** 0.5
            long = np.linalg.norm(np.linalg.solve(h + middle * np.eye(3), g)) > 0.8
            low, high = (middle, high) if long else (low, middle)
        d = -np.linalg.solve(h + high * np.eye(3), g)
        exact = task.values(torch.tensor(d)[None, None].expand(6, 1, 3))[i, 0]
        found = dual(pairs, q, torch.full((6,), high, dtype=torch.float64)).bound[i]
        assert float(found) == pytest.approx(exact, rel=1e-6)
