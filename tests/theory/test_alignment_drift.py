"""Theorem 2: the drifts' closed forms, where their signs hold, and where they do not."""

from __future__ import annotations

import math

import pytest
import torch

from extremal import theory

F64 = torch.float64
DIM, OWN, OPPOSING = 20, 4, 3
CENTERS = torch.eye(OWN + OPPOSING, DIM, dtype=F64)
LABELS = torch.tensor([1.0] * OWN + [-1.0] * OPPOSING, dtype=F64)
AVERAGE = CENTERS[:OWN].sum(dim=0) / math.sqrt(OWN)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def in_span(z):
    return z @ CENTERS[:OWN]


def average_slope(w, p):
    return theory.cosine_drift(w, AVERAGE, CENTERS, LABELS, p)


def around(direction, cosine, count, generator, basis):
    """`count` unit vectors of span(basis) at a cosine from a direction of it."""
    rest = torch.randn(count, len(basis), generator=generator, dtype=F64) @ basis
    rest = unit(rest - (rest @ direction)[:, None] * direction)
    return cosine * direction + math.sqrt(1 - cosine**2) * rest


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_average_drift_is_the_fields_in_the_span(p, generator):
    z = unit(torch.randn(200, OWN, generator=generator, dtype=F64))
    torch.testing.assert_close(theory.average_drift(z, p), average_slope(in_span(z), p))


def test_average_drift_has_the_factor_one_over_root_k1():
    # One of two centres at angle t from mu_1, p = 1: (2 - (cos t + sin t)^2)/sqrt(2).
    t = 0.3
    z = torch.tensor([[math.cos(t), math.sin(t)]], dtype=F64)
    expected = (2 - (math.cos(t) + math.sin(t)) ** 2) / math.sqrt(2)
    assert theory.average_drift(z, 1.0).item() == pytest.approx(expected)


def power_product(q, z, p):
    """g_p(q; z) = (sum_i z_i^q) (sum_i z_i^(p+1-q)) of Lemma 5, for positive z (n,)."""
    return float((z**q).sum() * (z ** (p + 1.0 - q)).sum())


@pytest.mark.parametrize("p", [1.0, 1.7, 2.0, 2.3, 3.0, 5.0])
def test_average_drift_is_a_difference_of_power_products(p, generator):
    z = unit(torch.rand(20, OWN, generator=generator, dtype=F64) + 0.05)
    for row, drift in zip(z, theory.average_drift(z, p).tolist(), strict=True):
        gap = power_product(2.0, row, p) - power_product(1.0, row, p)
        assert drift == pytest.approx(p * gap / math.sqrt(OWN), abs=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5, 3.0, 6.0])
def test_predicted_sign_is_right_wherever_there_is_one(p, generator):
    inside = in_span(unit(torch.rand(100, OWN, generator=generator, dtype=F64)))
    sparse = in_span(unit(torch.rand(50, OWN, generator=generator, dtype=F64) * _mask(generator)))
    outside = unit(torch.randn(100, DIM, generator=generator, dtype=F64) + 2 * AVERAGE)
    anywhere = unit(torch.randn(100, DIM, generator=generator, dtype=F64))
    seen = set()
    neurons = torch.cat([inside, sparse, outside, anywhere, AVERAGE[None]])
    for w, slope in zip(neurons, average_slope(neurons, p).tolist(), strict=True):
        sign = theory.average_drift_sign(w, CENTERS[:OWN], p)
        if sign is not None:
            seen.add(sign)
            assert abs(slope) < 1e-12 if sign == 0 else slope * sign > 0
    assert seen == ({0, 1} if p <= 2 else {0, -1})


def _mask(generator):
    return (torch.rand(50, OWN, generator=generator) < 0.7).to(F64) + torch.eye(OWN, dtype=F64)[0]


def test_domain_of_the_sign(generator):
    sign = theory.average_drift_sign
    own = CENTERS[:OWN]
    assert sign(CENTERS[OWN], own, 1.0) is None  # inactive
    assert sign(own[0] - 0.5 * own[1], own, 1.0) is None  # a centre on the far side
    off = 0.9 * AVERAGE + math.sqrt(0.19) * CENTERS[OWN]
    assert sign(off, own, 1.0) == 1
    assert sign(off, own, 3.0) is None
    assert sign(own[0] + 0.5 * own[1], own, 3.0) == -1
    assert sign(own[0] + own[1], own, 1.0) == 0


def test_how_small_delta_must_be(generator):
    # Nearer to mu_+ than sqrt(1 - 1/K1) every coordinate is positive, and at it one may be zero.
    edge = math.sqrt(1 - 1 / OWN)
    near = around(AVERAGE, edge + 1e-3, 2000, generator, CENTERS[:OWN])
    assert float((near @ CENTERS[:OWN].T).min()) > 0
    rest = (AVERAGE - math.sqrt(OWN) * CENTERS[0]) / math.sqrt(OWN - 1)
    beyond = (edge - 1e-3) * AVERAGE + math.sqrt(1 - (edge - 1e-3) ** 2) * rest
    assert float(beyond @ CENTERS[0]) < 0


def test_eq_7_in_the_span_and_its_counterexamples_outside(generator):
    cosine = 0.95
    span = around(AVERAGE, cosine, 5000, generator, CENTERS[:OWN])
    space = around(AVERAGE, cosine, 5000, generator, torch.eye(DIM, dtype=F64))
    # p = 1: the infimum over the whole sphere is sqrt(K1) (1 - c^2), as stated positive.
    floor = math.sqrt(OWN) * (1 - cosine**2)
    assert float(average_slope(space, 1.0).min()) >= floor - 1e-12
    assert average_slope(span, 1.0)[0].item() == pytest.approx(floor)
    for p in (3.0, 4.0):
        # The supremum over the span is negative; over the sphere it is positive, so eq. 74's sign
        # and its infimum are misprints, and the span is needed.
        assert float(average_slope(span, p).max()) < 0
        assert float((average_slope(space, p) > 0).double().mean()) > 0.9
    for p in (1.0, 2.0, 3.0, 7.0):
        orthogonal = cosine * AVERAGE + math.sqrt(1 - cosine**2) * torch.eye(DIM, dtype=F64)[-1]
        assert average_slope(orthogonal[None], p).item() > 0


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.5])
def test_center_drift_is_the_fields_everywhere(p, generator):
    w = unit(torch.randn(300, DIM, generator=generator, dtype=F64))
    w = w[w[:, 2] > 0]
    direct = theory.cosine_drift(w, CENTERS[2], CENTERS, LABELS, p)
    z = w @ CENTERS.T
    before = z.clone()
    torch.testing.assert_close(theory.center_drift(z, LABELS, 2, p), direct)
    torch.testing.assert_close(z, before)


@pytest.mark.parametrize("p", [2.0, 2.5, 3.0, 6.0])
@pytest.mark.parametrize("cosine", [0.4, 0.75, 0.9, 0.99])
def test_center_drift_floor_is_the_smallest_drift(p, cosine, generator):
    floor = theory.center_drift_floor(cosine, p)
    for basis in (torch.eye(DIM, dtype=F64), CENTERS, CENTERS[:OWN], CENTERS[:2]):
        w = around(CENTERS[0], cosine, 2000, generator, basis)
        drifts = theory.cosine_drift(w, CENTERS[0], CENTERS, LABELS, p)
        assert float(drifts.min()) >= floor - 1e-12
    worst = cosine * CENTERS[0] + math.sqrt(1 - cosine**2) * CENTERS[1]
    reached = theory.cosine_drift(worst[None], CENTERS[0], CENTERS, LABELS, p)
    assert reached.item() == pytest.approx(floor, abs=1e-12)


def test_eq_8_holds_from_forty_five_degrees_on_for_p_above_2():
    root = math.sqrt(0.5)
    for p in (2.01, 3.0, 10.0):
        assert theory.center_drift_floor(root + 1e-3, p) > 0
        assert theory.center_drift_floor(root - 1e-3, p) < 0
        assert theory.center_drift_floor(1.0, p) == 0.0
    for cosine in (0.3, 0.9, 0.999):
        assert theory.center_drift_floor(cosine, 2.0) == pytest.approx(0.0, abs=1e-15)


def test_eq_8_fails_for_p_below_2():
    w = math.sqrt(0.98) * CENTERS[0] + math.sqrt(0.02) * CENTERS[1]
    for p, limit in ((1.0, -0.1), (1.5, -0.04)):
        drift = theory.cosine_drift(w[None], CENTERS[0], CENTERS, LABELS, p)
        assert drift.item() < limit
    # Arbitrarily near the centre, too.
    near = CENTERS[0] + 1e-4 * CENTERS[1]
    assert theory.cosine_drift(near[None], CENTERS[0], CENTERS, LABELS, 1.0).item() < 0


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 4.5])
def test_lemma_5_convexity_symmetry_and_minimum(p, generator):
    z = torch.rand(6, generator=generator, dtype=F64) + 0.1
    grid = torch.linspace(-3, p + 4, 141, dtype=F64).tolist()
    values = torch.tensor([power_product(q, z, p) for q in grid], dtype=F64)
    assert float((values[2:] - 2 * values[1:-1] + values[:-2]).min()) > 0
    lowest = power_product((p + 1) / 2, z, p)
    assert lowest <= float(values.min())
    for q in (-1.0, 0.3, 2.0):
        assert power_product(q, z, p) == pytest.approx(power_product(p + 1 - q, z, p))
    equal = torch.full((5,), 0.7, dtype=F64)
    flat = {round(power_product(q, equal, p), 10) for q in grid}
    assert len(flat) == 1


def test_bad_input_is_named():
    z = torch.tensor([[0.6, 0.8]], dtype=F64)
    with pytest.raises(ValueError, match="z must have rows of norm 1"):
        theory.average_drift(2 * z, 1.0)
    with pytest.raises(ValueError, match="index must be a positive centre's, got 1"):
        theory.center_drift(z, torch.tensor([1.0, -1.0]), 1, 3.0)
    with pytest.raises(ValueError, match="z must be positive at the index"):
        theory.center_drift(-z, torch.tensor([1.0, -1.0]), 0, 3.0)
    with pytest.raises(ValueError, match="p must be a finite number >= 2"):
        theory.center_drift_floor(0.9, 1.0)
    with pytest.raises(ValueError, match=r"w must be .* shape \(2,\), got list"):
        theory.average_drift_sign([1.0, 0.0], torch.eye(2), 3.0)
    with pytest.raises(ValueError, match=r"w must be .* shape \(2,\), got shape \(3,\)"):
        theory.average_drift_sign(torch.ones(3), torch.eye(2), 3.0)
    with pytest.raises(ValueError, match=r"p must be a finite number >= 1, got '3'$"):
        theory.average_drift(z, "3")
    with pytest.raises(ValueError, match=r"index must be an integer >= 0, got '0'$"):
        theory.center_drift(z, torch.tensor([1.0, -1.0]), "0", 3.0)
