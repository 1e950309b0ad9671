"""The Runge-Kutta pairs: orders of convergence, dense output, and control of the error."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from extremal.train.flow.runge_kutta import (
    BOGACKI_SHAMPINE_32,
    DORMAND_PRINCE_54,
    Counts,
    RungeKuttaStepper,
    State,
)

PAIRS = pytest.mark.parametrize(
    "pair", [BOGACKI_SHAMPINE_32, DORMAND_PRINCE_54], ids=["3(2)", "5(4)"]
)


def side(state: State) -> State:
    """y' = y cos(t), with t as a part of the state: y = exp(sin(t))."""
    return state[0] * torch.cos(state[1]), torch.ones_like(state[1])


def stepper(pair, size, tolerance=1e9) -> RungeKuttaStepper:
    state = (torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    return RungeKuttaStepper(side, state, 0.0, tolerance, Counts(), size, tableau=pair)


def errors(pair, size) -> tuple[float, float]:
    """The largest errors at the ends of steps and within them, at a fixed size."""
    run = stepper(pair, size)
    ends, within = [0.0], [0.0]
    for index in range(1, round(2.0 / size) + 1):
        run.size = size
        run.advance(size * index)
        ends.append(abs(float(run.state[0]) - math.exp(math.sin(run.time))))
        for share in (0.15, 0.4, 0.7, 0.9):
            time = run.time - size * (1.0 - share)
            within.append(abs(float(run.state_at(time)[0]) - math.exp(math.sin(time))))
    return max(ends), max(within)


@PAIRS
def test_steps_and_dense_output_have_their_order(pair):
    found = [errors(pair, size) for size in (0.2, 0.1, 0.05)]
    for kind, least in ((0, pair.order), (1, min(pair.order, 4))):
        orders = [math.log2(a[kind] / b[kind]) for a, b in itertools.pairwise(found)]
        assert min(orders) > least - 0.3
    orders = [math.log2(a[0] / b[0]) for a, b in itertools.pairwise(found)]
    assert max(orders) < pair.order + 0.7


def test_the_interpolant_of_5_4_is_better_than_a_cubic():
    # A cubic through both ends errs by h^4, the pair's own interpolant by h^5.
    coarse, fine = (errors(DORMAND_PRINCE_54, size)[1] for size in (0.2, 0.05))
    assert math.log2(coarse / fine) / 2.0 > 4.6


@PAIRS
def test_dense_output_meets_the_ends_of_the_step_with_their_slopes(pair):
    run = stepper(pair, 0.3)
    start = run.state
    run.advance(10.0)
    assert run.state_at(0.0)[0] == pytest.approx(float(start[0]), abs=1e-15)
    assert run.state_at(0.3)[0] == pytest.approx(float(run.state[0]), abs=1e-15)
    for time, at in ((0.0, start), (0.3, run.state)):
        inside = min(max(time, 1e-6), 0.3 - 1e-6)
        slope = (run.state_at(inside + 1e-6)[0] - run.state_at(inside - 1e-6)[0]) / 2e-6
        assert float(slope) == pytest.approx(float(side(at)[0]), abs=1e-4)


@PAIRS
def test_the_error_of_a_step_is_estimated(pair):
    # Against a step so short that it is exact: the estimate is of the lower of both orders.
    for size in (0.4, 0.2):
        run, seen = stepper(pair, size), []
        run.error = lambda estimate, before, after, seen=seen: seen.append(estimate[0]) or 0.0
        run.advance(size)
        error = abs(float(run.state[0]) - math.exp(math.sin(size)))
        assert abs(float(seen[0])) > error
        assert abs(float(seen[0])) < 10.0 * size ** (pair.order - 1)


@PAIRS
def test_error_falls_with_the_tolerance_and_steps_are_counted(pair):
    found = []
    for tolerance in (1e-4, 1e-7):
        run = stepper(pair, 1.0, tolerance)
        while run.time < 2.0:
            run.advance(2.0)
        assert run.time == 2.0
        attempts = run.counts.steps + run.counts.rejected
        assert run.counts.right_hand_sides == 1 + attempts * len(pair.stages)
        found.append(abs(float(run.state[0]) - math.exp(math.sin(2.0))))
        assert found[-1] < 30.0 * tolerance
    assert found[1] < 0.05 * found[0]


def test_a_right_hand_side_that_is_not_finite_is_told():
    def bad(state: State) -> State:
        return (state[0] / 0.0,)

    run = RungeKuttaStepper(bad, (torch.ones(1, dtype=torch.float64),), 1.0, 1e-3, Counts(), 1.0)
    with pytest.raises(ArithmeticError, match="step size vanished at time 1"):
        run.advance(2.0)
