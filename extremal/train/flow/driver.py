"""The loop that brings a flow to its end: records, goals, progress and checkpoints.

`Flow` is all that the loop needs of a flow, however it is integrated.
"""

from __future__ import annotations

import math
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from extremal import _check
from extremal._progress import is_shown_unasked, status_line
from extremal.train.checkpoint import Checkpoint
from extremal.train.flow.end_condition import Goals, LossAtRest, Until, neuron_sizes
from extremal.train.flow.runge_kutta import Counts, OutOfStepsError
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
# A run of this length is a long one, and tells its progress unasked.
_LONG_RUN_SECONDS = 3.0
# What a checkpoint keeps of the work that was done.
_KEPT_COUNTS = ("steps", "rejected", "right_hand_sides")
# What ends a flow that has come where it was asked to.
_ENDS_ASKED_FOR = ("time", "loss", "margin")


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
    counts = {name: getattr(flow.counts, name) for name in _KEPT_COUNTS}
    state = {"time": time, "counts": counts, "memory": flow.memory()}
    checkpoint.write(state, tensors | recorder.state())


def follow(
    flow: Flow,
    recorder: Recorder,
    until: Until,
    max_steps: int,
    progress: bool | FlowProgress | None,
    checkpoint: Checkpoint | None,
    method: str,
) -> Trajectory:
    """Bring a flow to its end, with the recorder's network at the flow's state there."""
    flow.counts.most_attempts = max_steps
    if not recorder.times:
        _record_at(flow, recorder, flow.time)
        if not math.isfinite(recorder.losses[-1]):
            advice = "the loss is not finite at the start; make the weights or the data smaller"
            raise recorder.diverged(flow.time, advice, method=method, ended_by="divergence")
    run = FlowRun(flow, recorder, until)
    try:
        with _teller(progress, until) as tell:
            _drive(run, tell, checkpoint)
    except OutOfStepsError:
        if checkpoint is not None:
            _write_state(checkpoint, flow, recorder, run.reached)
        flow.write(recorder.net, run.reached)
        counts = {"steps": flow.counts.steps, "rejected": flow.counts.rejected}
        told = {"method": method, "ended_by": "max_steps", **counts}
        message = (
            f"{max_steps} steps were not enough to come to {until.sentence}: "
            f"the network is at flow time {run.reached:.6g} and has loss "
            f"{run.loss(run.reached):.6g}; raise max_steps or tolerance, or ask for less"
        )
        raise recorder.unfinished(run.reached, message, **told) from None
    except ArithmeticError as error:
        flow.write(recorder.net, flow.time)
        told = {"method": method, "ended_by": "divergence"}
        raise recorder.diverged(flow.time, str(error), **told) from error
    except KeyboardInterrupt:
        if checkpoint is not None:
            _write_state(checkpoint, flow, recorder, run.reached)
        flow.write(recorder.net, run.reached)
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return recorder.finish(
        converged=run.ended_by in _ENDS_ASKED_FOR,
        ended_by=run.ended_by,
        method=method,
        reached=run.reached,
        steps=flow.counts.steps,
        rejected=flow.counts.rejected,
        right_hand_sides=round(flow.counts.right_hand_sides),
        **flow.report(),
    )


def _drive(run: FlowRun, tell: _Teller | None, checkpoint: Checkpoint | None) -> None:
    """Take steps to the end, and tell progress and write checkpoints on the way."""
    flow, recorder = run.flow, run.recorder
    while not run.ended_by:
        flow.counts.require_more()
        run.step()
        if tell is not None:
            tell.if_due(run)
        if checkpoint is not None and checkpoint.is_due:
            _write_state(checkpoint, flow, recorder, run.reached)
    run.record_end()


class FlowRun:
    """A flow on its way, and what has ended it, "" until then (`Until`)."""

    def __init__(self, flow: Flow, recorder: Recorder, until: Until) -> None:
        self.flow, self.recorder, self.until = flow, recorder, until
        self.goals = Goals(flow, recorder, until)
        self.end = math.inf
        self.ended_by = ""
        self.rest = LossAtRest(flow.time, flow.counts.steps)
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
            self.end = self.until.time
            self.ended_by = "goal missed" if self.until.goals else "time"
        elif self.until.time == math.inf and (self.flow.is_at_rest or self._is_stationary()):
            self.end, self.ended_by = self.flow.time, "stationary"

    def _is_stationary(self) -> bool:
        time = self.flow.time
        return self.rest.holds(time, self.flow.counts.steps, self.loss(time), self._sizes)

    def _sizes(self) -> Tensor:
        self.flow.write(self.recorder.net, self.flow.time)
        return neuron_sizes(self.recorder.net)


def _record_at(flow: Flow, recorder: Recorder, time: float) -> None:
    flow.write(recorder.net, time)
    loss = recorder.note(time, flow.outputs(time))
    if not math.isfinite(loss) and time > 0:
        raise ArithmeticError("the loss is not finite")


def check_progress(progress: object) -> None:
    """Require True, False, None or a function of flow time, loss and phase."""
    rule = "be True, False, None or a function of flow time, loss and phase"
    known = progress is None or isinstance(progress, bool) or callable(progress)
    _check.require(known, "progress", rule, progress)


class _Teller:
    """Tells a flow's progress from time to time, for the first time after `wait` seconds."""

    def __init__(self, tell: FlowProgress, wait: float) -> None:
        self.tell, self.due = tell, clock.monotonic() + wait

    def if_due(self, run: FlowRun) -> None:
        """Tell the progress, unless the last time was a moment ago."""
        if clock.monotonic() > self.due:
            self.due = clock.monotonic() + _PROGRESS_SECONDS
            self.tell(run.reached, run.loss(run.reached), run.flow.phase)


@contextmanager
def _teller(progress: bool | FlowProgress | None, until: Until) -> Iterator[_Teller | None]:
    """What tells the progress: a function, or for True a line on stderr; for False nothing does.

    For None a line is drawn where the run gets long and a terminal shows it.
    """
    if callable(progress):
        yield _Teller(progress, _PROGRESS_SECONDS)
        return
    if progress is False or (progress is None and not is_shown_unasked()):
        yield None
        return
    with status_line() as show:
        yield _Teller(
            lambda time, loss, phase: show(
                f"{phase:<10} flow time {time:<12.6g} loss {loss:<12.6g} until {until.sentence}"
            ),
            _PROGRESS_SECONDS if progress else _LONG_RUN_SECONDS,
        )
