"""The loop that brings a flow to its end: records, goals, progress and checkpoints.

`Flow` is all that the loop needs of a flow, however it is integrated.
"""

from __future__ import annotations

import math
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from extremal import _check
from extremal._progress import status_line
from extremal.train.checkpoint import Checkpoint
from extremal.train.flow.end_condition import Goals, Until
from extremal.train.flow.runge_kutta import Counts
from extremal.train.recording import Recorder, Trajectory

# The data are being fitted once the loss is below this share of the first loss.
FITTING_LOSS_SHARE = 0.6
# Alignment has ended once the loss is below this share of the first loss.
_ALIGNED_LOSS_SHARE = 0.999


class Flow(ABC):
    """A flow that goes forward step by step and knows its states within the last step."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.phases: dict[str, float] = {}  # when what began or ended
        self.first_loss = math.nan  # of the training data, where the flow first began

    @property
    @abstractmethod
    def time(self) -> float:
        """The flow time reached."""

    @property
    def phase(self) -> str:
        """The part of training that the flow is in: "alignment", "waking" or "fitting"."""
        if "fitting starts" in self.phases:
            return "fitting"
        return "waking" if "alignment ends" in self.phases else "alignment"

    @property
    def dense(self) -> bool:
        """Whether states within the last step cost nothing, so that steps need not end there."""
        return True

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""

    @abstractmethod
    def step(self, limit: float) -> None:
        """Go forward in time, not beyond `limit`."""

    @abstractmethod
    def write(self, net: Any, time: float) -> None:
        """Put the weights as they were at a time within the last step into a network."""

    @abstractmethod
    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,) or (n, C), at a time within the last step."""

    @abstractmethod
    def report(self) -> dict[str, object]:
        """The run in numbers."""

    def mark_phases(self, loss: float) -> None:
        """Note phases by the loss: alignment ends once it has moved.

        A loss of one's own that is not above 0 at the start has none.
        """
        if self.first_loss <= 0.0:
            return
        if loss < _ALIGNED_LOSS_SHARE * self.first_loss:
            self.phases.setdefault("alignment ends", self.time)
        if loss < FITTING_LOSS_SHARE * self.first_loss:
            self.phases.setdefault("fitting starts", self.time)

    def memory(self) -> dict[str, float]:
        """What a flow that goes on from here needs to know of the way until here."""
        phases = {f"phase:{name}": time for name, time in self.phases.items()}
        return {"first loss": self.first_loss, **phases}

    def remember(self, memory: dict[str, float]) -> None:
        """Continue with what `memory` returned."""
        self.first_loss = memory.get("first loss", self.first_loss)
        for name, value in memory.items():
            if name.startswith("phase:"):
                self.phases[name.removeprefix("phase:")] = value


FlowProgress = Callable[[float, float, str], None]  # of flow time, loss and phase
# Progress is told at most so often.
_PROGRESS_SECONDS = 0.5
# A loss that falls by less than this share, for the time and steps below, has come to rest.
_STATIONARY_LOSS_FALL = 1e-6
# The flow time must grow by this factor before a loss that does not fall is taken to rest.
_STATIONARY_TIME_FACTOR = 1e3
# The flow must take so many steps before a loss that does not fall is taken to rest.
_STATIONARY_STEPS = 200
# The first steps do not count as rest: small weights move long before the loss does.
_LEAST_STEPS_BEFORE_REST = 100


def read_state(checkpoint: Checkpoint, recorder: Recorder, until: float) -> dict[str, Any]:
    """Put the recorder and its network where a file has left them; the rest of the state.

    The end of the flow is not part of the problem: it may be put off when the flow goes on, but not
    to before the time that was reached. Nor are the times to record at.
    """
    found = checkpoint.read()
    if found is None:
        return {"time": 0.0}
    state, tensors = found
    rule = f"not lie before {state['time']!r}, which the checkpoint has reached"
    _check.require(until >= state["time"], "until", rule, until)
    with torch.no_grad():
        for name, part in recorder.net.named_parameters():
            part.copy_(tensors[f"net/{name}"])
    recorder.restore(tensors)
    return state


def resume(flow: Flow, state: dict[str, Any]) -> None:
    """Let a flow count and remember what went before it, as `read_state` found it."""
    for name, count in state.get("counts", {}).items():
        setattr(flow.counts, name, getattr(flow.counts, name) + count)
    if "memory" in state:
        flow.remember(state["memory"])


def _write_state(checkpoint: Checkpoint, flow: Flow, recorder: Recorder, reached: float) -> None:
    """Keep the state at the time reached, or at an earlier one that is still to be recorded."""
    time = min(reached, recorder.next_time())
    flow.write(recorder.net, time)
    tensors = {f"net/{name}": part for name, part in recorder.net.named_parameters()}
    state = {"time": time, "counts": asdict(flow.counts), "memory": flow.memory()}
    checkpoint.write(state, tensors | recorder.state())


def follow(
    flow: Flow,
    recorder: Recorder,
    until: Until,
    max_steps: int,
    progress: bool | FlowProgress,
    checkpoint: Checkpoint | None,
    method: str,
) -> Trajectory:
    """Bring a flow to its end, with the recorder's network at the flow's state there."""
    if not recorder.times:
        _record_at(flow, recorder, flow.time)
        if not math.isfinite(recorder.losses[-1]):
            advice = "the loss is not finite at the start; make the weights or the data smaller"
            raise recorder.diverged(flow.time, advice, method=method, ended_by="divergence")
    run = FlowRun(flow, recorder, until)
    try:
        with _told(progress) as tell:
            _drive(run, max_steps, tell, checkpoint)
    except ArithmeticError as error:
        flow.write(recorder.net, flow.time)
        why = "max_steps" if isinstance(error, _OutOfStepsError) else "divergence"
        raise recorder.diverged(flow.time, str(error), method=method, ended_by=why) from error
    except KeyboardInterrupt:
        if checkpoint is not None:
            _write_state(checkpoint, flow, recorder, run.reached)
        flow.write(recorder.net, run.reached)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return recorder.finish(
        converged=run.ended_by != "stationary",
        ended_by=run.ended_by,
        method=method,
        reached=run.reached,
        steps=flow.counts.steps,
        rejected=flow.counts.rejected,
        right_hand_sides=round(flow.counts.right_hand_sides),
        **flow.report(),
    )


class _OutOfStepsError(ArithmeticError):
    """A flow that has not come to its end in the steps it was given."""


def _drive(
    run: FlowRun, max_steps: int, tell: FlowProgress | None, checkpoint: Checkpoint | None
) -> None:
    """Take steps to the end, and tell progress and write checkpoints on the way."""
    flow, recorder = run.flow, run.recorder
    last_shown = clock.monotonic()
    while not run.ended_by:
        if flow.counts.steps + flow.counts.rejected >= max_steps:
            advice = f"{max_steps} steps were not enough; raise max_steps or tolerance"
            raise _OutOfStepsError(advice)
        run.step()
        if tell is not None and clock.monotonic() - last_shown > _PROGRESS_SECONDS:
            last_shown = clock.monotonic()
            tell(run.reached, run.loss(run.reached), flow.phase)
        if checkpoint is not None and checkpoint.is_due:
            _write_state(checkpoint, flow, recorder, run.reached)
    run.record_end()


class FlowRun:
    """A flow on its way, and what has ended it: "time", "loss", "margin" or "stationary"."""

    def __init__(self, flow: Flow, recorder: Recorder, until: Until) -> None:
        self.flow, self.recorder, self.until = flow, recorder, until
        self.goals = Goals(flow, recorder, until)
        self.end = math.inf
        self.ended_by = ""
        # Time, loss and number of steps when the loss last fell.
        self.last_fall = (flow.time, math.inf, flow.counts.steps)
        self._check_end(flow.time)

    @property
    def reached(self) -> float:
        """The time that the flow has reached, or at which it ended within the last step."""
        return min(self.flow.time, self.end)

    def loss(self, time: float) -> float:
        """The loss at a time within the last step."""
        return float(self.recorder.loss.value(self.flow.outputs(time), self.recorder.data.y))

    def step(self) -> None:
        """Take a step, check whether it is the last one, and record the times that it passed."""
        flow, recorder, end = self.flow, self.recorder, self.until.time
        before, phases = flow.time, len(flow.phases)
        flow.step(end if flow.dense else min(end, recorder.next_time()))
        self._check_end(before)
        while recorder.next_time() <= self.reached:
            _record_at(flow, recorder, recorder.next_time())
        new_phase = recorder.record.phases and len(flow.phases) > phases
        if new_phase and recorder.times[-1] < self.reached:
            _record_at(flow, recorder, self.reached)

    def record_end(self) -> None:
        """Record the end, unless it is recorded already, and leave the network there."""
        self.flow.write(self.recorder.net, self.reached)
        if self.recorder.times[-1] < self.reached:
            _record_at(self.flow, self.recorder, self.reached)

    def _check_end(self, before: float) -> None:
        """Check whether a step from `before` has ended the flow, and when."""
        goal = self.goals.met_at(self.flow.time)
        if goal:
            self.end, self.ended_by = self.goals.first_met(before, goal)
        elif self.flow.time >= self.until.time:
            self.end, self.ended_by = self.until.time, "time"
        elif self.until.time == math.inf and (self.flow.is_at_rest or self._is_stationary()):
            self.end, self.ended_by = self.flow.time, "stationary"

    def _is_stationary(self) -> bool:
        """Whether the loss has not fallen while the flow time grew a thousandfold."""
        time, value, steps = self.flow.time, self.loss(self.flow.time), self.flow.counts.steps
        since, lowest, taken = self.last_fall
        falls = value < (1.0 - _STATIONARY_LOSS_FALL) * lowest
        if falls or steps < _LEAST_STEPS_BEFORE_REST or since == 0.0:
            self.last_fall = (time, min(value, lowest), steps)
            return False
        return time > _STATIONARY_TIME_FACTOR * since and steps - taken >= _STATIONARY_STEPS


def _record_at(flow: Flow, recorder: Recorder, time: float) -> None:
    flow.write(recorder.net, time)
    loss = recorder.note(time, flow.outputs(time))
    if not math.isfinite(loss) and time > 0:
        raise ArithmeticError("the loss is not finite")


def check_progress(progress: object) -> None:
    """Require True, False or a function of flow time, loss and phase."""
    rule = "be True, False or a function of flow time, loss and phase"
    _check.require(isinstance(progress, bool) or callable(progress), "progress", rule, progress)


@contextmanager
def _told(progress: bool | FlowProgress) -> Iterator[FlowProgress | None]:
    """The function to tell progress to: None for False; for True it draws a line on stderr."""
    if progress is not True:
        yield None if progress is False else progress
        return
    with status_line() as show:
        yield lambda time, loss, phase: show(
            f"{phase:<10} flow time {time:<12.6g} loss {loss:<12.6g}"
        )
