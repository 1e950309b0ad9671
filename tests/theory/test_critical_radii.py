"""Critical radii against numerical minimisation, and the error that no classifier can beat."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from extremal import theory


def smallest_step(output, start_points):
    """The smallest ||d|| with output(d) <= 0, by SLSQP from many starts; feasible ones only."""
    best = math.inf
    rule = {"type": "ineq", "fun": lambda d: -output(d)}
    for start in start_points:
        found = minimize(lambda d: d @ d, start, constraints=[rule], options={"maxiter": 300})
        if output(found.x) <= 1e-7:
            best = min(best, float(np.linalg.norm(found.x)))
    return best


@pytest.mark.parametrize("own", [1, 3])
@pytest.mark.parametrize("opposing", [1, 2, 5])
@pytest.mark.parametrize("p", [1.0, 1.25, 1.5, 2.0, 3.0, 4.5])
def test_subclass_radius_is_the_smallest_breaking_step(own, opposing, p):
    random = np.random.default_rng(0)

    def output(d):
        # Norms instead of their p-th powers: the same sign, and not flat for large p.
        c = np.maximum(d + axes[0], 0.0) ** p
        return c[:own].sum() ** (1 / p) - c[own:].sum() ** (1 / p)

    axes = np.eye(own + opposing)
    starts = [random.normal(size=own + opposing) for _ in range(5)]
    starts += [0.8 * (axes[own + k] - axes[0]) for k in range(opposing)]
    starts.append(0.8 * (axes[own:].sum(axis=0) - axes[0]))
    expected = theory.subclass_radius(opposing, p)
    assert smallest_step(output, starts) == pytest.approx(expected, rel=1e-4)


def test_subclass_radius_special_cases():
    assert theory.subclass_radius(4, 1.0) == pytest.approx(1 / math.sqrt(5))
    assert theory.subclass_radius(4, 2.0) == pytest.approx(math.sqrt(0.5))
    assert theory.subclass_radius(400, 7.0) == pytest.approx(theory.OPTIMAL_RADIUS)
    assert theory.subclass_radius(1, 1.0) == pytest.approx(theory.OPTIMAL_RADIUS)
    assert theory.subclass_radius(9, 1.5) == pytest.approx(1 / math.sqrt(1 + 9 ** (1 / 3)))


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (3, 2), (1, 5), (6, 4)])
def test_average_radius_is_the_smallest_breaking_step(positive, negative):
    found = math.inf
    for own, opposing in ((positive, negative), (negative, positive)):

        def output(d, own=own):
            c = d + np.eye(len(d))[0]
            return max(c[:own].sum(), 0.0) - max(c[own:].sum(), 0.0)

        random = np.random.default_rng(1)
        starts = [random.normal(size=own + opposing) for _ in range(8)]
        starts.append(np.concatenate([-np.ones(own), np.ones(opposing)]))
        found = min(found, smallest_step(output, starts))
    assert found == pytest.approx(theory.average_radius(positive, negative), rel=1e-4)


@pytest.mark.parametrize(("positive", "negative"), [(3, 2), (1, 4), (2, 2)])
def test_no_classifier_beats_the_unavoidable_error(positive, negative, generator):
    # Random two-layer classifiers, attacked only at midpoints: they can't be below the bound.
    total, dim = positive + negative, 6
    y = torch.tensor([1.0] * positive + [-1.0] * negative, dtype=torch.float64)
    bound = theory.unavoidable_error(positive, negative, math.sqrt(0.5))
    assert bound == pytest.approx(min(positive, negative) / total)
    centers = torch.eye(total, dim, dtype=torch.float64)
    for _ in range(200):
        w = torch.randn(8, dim, generator=generator, dtype=torch.float64)
        v = torch.randn(8, generator=generator, dtype=torch.float64)
        noise = 0.3 * torch.randn(dim, generator=generator, dtype=torch.float64)
        broken = []
        for k, other in itertools.product(range(total), repeat=2):
            midpoint = (centers[k] + centers[other]) / 2 + noise
            wrong = float(y[k] * (v @ (w @ midpoint).clamp_min(0.0))) <= 0
            broken.append((k, wrong))
        error = sum(any(bad for k, bad in broken if k == c) for c in range(total)) / total
        assert error >= bound - 1e-12


def test_unavoidable_error_starts_at_half_the_distance():
    assert theory.unavoidable_error(6, 4, 0.7) == 0.0
    assert theory.unavoidable_error(6, 4, theory.OPTIMAL_RADIUS) == pytest.approx(0.4)
    assert theory.unavoidable_error(6, 4, 2.0) == pytest.approx(0.4)
    # Below it, F^(3) reads every noiseless centre correctly, so 0 can't be improved there.
    for opposing in (4, 6):
        assert theory.subclass_radius(opposing, 3.0) == pytest.approx(theory.OPTIMAL_RADIUS)


def test_radii_check_their_numbers():
    with pytest.raises(ValueError, match="opposing must be an integer >= 1, got 0"):
        theory.subclass_radius(0, 2.0)
    with pytest.raises(ValueError, match=r"p must be a finite number >= 1, got 0\.5"):
        theory.subclass_radius(3, 0.5)
    with pytest.raises(ValueError, match="radius must be a finite number >= 0, got nan"):
        theory.unavoidable_error(1, 1, math.nan)
