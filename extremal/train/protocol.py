"""What a flow can do, for those who drive one and need not know how it is integrated."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from extremal.train.flow.runge_kutta import Counts


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
