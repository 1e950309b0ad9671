"""Proposition 1 and Theorems 1 and 3: printed values, and whether they hold."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy.stats import chi2

from extremal import theory
from tests.theory import other_versions
from tests.theory.sampling import broken, coordinates, slack, subclass_output

DIM = 100
GRID = [
    (k1, k2, s)
    for (k1, k2), s in itertools.product(
        [(1, 1), (2, 1), (6, 4), (1, 9), (50, 50), (1, 99)],
        [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002],
    )
]


def numbers(k1, k2, s, dim=DIM):
    return dim, k1, k2, s * math.sqrt(dim)


def test_tail_bound_is_lemma_3_and_holds():
    for threshold in (0.0, 0.01, 0.1, 0.3, 1.0):
        exact = theory.tail_probability(threshold, 50, 0.7)
        bound = theory.tail_bound(threshold, 50, 0.7)
        assert bound == pytest.approx(2 * math.exp(-50 * threshold**2 / (2 * 0.49)))
        assert exact <= bound / 2 + 1e-15
    assert theory.tail_bound(0.0, 50, 0.7) == 2.0
    # The next larger constant fails far out, so C = 1/2 is the largest.
    far = theory.tail_probability(3.0, 50, 0.7)
    assert far > 2 * math.exp(-0.51 * 50 * 9 / 0.49)


def test_tail_probability_matches_monte_carlo(generator):
    n = 100_000
    noise = 0.7 / math.sqrt(50) * torch.randn(n, generator=generator, dtype=torch.float64)
    exact = theory.tail_probability(0.1, 50, 0.7)
    assert abs(float((noise.abs() > 0.1).double().mean()) - exact) < slack(exact, n)


def test_printed_values():
    # D = 100, K1 = 6, K2 = 4, alpha = 0.3: each number is the formula of the source with C = 1/2.
    d, a2, k = 100.0, 0.09, 10.0
    args = (100, 6, 4, 0.3)
    clean = {
        "paper": 4 * math.exp(-d / (8 * a2 * k)),
        "sharp": math.exp(-d / (2 * a2 * k)),
    }
    for version, tail in clean.items():
        assert theory.average_clean_bound(*args, version).tail == pytest.approx(tail)
    subclass = theory.subclass_clean_bound(*args)
    assert subclass.tail == pytest.approx(22 * math.exp(-d / (2 * a2 * k**2)))
    rho, delta = 0.4, 0.5
    attack = theory.average_attack_bound(*args, rho)
    assert attack.value == pytest.approx(2 * math.exp(-d * rho**2 / (2 * k * a2)))
    assert attack.radius == pytest.approx(1.4 / math.sqrt(10))
    sharp = theory.average_attack_bound(*args, rho, "sharp")
    assert sharp.value == pytest.approx(attack.value / 4)
    robust = {v: theory.average_robust_bound(*args, rho, v) for v in ("paper", "sharp")}
    assert robust["paper"].tail == pytest.approx(2 * math.exp(-d * rho**2 / (2 * k * a2)))
    assert robust["sharp"].tail == pytest.approx(math.exp(-d * rho**2 / (2 * k * a2)))
    assert robust["paper"].radius == pytest.approx(0.6 / math.sqrt(10))
    stated = 22 * math.exp(-d * delta**2 / (4 * k**2 * a2))
    bound = theory.subclass_robust_bound(*args, delta, 3.0)
    assert bound.tail == pytest.approx(stated)
    assert bound.radius == pytest.approx((math.sqrt(2) - delta) / 2)
    bound = theory.subclass_attack_bound(*args, delta)
    assert bound.value == pytest.approx(4 * math.exp(-d * delta**2 / (16 * k**2 * a2)))
    assert bound.radius == pytest.approx((math.sqrt(2) + delta) / 2)


def test_vacuous_bounds_say_so():
    loose = theory.subclass_clean_bound(10, 5, 5, 3.0)
    assert loose.vacuous
    assert loose.value < 0.0
    assert loose.allows(0.0)
    useless = theory.average_attack_bound(10, 5, 5, 1.0, 0.0)
    assert useless.vacuous
    assert useless.value == pytest.approx(2.0)
    assert useless.allows(1.0)
    tight = theory.average_clean_bound(1000, 6, 4, 0.1)
    assert not tight.vacuous
    assert tight.allows(1.0)
    assert not tight.allows(0.9)
    attacked = theory.average_attack_bound(1000, 6, 4, 0.1, 1.0)
    assert not attacked.allows(0.5)


def test_clean_bound_of_the_average_classifier_holds():
    for args in (numbers(*case) for case in GRID):
        tails = list(other_versions.average_clean(*args).values())
        tails += [theory.average_clean_bound(*args, version).tail for version in ("paper", "sharp")]
        assert theory.average_error(*args) <= min(tails) * (1 + 1e-9)


def test_robust_bound_of_the_average_classifier_holds():
    # The statement has 2 exp(-C D rho^2/(K alpha^2)) where its proof ends with another: both hold.
    for case, rho in itertools.product(GRID, [0.0, 0.3, 1.0]):
        args = numbers(*case)
        bounds = [theory.average_robust_bound(*args, rho, v) for v in ("paper", "sharp")]
        tails = [bound.tail for bound in bounds] + [other_versions.average_robust(*args, rho)]
        error = theory.average_error(*args, bounds[0].radius)
        assert error <= min(tails) * (1 + 1e-9)


def test_sharp_robust_bound_has_no_room():
    # One side each: the exact error tends to half the sharp tail as rho -> 0, so 1 can't be 0.4.
    bound = theory.average_robust_bound(*numbers(1, 1, 0.05), 0.0, "sharp")
    error = theory.average_error(*numbers(1, 1, 0.05), bound.radius)
    assert 0.4 < error / bound.tail <= 1.0


@pytest.mark.parametrize("version", ["paper", "sharp"])
def test_attack_bound_of_the_average_classifier_holds(version):
    for (k1, k2, s), rho in itertools.product(GRID, [0.0, 0.3, 2.0]):
        bound = theory.average_attack_bound(*numbers(k1, k2, s), rho, version)
        accuracy = theory.average_accuracy(*numbers(k1, k2, s), bound.radius, "d0")
        assert accuracy <= bound.value * (1 + 1e-9)


def test_a_step_that_ignores_the_label_breaks_one_class_only(generator):
    # The poster prints the step without -y: one class then keeps its accuracy.
    radius, s = 2 / math.sqrt(10), 0.01
    bound = theory.average_attack_bound(*numbers(6, 4, s), 1.0)
    for sign in (-1.0, 1.0):
        accuracy = 0.0
        for own, opposing, label in ((6, 4, 1.0), (4, 6, -1.0)):
            c = coordinates(own, opposing, s, 500, generator)
            c[:, :own] += sign * label * radius / math.sqrt(10)
            c[:, own:] -= sign * label * radius / math.sqrt(10)
            alive = c[:, :own].sum(1).clamp_min(0) > c[:, own:].sum(1).clamp_min(0)
            accuracy += own / 10 * float(alive.double().mean())
        assert accuracy >= 0.4
        assert not bound.allows(accuracy)


def test_one_centre_a_side_is_exact_for_every_p():
    # K1 = K2 = 1: F^(p) has the sign of F, so the exact error tests every bound on F^(p).
    for s in (0.3, 0.1, 0.05, 0.02):
        args = numbers(1, 1, s)
        error = theory.average_error(*args)
        assert error <= theory.subclass_clean_bound(*args).tail
        assert error <= min(other_versions.subclass_clean(*args).values())
        for delta in (0.05, 0.2, 0.5, 1.0, math.sqrt(2)):
            bound = theory.subclass_robust_bound(*args, delta, 2.5)
            tail = min(bound.tail, other_versions.subclass_robust(*args, delta))
            assert theory.average_error(*args, bound.radius) <= tail
            bound = theory.subclass_attack_bound(*args, delta)
            value = min(bound.value, other_versions.subclass_attack(*args, delta))
            assert theory.average_accuracy(*args, bound.radius) <= value + 1e-12


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_clean_bounds_of_the_subclass_classifier_hold(p, generator):
    # 30,000 samples a class, five standard errors.
    n, spoke = 30_000, 0
    for (k1, k2), s in itertools.product([(2, 1), (3, 2), (6, 4)], [0.5, 0.2, 0.12, 0.05]):
        error = 0.0
        for own, opposing in ((k1, k2), (k2, k1)):
            c = coordinates(own, opposing, s, n, generator)
            rate = float((subclass_output(c, own, p) <= 0).double().mean())
            error += own / (k1 + k2) * rate
        args = numbers(k1, k2, s)
        stated = theory.subclass_clean_bound(*args).tail
        for tail in (stated, other_versions.subclass_clean(*args)["proof"]):
            assert error <= tail + slack(error, n)
            spoke += tail < 1
    assert spoke >= 8


def test_posters_clean_bound_fails_for_p_1_and_uneven_classes(generator):
    k1, k2, s, n = 1, 199, 0.0126, 20_000
    args = numbers(k1, k2, s, dim=1000)
    poster = other_versions.subclass_clean(*args)["poster"]
    assert poster < 1e-4
    c = coordinates(k1, k2, s, n, generator)
    lost = float((subclass_output(c, k1, 1.0) <= 0).double().mean())
    assert lost == pytest.approx(0.49, abs=0.03)
    # The negative samples can only add to the error: this alone is 40 times the poster's tail.
    assert lost / 200 > 40 * poster
    assert theory.subclass_clean_bound(*args).vacuous
    assert float((subclass_output(c, k1, 2.0) <= 0).double().sum()) == 0


def test_posters_clean_bound_holds_for_p_2_and_more():
    # An error needs a chi-squared variable of n = K_opp + 1 <= K degrees to reach 1/(2 s^2).
    for total in (3, 4, 5, 10, 30, 100, 1000):
        for exponent in torch.linspace(1.0, 40.0, 80).tolist():
            s = 1 / math.sqrt(2 * total * exponent)
            args = numbers(1, total - 1, s, dim=2000)
            poster = other_versions.subclass_clean(*args)["poster"]
            assert poster >= 1 or chi2.sf(1 / (2 * s * s), total) <= poster


@pytest.mark.parametrize("p", [2.0, 3.0, 6.0])
def test_robust_bounds_of_the_subclass_classifier_hold(p, generator):
    # The attack's accuracy is at least the true one, so a bound above it would be false.
    n, spoke = 1_500, 0
    for (k1, k2), s, delta in itertools.product([(2, 1), (3, 2)], [0.1, 0.04], [0.1, 0.3, 0.8]):
        stated = theory.subclass_robust_bound(*numbers(k1, k2, s), delta, p)
        error = 0.0
        for own, opposing in ((k1, k2), (k2, k1)):
            c = coordinates(own, opposing, s, n, generator)
            lost = broken(c, own, p, stated.radius, steps=8).double().mean()
            error += own / (k1 + k2) * float(lost)
        proven = other_versions.subclass_robust(*numbers(k1, k2, s), delta)
        for tail in (stated.tail, proven):
            assert error <= tail + slack(error, n)
            spoke += tail < 1
    assert spoke >= 4


def test_event_e3_is_bounded_wrongly_in_the_printed_proof():
    # eq. 34 puts P(|<mu_k, eps>| > 1 - sqrt(2)/2) <= 2 exp(-C D / (4 alpha^2)).
    dim, s = 100, 0.1
    printed = 2 * math.exp(-dim / (8 * (s * math.sqrt(dim)) ** 2))
    actual = theory.tail_probability(1 - math.sqrt(2) / 2, dim, s * math.sqrt(dim))
    assert actual > 100 * printed
    # Repaired: with delta kept, outside E_3 the noise already exceeds delta/sqrt(2).
    for delta in torch.linspace(0.0, math.sqrt(2), 50, dtype=torch.float64).tolist():
        radius = (math.sqrt(2) - delta) / 2
        assert 1 - radius >= delta / math.sqrt(2) - 1e-12


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_attack_bounds_of_the_subclass_classifier_hold(p, generator):
    n, spoke = 10_000, 0
    cases = itertools.product([(2, 1), (3, 2), (8, 2)], [0.1, 0.03], [0.2, 0.6, 1.2, 2.5])
    for (k1, k2), s, delta in cases:
        radius = (math.sqrt(2) + delta) / 2
        accuracy = 0.0
        for own, opposing in ((k1, k2), (k2, k1)):
            c = coordinates(own, opposing, s, n, generator)
            c[:, 0] -= radius / math.sqrt(2)
            c[:, -1] += radius / math.sqrt(2)
            alive = (subclass_output(c, own, p) > 0).double().mean()
            accuracy += own / (k1 + k2) * float(alive)
        args = numbers(k1, k2, s)
        stated = theory.subclass_attack_bound(*args, delta).value
        for value in (stated, other_versions.subclass_attack(*args, delta)):
            assert accuracy <= value + slack(accuracy, n)
            spoke += value < 1
    assert spoke >= 10


def test_last_step_of_eq_49_is_false_but_its_result_holds(generator):
    # P(sum |e_l| > t) <= P(|e_1| > t/K) fails in the middle of the distribution.
    n, total = 100_000, 10
    e = torch.randn(n, total, generator=generator, dtype=torch.float64).abs()
    mean = e.mean(dim=1)
    rate = float((mean > 0.7).double().mean())
    assert rate - slack(rate, n) > theory.tail_probability(0.7, 1, 1.0)
    # 2 P(sum > t) <= 4 exp(-(t/K)^2 / 2) holds for every t, by vacuity where the step fails.
    for x in torch.linspace(0.0, 3.0, 31).tolist():
        rate = float((mean > x).double().mean())
        assert 2 * rate <= 4 * math.exp(-(x**2) / 2) + 2 * slack(rate, n)


def test_printed_attack_bound_follows_from_concentration_where_it_speaks():
    # The argument of docs/theory/errata.md: both cases' concentration bounds against 4 exp(-E).
    for total in (2, 3, 10, 100, 10_000):
        for exponent in torch.linspace(math.log(4), 60.0, 200).tolist():
            root, shift = math.sqrt(exponent), 1 / math.sqrt(2 * math.pi)
            first = math.exp(-total * (math.sqrt(8) * root - shift) ** 2 / 2)
            second = math.exp(-total * (math.sqrt(2) * root - shift) ** 2 / 2)
            assert first + second <= 4 * math.exp(-exponent)


def test_versions_and_domains_are_checked():
    args = (100, 2, 2, 0.1)
    with pytest.raises(ValueError, match="version must be one of 'paper', 'sharp', got 'talk'"):
        theory.average_clean_bound(*args, "talk")
    with pytest.raises(ValueError, match="p must be a finite number >= 2, got 1"):
        theory.subclass_robust_bound(*args, 0.1, 1.0)
    with pytest.raises(ValueError, match="slack must be a finite number >= 0 and <= 1,"):
        theory.average_robust_bound(*args, 1.5)
    with pytest.raises(ValueError, match="excess must be a finite number > 0"):
        theory.subclass_attack_bound(*args, 0.0)
    with pytest.raises(ValueError, match="dim must be at least positive \\+ negative = 4"):
        theory.average_clean_bound(3, 2, 2, 0.1)
    with pytest.raises(ValueError, match="spread must be a finite number > 0, got 0"):
        theory.average_clean_bound(10, 2, 2, 0.0)
    with pytest.raises(ValueError, match="positive must be an integer >= 1, got True"):
        theory.average_clean_bound(10, True, 2, 0.1)
