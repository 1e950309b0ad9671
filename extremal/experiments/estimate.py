"""What a run will cost, before it is begun, from what trials like these have cost."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from extremal.experiments.store import Store
from extremal.experiments.trial import Trial


@dataclass(frozen=True)
class Estimate:
    """How many trials there are and are done, and the core-seconds that are left.

    `seconds` is None where nothing is known; `basis` says what it is known from.
    """

    trials: int
    done: int
    failed: int
    seconds: float | None
    basis: str


def estimate(trials: Sequence[Trial], store: Store, shipped: float | None = None) -> Estimate:
    """Estimate what is left of a run, one core each thread that a trial declares.

    A trial is taken to cost what others with its parameters did; else the mean of those of this run
    that are done; else `shipped`, the seconds of a trial in results that were stored before.
    """
    distinct = {trial.key: trial for trial in trials}
    found = {stored.trial.key: stored for stored in store.read_all(distinct.values())}
    done = {key: stored for key, stored in found.items() if stored.status == "done"}
    alike: defaultdict[str, list[float]] = defaultdict(list)
    for stored in done.values():
        alike[_alike(stored.trial)].append(stored.seconds)
    known = [stored.seconds for stored in done.values()]
    left = [trial for key, trial in distinct.items() if key not in done]
    fallback = _mean(known) if known else shipped
    costs = [
        (_mean(alike[_alike(trial)]) if _alike(trial) in alike else fallback, trial.threads)
        for trial in left
    ]
    seconds = None
    if all(cost is not None for cost, _ in costs):
        seconds = math.fsum(cost * threads for cost, threads in costs if cost is not None)
    if known:
        basis = f"the {len(known)} trials of it that are stored"
    else:
        basis = "nothing" if shipped is None else "the results that were stored before"
    failed = sum(stored.status == "failed" for stored in found.values())
    return Estimate(len(distinct), len(done), failed, seconds, basis)


def _alike(trial: Trial) -> str:
    """Trials that differ in nothing but the seed."""
    return json.dumps([trial.study, trial.version, dict(trial.params)], sort_keys=True)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
