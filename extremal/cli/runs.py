"""What `run` and `sweep` share: where trials are computed, what they will cost, what is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from extremal.cli.options import say
from extremal.experiments import Estimate, Experiment
from extremal.experiments.running.run_trials import check_run_options

OutOption = Annotated[Path, typer.Option("--out", "-o", help="The folder that holds the runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Trials at a time; one for each core unless said."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(help="A Dask scheduler, tcp://host:8786: trials run on its workers."),
]
ThreadsOption = Annotated[
    int, typer.Option(help="Torch threads of each trial; more may change last digits.")
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say how many trials are left and what they cost.")
]
_FAILURES = 5  # how many are printed
_HOUR = 3600.0


def check_asked(jobs: int | None, cluster: str | None, threads: int) -> None:
    """ValueError where a run would refuse its options, before anything is begun."""
    if cluster is not None and jobs is not None:
        raise ValueError(
            f"--jobs must be left out with --cluster, whose workers are counted there, got {jobs}"
        )
    check_run_options(1 if jobs is None else jobs, cluster, threads)


def tell_estimate(
    name: str, found: Estimate, jobs: int | None, cluster: str | None, as_json: bool
) -> None:
    """Print what a run would do, instead of doing it."""
    hours = None if found.seconds is None else found.seconds / _HOUR
    if as_json:
        counts = {"total": found.trials, "done": found.done, "failed": found.failed}
        print(
            json.dumps(
                {"experiment": name, "trials": counts, "core_hours": hours, "basis": found.basis},
                indent=2,
            )
        )
        return
    left = found.trials - found.done
    again = f", of which {found.failed} failed before and are tried again" if found.failed else ""
    say(f"{name}: {found.trials} trials, {found.done} done, {left} to do{again}.")
    if hours is None or left == 0:
        say("Nothing is known of what they cost." if left else "Nothing is left to do.")
        return
    say(f"About {hours:.3g} core-hours, from {found.basis}.")
    if cluster is None:
        count = cores() if jobs is None else jobs
        say(f"With {count} at a time about {hours / min(count, left):.3g} hours.")


def tell_failures(experiment: Experiment | None, summary: dict[str, Any]) -> None:
    """Say how many trials are done, and why the first of the others failed.

    Without the experiment all of a trial's parameters are named, not only those that vary.
    """
    counts = summary["trials"]
    say(f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed.")
    for failure in summary["failures"][:_FAILURES]:
        params = failure["params"]
        varied = params if experiment is None else experiment.varied(params)
        trial = ", ".join(f"{name} = {value}" for name, value in varied.items())
        reason = failure["reason"].splitlines()[0]
        say(f"failed: {trial}, seed {failure['seed']}: {reason}")
    if len(summary["failures"]) > _FAILURES:
        say(f"... and {len(summary['failures']) - _FAILURES} more; see report.html")


def cores() -> int:
    """How many trials run at a time unless somebody says."""
    return os.cpu_count() or 1


def note(line: str) -> None:
    """Tell people something that is no result."""
    print(line, file=sys.stderr, flush=True)
