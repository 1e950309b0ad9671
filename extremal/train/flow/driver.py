"""Drive a flow to its end: records, goals, progress, and a state to go on from.

What a flow can do, for those who drive one and need not know how it is integrated.
"""

from __future__ import annotations

import math
import sys
import time as clock
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from extremal import _check
from extremal.train.checkpoint import Checkpoint
from extremal.train.flow.end_condition import Goals, Until
from extremal.train.flow.runge_kutta import Counts
from extremal.train.recording import Recorder, Trajectory


class Flow(Protocol):
    """A flow that goes forward step by step and, where `dense`, knows its states within one."""

    counts: Counts
    phases: dict[str, float]

    @property
    def time(self) -> float: ...

    @property
    def phase(self) -> str: ...

    @property
    def dense(self) -> bool: ...

    @property
    def still(self) -> bool: ...

    def step(self, limit: float) -> None: ...

    def rewind(self) -> None: ...

    def write(self, net: Any, time: float) -> None: ...

    def outputs(self, time: float) -> Tensor: ...

    def report(self) -> dict[str, object]: ...

    def memory(self) -> dict[str, float]: ...

    def remember(self, memory: dict[str, float]) -> None: ...


__all__ = ["Flow", "Progress", "as_progress", "follow"]

Progress = Callable[[float, float, str], None]  # flow time, loss, phase
_SHOW = 0.5  # seconds between two words on progress
_FALL, _LONGER, _STEPS = 1e-6, 1e3, 200  # a loss that falls by less in that time is at rest
_FIRST = 100  # steps at the start, where small weights move long before the loss does


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
    if checkpoint is not None:
        checkpoint.resume(flow)
    if not recorder.times:
        _note(flow, recorder, flow.time)
        if not math.isfinite(recorder.losses[-1]):
            advice = "the loss is not finite at the start; make the weights or the data smaller"
            raise recorder.diverged(flow.time, advice, method=method, ended_by="divergence")
    run = _Run(flow, recorder, until)
    try:
        _drive(run, max_steps, progress, checkpoint)
    except ArithmeticError as error:
        flow.write(recorder.net, flow.time)
        why = "max_steps" if isinstance(error, _StepsError) else "divergence"
        raise recorder.diverged(flow.time, str(error), method=method, ended_by=why) from error
    except KeyboardInterrupt:
        if checkpoint is not None:
            checkpoint.write(flow, recorder, run.last)
        flow.write(recorder.net, run.last)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return recorder.finish(
        converged=run.ended_by != "stationary",
        ended_by=run.ended_by,
        method=method,
        reached=run.last,
        steps=flow.counts.steps,
        rejected=flow.counts.rejected,
        right_hand_sides=round(flow.counts.sides),
        **flow.report(),
    )


class _StepsError(ArithmeticError):
    """A flow that has not come to its end in the steps it was given."""


def _drive(
    run: _Run, max_steps: int, progress: Progress | None, checkpoint: Checkpoint | None
) -> None:
    """Take steps to the end, telling of it and keeping it on the way."""
    flow, recorder = run.flow, run.recorder
    shown = kept = clock.monotonic()
    while not run.ended_by:
        if flow.counts.steps + flow.counts.rejected >= max_steps:
            advice = f"{max_steps} steps were not enough; raise max_steps or tolerance"
            raise _StepsError(advice)
        run.step()
        now = clock.monotonic()
        if progress is not None and now - shown > _SHOW:
            shown = now
            progress(run.last, run.loss(run.last), flow.phase)
        if checkpoint is not None and now - kept > checkpoint.every:
            kept = now
            checkpoint.write(flow, recorder, run.last)
    run.note_end()


class _Run:
    """A flow on its way, and what has ended it: "time", "loss", "margin" or "stationary"."""

    def __init__(self, flow: Flow, recorder: Recorder, until: Until) -> None:
        self.flow, self.recorder, self.until = flow, recorder, until
        self.goals = Goals(flow, recorder, until)
        self.end = math.inf
        self.ended_by = ""
        self.mark = (flow.time, math.inf, flow.counts.steps)  # where the loss last fell
        self._look(flow.time)

    @property
    def last(self) -> float:
        """The time that the flow has reached, or at which it ended within the last step."""
        return min(self.flow.time, self.end)

    def loss(self, time: float) -> float:
        """The loss at a time within the last step."""
        return float(self.recorder.loss.value(self.flow.outputs(time), self.recorder.data.y))

    def step(self) -> None:
        """Take a step, see whether it is the last one, and record what it passed."""
        flow, recorder, end = self.flow, self.recorder, self.until.time
        before, known = flow.time, len(flow.phases)
        flow.step(end if flow.dense else min(end, recorder.next_time()))
        self._look(before)
        while recorder.next_time() <= self.last:
            _note(flow, recorder, recorder.next_time())
        if recorder.record.phases and len(flow.phases) > known and recorder.times[-1] < self.last:
            _note(flow, recorder, self.last)

    def note_end(self) -> None:
        """Record the end, unless it was, and leave the network there."""
        self.flow.write(self.recorder.net, self.last)
        if self.recorder.times[-1] < self.last:
            _note(self.flow, self.recorder, self.last)

    def _look(self, before: float) -> None:
        """See whether a step from `before` has ended the flow, and when."""
        goal = self.goals.met(self.flow.time)
        if goal:
            self.end, self.ended_by = self.goals.first(before, goal) or (math.inf, "")
        elif self.flow.time >= self.until.time:
            self.end, self.ended_by = self.until.time, "time"
        elif self.until.time == math.inf and (self.flow.still or self._rests()):
            self.end, self.ended_by = self.flow.time, "stationary"

    def _rests(self) -> bool:
        """Whether the loss has not fallen while the flow time grew a thousandfold."""
        time, value, steps = self.flow.time, self.loss(self.flow.time), self.flow.counts.steps
        since, lowest, taken = self.mark
        if value < (1.0 - _FALL) * lowest or steps < _FIRST or since == 0.0:
            self.mark = (time, min(value, lowest), steps)
            return False
        return time > _LONGER * since and steps - taken >= _STEPS


def _note(flow: Flow, recorder: Recorder, time: float) -> None:
    flow.write(recorder.net, time)
    loss = recorder.note(time, flow.outputs(time))
    if not math.isfinite(loss) and time > 0:
        raise ArithmeticError("the loss is not finite")


def as_progress(progress: object) -> Progress | None:
    """What to tell progress to: `line` for True, nothing for False, a function itself."""
    rule = "be True, False or a function of flow time, loss and phase"
    _check.require(isinstance(progress, bool) or callable(progress), "progress", rule, progress)
    if isinstance(progress, bool):
        return line if progress else None
    return progress  # type: ignore[return-value]


def line(time: float, loss: float, phase: str) -> None:
    """One line on the standard error that is written over: flow time, loss and phase."""
    sys.stderr.write(f"\r{phase:<10} flow time {time:<12.6g} loss {loss:<12.6g}")
    sys.stderr.flush()
