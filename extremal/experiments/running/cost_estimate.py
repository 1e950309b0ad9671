"""What a run will cost, before it is begun, from what trials like these have cost."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from extremal.experiments.storage.store import Store
from extremal.experiments.trial import Trial


@dataclass(frozen=True)
class Estimate:
    """How many trials there are and are done, the core-seconds left (or None), and from what."""

    trials: int
    done: int
    failed: int
    seconds: float | None
    basis: str


def estimate(trials: Sequence[Trial], store: Store, shipped: float | None = None) -> Estimate:
    """Estimate what is left of a run, one core a trial.

    A trial is taken to cost what others with its parameters did; else the mean of those of this run
    that are done; else `shipped`, the seconds of a trial in results that were stored before.
    """
    distinct = {trial.key: trial for trial in trials}
    found = store.read_all(distinct.values())
    done = {stored.trial.key: stored.seconds for stored in found if stored.status == "done"}
    alike: defaultdict[str, list[float]] = defaultdict(list)
    for key, seconds in done.items():
        alike[_without_seed(distinct[key])].append(seconds)
    left = [trial for key, trial in distinct.items() if key not in done]
    fallback = [*done.values()] or ([] if shipped is None else [shipped])
    known = [alike.get(_without_seed(trial), fallback) for trial in left]
    cost = math.fsum(math.fsum(k) / len(k) for k in known) if all(known) else None
    basis = "nothing" if shipped is None else "the results that were stored before"
    if done:
        basis = f"the {len(done)} trials of it that are stored"
    return Estimate(len(distinct), len(done), len(found) - len(done), cost, basis)


def _without_seed(trial: Trial) -> str:
    return json.dumps([trial.study, trial.version, dict(trial.params)], sort_keys=True)
