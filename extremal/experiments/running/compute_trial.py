"""What every engine does with one trial, in whichever process."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Generator

from extremal.data import DataError
from extremal.experiments.registry import find_study
from extremal.experiments.storage.trial_file import TrialFile, encode, encode_failure
from extremal.experiments.trial import Study, Trial

Ended = Generator[tuple[Trial, TrialFile | BaseException]]
"""What an engine is: a generator of trials as they end, with what came of each.

An exception is a `WorkerDiedError`, the trial's own failure, or it ends the run.
"""
_TRACEBACK_LINES = 6  # the last ones of a failure, which are kept
# The number of torch's threads is the process's: a trial that shared it would not be repeatable.
_one_at_a_time = threading.Lock()


class WorkerDiedError(Exception):
    """The process that computed a trial died, and once more when the trial ran alone."""


def compute_trial(trial: Trial, threads: int, study: Study | None = None) -> TrialFile:
    """What came of a trial, a failure too; a `DataError` is raised, as a later run may find data.

    One at a time in a process. `study` is the trial's function where it need not be looked up.
    """
    with _one_at_a_time:
        start = time.perf_counter()
        try:
            outcome = trial.compute(study or find_study(trial.study), threads)
            return encode(trial, outcome, time.perf_counter() - start)
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            return encode_failure(trial, _reason(error), time.perf_counter() - start)


def _reason(error: BaseException) -> str:
    lines = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    return "\n".join([f"{type(error).__name__}: {error}", *lines[-_TRACEBACK_LINES:]])
