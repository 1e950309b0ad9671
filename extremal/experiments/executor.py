"""What every way to compute trials has in common: this process, worker processes, a cluster."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from extremal.experiments.store import Store
from extremal.experiments.trial import Trial

Progress = Callable[[int, int, int, int], None]
"""Told how many trials are done, failed, in all and running."""
_GIB = 2.0**30


class Tally:
    """The counts of a run, told to whoever wants to show them."""

    def __init__(self, total: int, skipped: int, progress: Progress | None) -> None:
        self.total, self.skipped, self.progress = total, skipped, progress
        self.done = self.failed = 0
        self.tell(running=0)

    def add(self, done: bool) -> None:
        """Count a trial that was finished by this run, or that failed."""
        self.done += done
        self.failed += not done

    def tell(self, running: int) -> None:
        """Say how things stand."""
        if self.progress is not None:
            self.progress(self.skipped + self.done, self.failed, self.total, running)


class Executor(ABC):
    """Where and how trials are computed."""

    @abstractmethod
    def run(self, pending: list[Trial], store: Store, tally: Tally) -> None:
        """Compute these trials, store each as soon as it is finished, and count it.

        What ends a run passes through: `StoreError`, `DataError`, Ctrl-C. Whatever way it ends,
        nothing of this run goes on computing.
        """


@dataclass
class Room:
    """The threads and the memory (GiB) that a machine has for trials, and who has them now."""

    threads: int
    memory: float = math.inf
    taken: dict[str, Trial] = field(default_factory=dict)

    def could_hold(self, trial: Trial) -> bool:
        """Whether the trial fits when nothing else is there."""
        return trial.threads <= self.threads and trial.memory <= self.memory

    def holds(self, trial: Trial) -> bool:
        """Whether the trial fits beside those that are there."""
        threads = sum(other.threads for other in self.taken.values())
        memory = math.fsum(other.memory for other in self.taken.values())
        return threads + trial.threads <= self.threads and memory + trial.memory <= self.memory

    def take(self, trial: Trial) -> None:
        """Let it in."""
        self.taken[trial.key] = trial

    def leave(self, trial: Trial) -> None:
        """Let it out."""
        self.taken.pop(trial.key, None)


def machine_memory() -> float:
    """The memory of this machine in GiB; infinite where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    except (AttributeError, OSError, ValueError):
        return math.inf
