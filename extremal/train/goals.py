"""Goals of a flow, a loss or a margin to reach, and when within a step one was reached."""

from __future__ import annotations

from dataclasses import dataclass

from extremal.train.flow.end_condition import Until
from extremal.train.protocol import Flow
from extremal.train.recording import Recorder

_HALVINGS, _EXACT = 40, 1e-9  # of a step that is known within, and of the time
_RETRACES, _NEAR = 30, 1e-6  # of a step that has to be taken anew


@dataclass(frozen=True, eq=False)
class Goals:
    """What a flow is to reach, on the recorder's data and with its loss."""

    flow: Flow
    recorder: Recorder
    until: Until

    def met(self, time: float) -> str:
        """Which goal is met at a time within the last step; none is ""."""
        if not self.until.goals:
            return ""
        outputs = self.flow.outputs(time)
        return self.until.reached(outputs, self.recorder.data.y, self.recorder.loss)

    def first(self, before: float, goal: str) -> tuple[float, str] | None:
        """When the last step, from `before` to where `goal` is met, first met one, and which.

        None where the flow had to be taken back and has become dense on the way again: it is left
        where it is, and its next steps find the place.
        """
        return self._halve(before, goal) if self.flow.dense else self._retrace(before, goal)

    def _halve(self, low: float, goal: str) -> tuple[float, str]:
        """By halving a step whose states are all known."""
        high = self.flow.time
        for _ in range(_HALVINGS):
            if high - low <= _EXACT * high:
                break
            middle = 0.5 * (low + high)
            found = self.met(middle)
            low, high, goal = (low, middle, found) if found else (middle, high, goal)
        return high, goal

    def _retrace(self, low: float, goal: str) -> tuple[float, str] | None:
        """By going back and taking shorter steps."""
        flow, high, beyond = self.flow, self.flow.time, True
        for _ in range(_RETRACES):
            if high - low <= _NEAR * high:
                break
            if beyond:
                flow.rewind()
            flow.step(0.5 * (low + high))
            if flow.dense:
                return None
            found = self.met(flow.time)
            beyond = bool(found)
            low, high, goal = (low, flow.time, found) if found else (flow.time, high, goal)
        while flow.time < high:
            flow.step(high)
            if flow.dense:
                return None
        return high, goal
