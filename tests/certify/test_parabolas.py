"""Parabolas over one neuron and lines under the norm term, on dense grids."""

from __future__ import annotations

import pytest
import torch

from extremal.certify.l2_problem import line_below
from extremal.certify.parabolas import opening_above, opening_below
from extremal.models import relu_power, relu_power_with_slope

POWERS = (1.0, 1.2, 1.5, 1.9, 1.99, 2.0, 2.5, 3.0, 4.0, 6.0)
# What a bound on M must exceed is 1e-9 of phi's largest value (`l2.ROUNDING`), which pays for this.
ROUNDING = 1e-9


def intervals(generator):
    """Anchors in intervals (1400, 1): straddling, one-sided and tiny ones, anchors at ends too."""

    def draw(count):
        return torch.rand(count, generator=generator, dtype=torch.float64)

    middle = 4.0 * draw(1400) - 2.0
    half = 10.0 ** (-6.0 * draw(1400) ** 3)  # mostly of size 1, some of 1e-6
    middle[:200] = 3.0 * half[:200] * (1 + draw(200))  # all positive
    middle[200:400] = -3.0 * half[200:400] * (1 + draw(200))  # all negative
    low, high = middle - half, middle + half
    share = draw(1400)
    share[::7], share[3::7] = 0.0, 1.0
    x = torch.minimum(low + share * (high - low), high)
    return x[:, None], low[:, None], high[:, None]


def away_from_kink(x, low, high):
    """As `quadratic.parabola` does for p < 2: no anchor at the kink of a neuron that may switch."""
    least = 0.01 * (high - low)
    near = (low < 0) & (high > 0) & (x.abs() < least)
    return torch.where(near, torch.where(x >= 0, least, -least), x)


def grid(x, low, high, p):
    """A dense grid (n, 1203) of each interval, with the kink and the place of the largest C."""
    t = low + (high - low) * torch.linspace(0, 1, 1200, dtype=torch.float64)
    peak = torch.where(x > 0, -x * (2 - p) / p, -x * p / (2 - p)) if p < 2 else high
    special = [low, torch.zeros_like(low).clamp(low, high), peak.clamp(low, high)]
    return torch.cat([torch.minimum(t, high), *special], 1)


def excess(x, t, opening, p):
    """parabola - phi on the grid, and phi's largest value in each interval."""
    value, slope = relu_power_with_slope(x, p)
    gap = t - x
    return value + slope * gap + opening * gap * gap - relu_power(t, p)


@pytest.mark.parametrize("p", POWERS)
def test_the_parabola_above_is_above_and_no_wider_than_needed(p, generator):
    x, low, high = intervals(generator)
    x = away_from_kink(x, low, high) if p < 2 else x
    t, c = grid(x, low, high, p), opening_above(x, low, high, p)
    room = ROUNDING * relu_power(high, p) + 1e-300
    over = excess(x, t, c, p)
    finite = c.isfinite()
    assert float(finite.double().mean()) > 0.99
    assert bool((over >= -room)[finite.expand_as(over)].all())
    narrower = excess(x, t, 0.98 * c, p).amin(1, keepdim=True)
    # Near an anchor C is bounded by the second derivative instead: not tight to a percent there.
    peak = t[:, -1:]
    far = (peak - x).abs() > 0.02 * (high - low)
    matters = finite & far & (c * (peak - x) ** 2 > 1e3 * room)
    assert int(matters.sum()) >= 150
    assert bool((narrower < 0)[matters].all())


@pytest.mark.parametrize("p", POWERS)
def test_the_parabola_below_is_below_and_no_narrower_than_needed(p, generator):
    x, low, high = intervals(generator)
    t, c = grid(x, low, high, p), opening_below(x, low, high, p)
    room = ROUNDING * relu_power(high, p)
    assert bool((c >= 0).all())
    assert bool((excess(x, t, c, p) <= room + 1e-300).all())
    wider = excess(x, t, 1.02 * c, p).amax(1, keepdim=True)
    end = torch.where((x - low) > 0.02 * (high - low), low, high) if p >= 2 else low
    far = ((x - low) > 0.02 * (high - low)) & ((high - x) > 0.02 * (high - low))
    matters = far & (c * (end - x) ** 2 > 1e3 * room)
    if p > 1.0:  # for p = 1 the tangent is the best from x on one side of 0
        assert int(matters.sum()) >= 100
    assert bool((wider > 0)[matters].all())


@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 1.9])
def test_intervals_that_begin_or_end_at_the_kink(p):
    """Exactly at it: anchors just inside, and at the kink itself."""
    one = torch.ones(6, 1, dtype=torch.float64)
    zero = 0.0 * one
    x = torch.tensor([1e-8, 1e-4, 5e-4, 1e-3, 0.5, 1.0], dtype=torch.float64)[:, None]
    for low, high, anchor in ((zero, one, x), (-one, zero, -x), (zero, one, zero)):
        c = opening_above(anchor, low, high, p)
        over = excess(anchor, grid(anchor, low, high, p), c.clamp(max=1e300), p)
        assert bool((over >= -1e-9).all())
        below = opening_below(anchor, low, high, p)
        assert bool((excess(anchor, grid(anchor, low, high, p), below, p) <= 1e-9).all())


def test_openings_in_closed_form():
    """phi[x, x, t] for p = 2 is 1 on the positive side, and x^2 / (x - t)^2 ... from the other."""
    x, low, high = (torch.tensor([v], dtype=torch.float64) for v in (1.0, -1.0, 3.0))
    assert float(opening_above(x, low, high, 2.0)) == pytest.approx(1.0)
    # phi(-1) - phi(1) - phi'(1)(-2) = 0 - 1 + 4 = 3 over 4.
    assert float(opening_below(x, low, high, 2.0)) == pytest.approx(0.75)
    # p = 1: (t + x)^2 / (4 x) is the parabola through the tangent at x that touches zero at -x.
    assert float(opening_above(x, low, high, 1.0)) == pytest.approx(0.25)
    assert float(opening_above(-x, low, high, 1.0)) == pytest.approx(0.25)
    assert float(opening_below(x, low, high, 1.0)) == 0.0


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5, 0.9, 1.0, 1.5, 2.5])
def test_line_below(power, generator):
    beta = torch.randn(500, generator=generator, dtype=torch.float64)
    ends = 3.0 * torch.rand(500, 2, generator=generator, dtype=torch.float64)
    low, high = ends.amin(1), ends.amax(1)
    low[::5] = 0.0
    high[::7] = low[::7] + 1e-7
    anchor = low + (high - low) * torch.rand(500, generator=generator, dtype=torch.float64)
    anchor[::3] = low[::3]
    constant, slope = line_below(beta, low, high, anchor, power)
    share = torch.linspace(0, 1, 500, dtype=torch.float64)
    w = low[:, None] + (high - low)[:, None] * share
    gap = beta[:, None] * w**power - constant[:, None] - slope[:, None] * w
    room = 1e-12 * (beta.abs() * high**power + slope.abs() * high)[:, None]
    assert bool((gap >= -room).all())
    # It touches: a tangent at the anchor, a chord at both ends.
    at = torch.maximum(anchor, 1e-6 * high)
    touch = (beta * at**power - constant - slope * at).abs()
    ends_gap = torch.maximum(gap[:, 0].abs(), gap[:, -1].abs())
    assert bool((torch.minimum(touch, ends_gap) <= 10 * room[:, 0]).all())
