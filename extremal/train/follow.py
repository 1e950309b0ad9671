"""Drive a flow to its end: records, goals, progress, and a state to go on from."""

from __future__ import annotations

import math
import sys
import time as clock
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from extremal.train.checkpoint import Checkpoint
from extremal.train.record import Recorder
from extremal.train.runge_kutta import Counts
from extremal.train.trajectory import Trajectory
from extremal.train.until import Until

Progress = Callable[[float, float, str], None]  # flow time, loss, phase
_SHOW = 0.5  # seconds between two words on progress
_HALVINGS = 40


class Flow(Protocol):
    """A flow that goes forward step by step and knows its states within the last step."""

    counts: Counts

    @property
    def time(self) -> float: ...

    @property
    def phase(self) -> str: ...

    @property
    def dense(self) -> bool: ...

    def step(self, limit: float) -> None: ...

    def write(self, net: Any, time: float) -> None: ...

    def outputs(self, time: float) -> Tensor: ...

    def report(self) -> dict[str, object]: ...


def follow(
    flow: Flow,
    recorder: Recorder,
    until: Until,
    max_steps: int,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
    method: str,
) -> Trajectory:
    """Bring a flow to its end, with the recorder's network at the flow's state there."""
    if not recorder.times:
        _note(flow, recorder, flow.time)
        if not math.isfinite(recorder.losses[-1]):
            advice = "the loss is not finite at the start; make the weights or the data smaller"
            raise recorder.diverged(flow.time, advice, method=method)
    shown = kept = clock.monotonic()
    arrived = False
    try:
        while flow.time < until.time and not arrived:
            if flow.counts.steps + flow.counts.rejected >= max_steps:
                advice = f"{max_steps} steps were not enough; raise max_steps or tolerance"
                raise ArithmeticError(advice)
            before, phase = flow.time, flow.phase
            limit = until.time if flow.dense else min(until.time, recorder.next_time())
            flow.step(limit)
            end = _goal(flow, recorder, until, before)
            arrived = end is not None
            last = flow.time if end is None else end
            while recorder.next_time() <= last:
                _note(flow, recorder, recorder.next_time())
            if recorder.record.phases and flow.phase != phase and recorder.times[-1] < last:
                _note(flow, recorder, last)
            now = clock.monotonic()
            if progress is not None and now - shown > _SHOW:
                shown = now
                value = float(recorder.loss.value(flow.outputs(last), recorder.data.y))
                progress(last, value, flow.phase)
            if checkpoint is not None and now - kept > checkpoint.every:
                kept = now
                checkpoint.write(flow, recorder)
        last = min(flow.time, until.time) if not arrived else last
        _note(flow, recorder, last)
    except ArithmeticError as error:
        flow.write(recorder.net, flow.time)
        raise recorder.diverged(flow.time, str(error), method=method) from error
    except KeyboardInterrupt:
        if checkpoint is not None:
            checkpoint.write(flow, recorder)
        flow.write(recorder.net, flow.time)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return recorder.finish(
        converged=arrived or not until.goals,
        method=method,
        reached=last,
        steps=flow.counts.steps,
        rejected=flow.counts.rejected,
        right_hand_sides=round(flow.counts.sides),
        **flow.report(),
    )


def _note(flow: Flow, recorder: Recorder, time: float) -> None:
    flow.write(recorder.net, time)
    loss = recorder.note(time, flow.outputs(time))
    if not math.isfinite(loss) and time > 0:
        raise ArithmeticError("the loss is not finite")


def _goal(flow: Flow, recorder: Recorder, until: Until, before: float) -> float | None:
    """The time within the last step at which the loss or the margin is reached, if it is."""
    if not until.goals:
        return None

    def reached(time: float) -> bool:
        return until.reached(flow.outputs(time), recorder.data.y, recorder.loss)

    if not reached(flow.time):
        return None
    low, high = before, flow.time
    for _ in range(_HALVINGS if flow.dense else 0):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reached(middle) else (middle, high)
        if high - low <= 1e-9 * high:
            break
    return high


def line(time: float, loss: float, phase: str) -> None:
    """One line on the standard error that is written over: flow time, loss and phase."""
    sys.stderr.write(f"\r{phase:<10} flow time {time:<12.6g} loss {loss:<12.6g}")
    sys.stderr.flush()
