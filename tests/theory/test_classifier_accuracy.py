"""The exact error of F against Monte Carlo, brute-force attacks and scipy's bivariate normal."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from extremal import theory
from tests.theory.sampling import average_output, coordinates, slack

DIM = 100


def spread_for(s: float) -> float:
    return s * math.sqrt(DIM)


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (6, 4), (1, 9), (12, 8)])
@pytest.mark.parametrize(("s", "radius"), [(0.15, 0.0), (0.05, 0.2), (0.3, 0.1), (0.02, 0.4)])
def test_agrees_with_scipys_bivariate_normal(positive, negative, s, radius):
    total = positive + negative
    expected = {"worst": 0.0, "d0": 0.0}
    for own in (positive, negative):
        rho = math.sqrt(own / total)
        law = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
        k = (1 / math.sqrt(total) - radius) / s
        for attack, toward in (("worst", radius), ("d0", radius * rho)):
            h = (1 / math.sqrt(own) - toward) / s
            expected[attack] += own / total * law.cdf([h, k])
    for attack, value in expected.items():
        ours = theory.average_accuracy(DIM, positive, negative, spread_for(s), radius, attack)
        assert ours == pytest.approx(value, abs=2e-7)


def test_clean_error_matches_monte_carlo(generator):
    n = 200_000
    error = 0.0
    for own, opposing in ((6, 4), (4, 6)):
        c = coordinates(own, opposing, 0.15, n, generator)
        error += own / 10 * float((average_output(c, own) <= 0).double().mean())
    exact = theory.average_error(DIM, 6, 4, spread_for(0.15))
    assert abs(error - exact) < slack(exact, n)
    assert 0.01 < exact < 0.1


def test_step_along_d0_matches_monte_carlo(generator):
    n, radius, s = 200_000, 0.25, 0.1
    error = 0.0
    for own, opposing in ((6, 4), (4, 6)):
        c = coordinates(own, opposing, s, n, generator)
        c[:, :own] -= radius / math.sqrt(10)
        c[:, own:] += radius / math.sqrt(10)
        error += own / 10 * float((average_output(c, own) <= 0).double().mean())
    exact = theory.average_error(DIM, 6, 4, spread_for(s), radius, "d0")
    assert abs(error - exact) < slack(exact, n)


def test_worst_error_matches_a_search_over_all_directions(generator):
    # Only <mu_+, d> and <mu_-, d> matter, so a circle of directions is every attack.
    n, radius, s, own, opposing = 20_000, 0.6, 0.3, 3, 1
    noise = s * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    a, b = 1 / math.sqrt(own) + noise[:, 0], noise[:, 1]
    alive = torch.ones(n, dtype=torch.bool)
    for angle in torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)[:-1]:
        plus = (a + radius * torch.cos(angle)).clamp_min(0) * math.sqrt(own)
        minus = (b + radius * torch.sin(angle)).clamp_min(0) * math.sqrt(opposing)
        alive &= plus > minus
    k = (1 / math.sqrt(own + opposing) - radius) / s
    h = (1 / math.sqrt(own) - radius) / s
    rho = math.sqrt(own / (own + opposing))
    exact = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([h, k])
    assert abs(float(alive.double().mean()) - exact) < slack(exact, n) + 1e-3


def test_far_tail_has_relative_accuracy():
    # For K1 = K2 the line at 1/sqrt(K) dominates: error ~ Q(k), up to the tiny part behind a = 0.
    for s in (0.05, 0.02, 0.015):
        error = theory.average_error(DIM, 5, 5, spread_for(s))
        assert error == pytest.approx(norm.sf(1 / (math.sqrt(10) * s)), rel=1e-2)
    # Exactly: Q(h) + Q(k) - P(both below), and with one centre a side both signs are alike.
    error = theory.average_error(DIM, 1, 1, spread_for(0.1))
    both = multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    expected = norm.sf(10) + norm.sf(10 / math.sqrt(2)) - both.cdf([-10, -10 / math.sqrt(2)])
    assert error == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("attack", ["worst", "d0"])
def test_accuracy_and_error_add_up_and_both_keep_their_digits(attack):
    for s, radius in itertools.product([0.3, 0.05, 0.01], [0.0, 0.2, 0.3, 0.4, 0.7]):
        args = (DIM, 6, 4, spread_for(s), radius, attack)
        total = theory.average_accuracy(*args) + theory.average_error(*args)
        assert total == pytest.approx(1.0, abs=1e-12)
    # One side each, beyond the radius: P(Z1 > -h, Z2 > -k) by adaptive quadrature in the tail.
    s, radius = 0.05, 1.1
    h, k = (
        (1 - radius * (math.sqrt(0.5) if attack == "d0" else 1)) / s,
        (math.sqrt(0.5) - radius) / s,
    )

    def density(z):
        return norm.pdf(z) * norm.cdf((k + math.sqrt(0.5) * z) / math.sqrt(0.5))

    expected, _ = quad(density, -h, 30.0, epsabs=0.0, epsrel=1e-10, points=[5.0, 8.0], limit=200)
    accuracy = theory.average_accuracy(DIM, 1, 1, spread_for(s), radius, attack)
    assert 0 < accuracy < 1e-12
    assert accuracy == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("positive", "negative"), [(1, 9_999), (5_000, 5_000)])
def test_many_centres_need_fine_quadrature(positive, negative):
    # Clean error of one class: P(A <= 0 or A <= B), A ~ N(1, K_own s^2), B ~ N(0, K_opp s^2).
    s, dim = 0.004, 10_000
    expected = 0.0
    for own, opposing in ((positive, negative), (negative, positive)):
        a, b = s * math.sqrt(own), s * math.sqrt(opposing)

        def density(v, a=a, b=b):
            return norm.pdf(v) * norm.sf((1 - max(b * v, 0.0)) / a)

        part = quad(density, -12, 12, points=[0.0, 1 / b], epsabs=0, epsrel=1e-10, limit=500)[0]
        expected += own / (own + opposing) * part
    error = theory.average_error(dim, positive, negative, s * math.sqrt(dim))
    assert error == pytest.approx(expected, rel=1e-7)


def test_limits_of_the_radius():
    numbers = (DIM, 6, 4, spread_for(0.01))
    assert theory.average_error(*numbers, radius=0.2) < 1e-25
    assert theory.average_error(*numbers, radius=1 / math.sqrt(10)) == pytest.approx(0.5, abs=1e-6)
    assert theory.average_error(*numbers, radius=5.0) == pytest.approx(1.0, abs=1e-12)
    # d_0 is the best direction but for the samples that the other line is nearer to.
    for radius in (0.0, 0.1, 0.3, 0.5):
        wide = (DIM, 6, 4, spread_for(0.2), radius)
        assert theory.average_error(*wide, "worst") >= theory.average_error(*wide, "d0")
