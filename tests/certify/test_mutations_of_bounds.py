"""Each bound itself, made two percent too high, is caught where it is compared with M everywhere.

Some of these hardly change a radius: a parabola touches M just where M is least.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from extremal.certify import linear_bounds, neuron_clusters, parabolas, trust_region
from extremal.certify.l2_problem import TargetPairs, no_perturbation
from extremal.certify.trust_region import first_bound, holds_on_slices
from tests.certify.breaking import times
from tests.certify.networks import Kind
from tests.certify.test_bounds import everywhere, parabola_holds, problem
from tests.certify.test_neuron_clusters import gains_hold


@pytest.mark.parametrize("name", ["opening_above", "opening_below"])
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 4.5])
def test_a_parabola_that_opens_two_percent_too_little_or_too_much(name, p, monkeypatch, generator):
    """It touches M where M is least, and radii hardly change: but it isn't below M any more."""
    task = problem(Kind(1, 2, p, bias=True), generator, 0.5)
    assert parabola_holds(task, generator)
    factor = 0.98 if name == "opening_above" else 1.02
    monkeypatch.setattr(parabolas, name, times(getattr(parabolas, name), factor))
    assert not parabola_holds(task, generator)


def test_a_slice_that_is_skipped(monkeypatch, generator):
    """With slices across every direction, some have the least M in the one that is left out."""
    task = problem(Kind(2, 6, 3.0, 2), generator, 0.5)
    m = torch.tensor(task.values(everywhere(task, generator)))
    above = m.amin(1) + 1e-6 * (m.amin(1).abs() + m.amax(1) - m.amin(1))
    angles = torch.arange(4, dtype=torch.float64) * (torch.pi / 2)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    moves = [task.move(task.pairs.radius[:, None] * direction) for direction in circle]
    mu = first_bound(task.pairs, moves[0]).multiplier

    def claims():
        return any(bool(holds_on_slices(task.pairs, move, mu, above).any()) for move in moves)

    assert not claims()
    ends = list(itertools.pairwise(trust_region.SLICE_ENDS))
    for skipped in range(len(ends)):
        kept = ends[:skipped] + ends[skipped + 1 :]
        monkeypatch.setattr(trust_region.itertools, "pairwise", lambda _, kept=kept: kept)
        assert claims()


@pytest.mark.parametrize("which", [0, 1], ids=["l", "l_R"])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_gains_of_clusters_two_percent_too_small(which, p, monkeypatch, generator):
    plain = neuron_clusters._gains

    def smaller(*args):
        gains = list(plain(*args))
        gains[which] *= 0.98
        return tuple(gains)

    assert gains_hold(p, generator)
    monkeypatch.setattr(neuron_clusters, "_gains", smaller)
    assert not gains_hold(p, generator)


def tangent(beta, low, high, anchor, power):
    """`line_below`, but always the tangent."""
    at = torch.minimum(torch.maximum(anchor, 1e-6 * high), high)
    slope = power * at ** (power - 1.0)
    return beta * (at**power - slope * at), beta * slope


def one_pair(a: float, beta: float, p: float, power: float) -> TargetPairs:
    """M(d) = a relu(1 + d)^p + beta |1 + d|^(2 power) for |d| <= 1/2, in one dimension."""
    one = torch.ones(1, dtype=torch.float64)
    row = one[None]
    return TargetPairs(row, a * row, beta * one, row, row, one, 0.5 * one, p, power, 0.0)


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
def test_a_tangent_of_the_norm_term_where_a_chord_is_due(p, monkeypatch, generator):
    task = problem(Kind(2, 3, p, 2, bias=True, normalize=1.0), generator, 0.5)
    assert parabola_holds(task, generator)
    monkeypatch.setattr(parabolas, "line_below", tangent)
    assert not parabola_holds(task, generator)


@pytest.mark.parametrize("p", [2.5, 3.0, 6.0])
def test_a_tangent_of_the_norm_term_in_the_linear_bound(p, monkeypatch):
    """-|1 + d|^p, least at the ball's end, where the chord is exact."""
    pairs = one_pair(0.0, -1.0, p, 0.5 * p)
    exact = -(1.5**p)
    assert float(linear_bounds.linear_bound(pairs, no_perturbation(pairs))) == pytest.approx(exact)
    monkeypatch.setattr(linear_bounds, "line_below", tangent)
    assert float(linear_bounds.linear_bound(pairs, no_perturbation(pairs))) > exact + 0.02


def test_an_even_bend_two_percent_too_small(monkeypatch):
    """3 - relu(1 + d)^2: a parabola, whose bend is known exactly."""
    pairs = one_pair(-1.0, 3.0, 2.0, 0.0)
    assert float(parabolas.uniform_curvature_bound(pairs, no_perturbation(pairs))) == pytest.approx(
        0.75
    )
    monkeypatch.setattr(parabolas, "curvature_bound", times(parabolas.curvature_bound, 0.98))
    assert float(parabolas.uniform_curvature_bound(pairs, no_perturbation(pairs))) > 0.75 + 1e-3
