"""Lemmas 1, 4 and 6 against gradient flows integrated here, and the time to onset."""

from __future__ import annotations

import math

import pytest
import torch

from extremal import theory

F64 = torch.float64
POSITIVE, NEGATIVE, DIM, WIDTH = 2, 2, 6, 8
SAMPLES = POSITIVE + NEGATIVE
X = torch.eye(SAMPLES, DIM, dtype=F64)
Y = torch.tensor([1.0] * POSITIVE + [-1.0] * NEGATIVE, dtype=F64)


def outputs(w, v, p, x=X):
    return (torch.relu(x @ w.T) ** p / w.norm(dim=1) ** (p - 1)) @ v


def velocity(w, v, p, loss, reduction):
    """-grad of the loss in (w, v), by automatic differentiation."""
    w, v = w.clone().requires_grad_(), v.clone().requires_grad_()
    margins = Y * outputs(w, v, p)
    terms = torch.exp(-margins) if loss == "exp" else torch.log1p(torch.exp(-margins))
    total = terms.sum() if reduction == "sum" else terms.mean()
    dw, dv = torch.autograd.grad(total, (w, v))
    return -dw, -dv


def runge_kutta(w, v, step, p, loss, reduction):
    def rate(w, v):
        return velocity(w, v, p, loss, reduction)

    k1 = rate(w, v)
    k2 = rate(w + step / 2 * k1[0], v + step / 2 * k1[1])
    k3 = rate(w + step / 2 * k2[0], v + step / 2 * k2[1])
    k4 = rate(w + step * k3[0], v + step * k3[1])
    return tuple(
        start + step / 6 * (a + 2 * b + 2 * c + d)
        for start, a, b, c, d in zip((w, v), k1, k2, k3, k4, strict=True)
    )


def balanced_start(scale, generator):
    w = torch.randn(WIDTH, DIM, generator=generator, dtype=F64)
    norm = float(w.norm(dim=1).max())
    signs = torch.tensor([1.0, -1.0], dtype=F64).repeat(WIDTH // 2)
    return scale * w, signs * scale * w.norm(dim=1), signs, norm


def turning_gap(w, v, signs, p, loss, reduction, rate):
    """max_j ||d/dt w_j/||w_j|| - rate sign(v_j) P_perp x^(p)(w_j)||."""
    size = w.norm(dim=1, keepdim=True)
    u, dw = w / size, velocity(w, v, p, loss, reduction)[0]
    turn = (dw - (dw * u).sum(dim=1, keepdim=True) * u) / size
    return float(
        (turn - rate * signs[:, None] * theory.projected_field(w, X, Y, p)).norm(dim=1).max()
    )


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("loss", ["exp", "logistic"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_true_flow_obeys_lemmas_1_and_4(p, loss, reduction, generator):
    w, v, signs, norm = balanced_start(1.0, generator)
    for scale in (1e-5, 0.99 / (4 * math.sqrt(WIDTH) * norm**2)):
        w_t, v_t = scale * w, scale * v
        small = theory.small_norms(scale, WIDTH, norm, SAMPLES, loss, reduction)
        turning = theory.alignment_error(scale, WIDTH, norm, SAMPLES, p, loss, reduction)
        assert turning.time == small.time > 0
        steps = 25
        for step in range(steps + 1):
            assert float(w_t.norm(dim=1).max()) ** 2 <= small.norm_squared
            assert float(outputs(w_t, v_t, p).abs().max()) <= small.output
            gap = turning_gap(w_t, v_t, signs, p, loss, reduction, turning.rate)
            assert gap <= turning.error
            if step < steps:
                w_t, v_t = runge_kutta(w_t, v_t, small.time / steps, p, loss, reduction)
        # Balancedness, which the lemmas rest on, says that the integration is good enough; a step
        # across a kink of p = 1 is of first order only.
        tolerance = 1e-3 if p == 1.0 else 1e-6
        torch.testing.assert_close(v_t, signs * w_t.norm(dim=1), rtol=tolerance, atol=0.0)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_lemma_1_fails_for_the_logistic_loss_as_printed(reduction, generator):
    w, v, signs, norm = balanced_start(1e-5, generator)
    printed = theory.alignment_error(1e-5, WIDTH, norm, SAMPLES, 3.0, "exp", reduction)
    gap = turning_gap(w, v, signs, 3.0, "logistic", reduction, printed.rate)
    assert gap > 10 * printed.error


def test_numbers_of_lemmas_1_and_4():
    scale, width, norm, samples = 1e-4, 100, 2.0, 10
    small = theory.small_norms(scale, width, norm, samples)
    assert small.time == pytest.approx(math.log(1e3) / 40)
    assert small.norm_squared == pytest.approx(2e-4 * 4 / 10)
    assert small.output == pytest.approx(2e-4 * 10 * 4)
    turning = theory.alignment_error(scale, width, norm, samples, 3.0)
    assert turning.error == pytest.approx(4 * 1e-4 * 10 * 4 * 10 * 3)
    mean = theory.alignment_error(scale, width, norm, samples, 3.0, "exp", "mean")
    assert mean.time == pytest.approx(10 * turning.time)
    assert mean.rate == pytest.approx(0.1)
    assert mean.error == pytest.approx(turning.error / 10)
    logistic = theory.alignment_error(scale, width, norm, samples, 3.0, "logistic")
    assert logistic.time == pytest.approx(2 * turning.time)
    assert logistic.rate == 0.5
    assert logistic.error == pytest.approx(turning.error / 2)


def test_hypotheses_are_named_where_they_fail():
    limit = 1 / (4 * math.sqrt(100) * 4)
    assert theory.small_norms(limit, 100, 2.0, 10).time > 0
    rule = r"scale must be at most 1/\(4 sqrt\(width\) norm\^2\) and below 1/sqrt\(width\)"
    with pytest.raises(ValueError, match=rule):
        theory.small_norms(1.01 * limit, 100, 2.0, 10)
    with pytest.raises(ValueError, match=rule):
        theory.alignment_error(1.01 * limit, 100, 2.0, 10, 3.0)
    # A small norm allows a large scale, at which no time is left.
    for scale in (0.1, 0.2):
        with pytest.raises(ValueError, match=rule):
            theory.small_norms(scale, 100, 0.1, 10)
    with pytest.raises(ValueError, match="loss must be one of 'exp', 'logistic', got 'hinge'"):
        theory.small_norms(1e-5, 100, 2.0, 10, "hinge")


def test_lemma_6_for_each_loss():
    for label in (-1, 1):
        for f in torch.linspace(-1, 1, 41, dtype=F64).tolist():
            leaf = torch.tensor(f, dtype=F64, requires_grad=True)
            margin = label * leaf
            losses = {
                "exp": torch.exp(-margin),
                "logistic": torch.log1p(torch.exp(-margin)),
                "doubled logistic": 2 * torch.log1p(torch.exp(-margin)),
            }
            gaps = {}
            for name, value in losses.items():
                (slope,) = torch.autograd.grad(value, leaf, retain_graph=True)
                gaps[name] = abs(-float(slope) - label)
            assert gaps["exp"] <= 2 * abs(f) + 1e-12
            assert gaps["doubled logistic"] <= 2 * abs(f) + 1e-12
            if abs(f) < 0.15:  # The counterexample to the lemma as printed.
                assert gaps["logistic"] > 2 * abs(f)


def test_alignment_scale_keeps_half_of_the_drift():
    drift = theory.center_drift_floor(0.9, 3.0)
    scale = theory.alignment_scale(drift, 50, 1.5, 10, 3.0)
    error = theory.alignment_error(scale, 50, 1.5, 10, 3.0).error
    assert error == pytest.approx(drift / 2)
    assert theory.alignment_scale(-drift, 50, 1.5, 10, 3.0) == pytest.approx(scale)
    with pytest.raises(ValueError, match="drift must differ from 0"):
        theory.alignment_scale(0.0, 50, 1.5, 10, 3.0)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("at", ["average", "center"])
@pytest.mark.parametrize("loss", ["exp", "logistic"])
def test_growth_rate_of_a_single_neuron(p, at, loss):
    rate = theory.growth_rate(POSITIVE, SAMPLES, p, at, loss)
    u = X[:POSITIVE].sum(dim=0) / math.sqrt(POSITIVE) if at == "average" else X[0]
    w, v = 1e-4 * u[None], torch.tensor([1e-4], dtype=F64)
    dw, _ = velocity(w, v, p, loss, "mean")
    # The output is 1e-8 here, so the rate is that of zero output to 1e-7.
    assert float(dw @ u) / 1e-4 == pytest.approx(rate, rel=1e-6)
    # The direction is a fixed one: no part of the velocity is across.
    assert float((dw - (dw @ u)[:, None] * u).norm()) < 1e-12


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_onset_time_is_the_leading_order(p):
    # One positive neuron at mu_+: integrate until its norm is 1/2 and compare with log(1/scale)/g.
    rate = theory.growth_rate(POSITIVE, SAMPLES, p, "average")
    u = X[:POSITIVE].sum(dim=0) / math.sqrt(POSITIVE)
    times = []
    for scale in (1e-4, 1e-8):
        w, v, time = scale * u[None], torch.tensor([scale], dtype=F64), 0.0
        step = 0.1 / rate
        while float(w.norm()) < 0.5:
            w, v = runge_kutta(w, v, step, p, "exp", "mean")
            time += step
        times.append(time)
        assert abs(time - theory.onset_time(scale, rate)) < 1.5 / rate
    # The O(1)/rate is the same at both scales (to one step), so the slope in log(1/scale) is 1/g.
    assert times[1] - times[0] == pytest.approx(math.log(1e4) / rate, abs=0.21 / rate)


def test_averages_grow_faster_below_p_2_and_centres_above():
    for p, faster in ((1.0, "average"), (3.0, "center")):
        rates = {at: theory.growth_rate(6, 10, p, at) for at in ("average", "center")}
        assert max(rates, key=rates.__getitem__) == faster
    assert theory.growth_rate(6, 10, 2.0, "average") == pytest.approx(0.1)
    assert theory.growth_rate(6, 10, 1.0, "average") == pytest.approx(math.sqrt(6) / 10)
    with pytest.raises(ValueError, match="own must be at most subclasses, got 11"):
        theory.growth_rate(11, 10, 1.0, "average")
    with pytest.raises(ValueError, match="rate must be a finite number > 0"):
        theory.onset_time(1e-7, 0.0)
