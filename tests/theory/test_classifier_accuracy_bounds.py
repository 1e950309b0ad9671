"""The bounds on F^(p) at any radius: they hold, and they are closer than the printed ones."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from extremal import theory
from tests.theory import other_versions
from tests.theory.sampling import broken, coordinates, slack, subclass_output

DIM = 100
SIZES = [(1, 1), (2, 1), (3, 5), (1, 8)]


def numbers(k1, k2, s, dim=DIM):
    return dim, k1, k2, s * math.sqrt(dim)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 8.0])
def test_lower_bound_holds_against_attacks(p, generator):
    # The attack's error is at most the true one; 1,500 samples a class, five standard errors.
    n, spoke = 1_500, 0
    for (k1, k2), s in itertools.product(SIZES, [0.1, 0.04]):
        for part in (0.0, 0.5, 0.8):
            radius = part * theory.subclass_radius(max(k1, k2), p)
            bound = theory.subclass_accuracy_lower(*numbers(k1, k2, s), p, radius)
            error = 0.0
            for own, opposing in ((k1, k2), (k2, k1)):
                c = coordinates(own, opposing, s, n, generator)
                lost = broken(c, own, p, radius, steps=5).double().mean()
                error += own / (k1 + k2) * float(lost)
            assert error <= bound.tail + slack(error, n)
            spoke += not bound.vacuous
    assert spoke >= 12


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 8.0])
def test_upper_bound_holds_under_its_step(p, generator):
    n, spoke = 10_000, 0
    for (k1, k2), s in itertools.product(SIZES, [0.1, 0.04]):
        for part in (0.9, 1.2, 1.6):
            radius = part * theory.subclass_radius(min(k1, k2), p)
            bound = theory.subclass_accuracy_upper(*numbers(k1, k2, s), p, radius)
            accuracy = 0.0
            for own, opposing in ((k1, k2), (k2, k1)):
                c = coordinates(own, opposing, s, n, generator)
                accuracy += own / (k1 + k2) * _accuracy_after_step(c, own, p, radius)
            assert accuracy <= bound.value + slack(accuracy, n)
            spoke += not bound.vacuous
    assert spoke >= 8


def _accuracy_after_step(c, own, p, radius):
    """The step that is nearest for a noiseless centre: all opposing centres for p < 2, else one."""
    step = torch.zeros(c.shape[1], dtype=c.dtype)
    step[own:] = 1.0
    if p >= 2:
        step[own + 1 :] = 0.0
    count = float(step.sum())
    step *= count ** (1 / p - 0.5) / math.sqrt(count) if p < 2 else 1.0
    step[0] = -1.0
    moved = c + radius * step / step.norm()
    return float((subclass_output(moved, own, p) > 0).double().mean())


def test_one_centre_a_side_brackets_the_exact_accuracy():
    for s, radius in itertools.product([0.1, 0.05, 0.02], [0.0, 0.3, 0.6, 0.7, 0.75, 0.9]):
        args = numbers(1, 1, s)
        error = theory.average_error(*args, radius)
        for p in (1.0, 2.0, 5.0):
            assert error <= theory.subclass_accuracy_lower(*args, p, radius).tail
            assert 1 - error <= theory.subclass_accuracy_upper(*args, p, radius).value + 1e-12


def test_exponent_is_right_in_the_limit():
    # As s -> 0, s^2 log(tail) tends to -(r_c - r)^2/2 for both, as it does for the exact error.
    s, radius = 1e-3, math.sqrt(0.5) - 0.03
    rate = 0.5 * 0.03**2
    lower = theory.subclass_accuracy_lower(*numbers(1, 1, s), 3.0, radius)
    assert -s * s * math.log(lower.tail) == pytest.approx(rate, rel=0.1)
    exact = theory.average_error(*numbers(1, 1, s), radius)
    assert -s * s * math.log(exact) == pytest.approx(rate, rel=0.1)
    upper = theory.subclass_accuracy_upper(*numbers(1, 1, s), 3.0, math.sqrt(0.5) + 0.03)
    assert -s * s * math.log(upper.tail) == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
def test_both_sides_close_in_on_the_critical_radius(p):
    # Even classes: gap = r/r_c - 1 in the limit, over Lipschitz constants that are known.
    s, away = 1e-3, 0.035
    critical = theory.subclass_radius(3, p)
    lower = theory.subclass_accuracy_lower(*numbers(3, 3, s), p, critical - away)
    assert -2 * s * s * math.log(lower.tail) == pytest.approx(away**2, rel=0.1)
    upper = theory.subclass_accuracy_upper(*numbers(3, 3, s), p, critical + away)
    stretch = max(1.0, 3 ** (1 / p - 0.5))
    expected = (away / critical) ** 2 / (2 * stretch**2)
    assert -2 * s * s * math.log(upper.tail) == pytest.approx(expected, rel=0.1)


def test_closer_than_the_papers_bounds_wherever_those_speak():
    spoke = 0
    for (k1, k2), p in itertools.product([(1, 1), (6, 4), (1, 30), (50, 50)], [1.0, 2.0, 3.0, 9.0]):
        for s in (0.3, 0.1, 0.03, 0.01, 0.003, 0.001):
            args = numbers(k1, k2, s)
            proven = other_versions.subclass_clean(*args)["proof"]
            if proven < 1:
                assert theory.subclass_accuracy_lower(*args, p).tail <= proven
                spoke += 1
            for delta in (0.05, 0.3, 1.0):
                proven = other_versions.subclass_robust(*args, delta)
                if proven < 1:
                    radius = (math.sqrt(2) - delta) / 2
                    ours = theory.subclass_accuracy_lower(*args, max(p, 2.0), radius)
                    assert ours.tail <= proven
                    spoke += 1
    assert spoke >= 40


def test_the_papers_figure_is_predicted_where_the_printed_bounds_are_silent():
    # Figure 2's mixture at alpha = 0.1, p = 3: sqrt(2)/2 within +-0.05.
    args = (1000, 6, 4, 0.1)
    assert theory.subclass_robust_bound(*args, 0.1, 3.0).vacuous
    assert theory.subclass_attack_bound(*args, 0.1).vacuous
    assert theory.subclass_accuracy_lower(*args, 3.0, math.sqrt(0.5) - 0.05).value > 0.999
    assert theory.subclass_accuracy_upper(*args, 3.0, math.sqrt(0.5) + 0.05).value < 0.001


def test_mean_of_the_noise_norm_is_bounded(generator):
    # At radius 0 the tail is exp(-(r_c (1 - s m))^2 / (2 s^2)); solve for m and compare.
    g = torch.randn(20_000, 12, generator=generator, dtype=torch.float64).clamp_min(0.0)
    s = 0.05
    for p in (1.0, 1.5, 2.0, 3.0, 20.0):
        tail = theory.subclass_accuracy_lower(*numbers(12, 12, s), p).tail
        critical = theory.subclass_radius(12, p)
        used = (1 - s * math.sqrt(-2 * math.log(tail)) / critical) / s
        mean = float((g**p).sum(dim=1).pow(1 / p).mean())
        assert mean - 0.02 <= used <= 2.0 * mean
        assert p < 2.0 or used <= math.sqrt(12 / 2) + 1e-9
        if p == 1.0:
            assert used == pytest.approx(12 / math.sqrt(2 * math.pi), rel=1e-9)


def test_upper_bound_allows_for_the_own_centres_noise(generator):
    # Solve the tail for the mean norm that it takes for the 11 own centres but the sample's.
    g = torch.randn(20_000, 11, generator=generator, dtype=torch.float64).clamp_min(0.0)
    s = 0.01
    for p in (1.0, 1.5, 2.0, 3.0):
        critical, stretch = theory.subclass_radius(12, p), max(1.0, 12 ** (1 / p - 0.5))
        taken = 1.3 * critical**2
        tail = theory.subclass_accuracy_upper(*numbers(12, 12, s), p, 1.3 * critical).tail
        gap = s * math.sqrt(-4 * math.log(tail)) * stretch
        used = (taken * stretch**2 - (1 - taken) - gap) / s
        mean = float((g**p).sum(dim=1).pow(1 / p).mean())
        assert mean - 0.02 <= used <= 1.5 * mean
