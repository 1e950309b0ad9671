"""One call that does all of an experiment or a sweep: run, store, summarise, draw."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from extremal import report
from extremal._check import require
from extremal.data import DataError
from extremal.experiments.experiment import Experiment, Scale
from extremal.experiments.panel_data import animation_data
from extremal.experiments.registry import find_record, require_own_name, require_study
from extremal.experiments.running.dask_cluster import ClusterError
from extremal.experiments.running.run_trials import Progress, check_run_options, run
from extremal.experiments.saved_results import add_start_note, remove_start_note
from extremal.experiments.storage.store import Store
from extremal.experiments.summary import summarise, write_summary
from extremal.experiments.sweep_file import sweep_rows, with_default_panels


def reproduce(
    name_or_record: str | os.PathLike[str] | Experiment,
    scale: Scale = "quick",
    out: str | Path = "runs",
    *,
    jobs: int = 1,
    cluster: str | None = None,
    seeds: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run an experiment, or what is left of it, write its report, and return its summary.

    `summary["rows"]` holds ours against published, `summary["trials"]` how many are done, and
    ``<out>/<name>/<scale>/`` gets summary.json, the figure and the page. It can be interrupted at
    any moment: the same call goes on. `extremal run` is this with a progress bar.

    - `name_or_record`: "min-vidal-2024/figure-2", a file with a record, "my_record.py", a module's,
      "my_package.records:record", or a record of one's own.
    - `scale`: "smoke" (seconds), "quick" (minutes) or "paper" (the paper's own sizes).
    - `out`: the folder that holds the runs.
    - `seeds`: repetitions, in place of the scale's own number.
    - `jobs`, `cluster`, `threads`, `progress`, `notice`: as for `run`.
    """
    named = isinstance(name_or_record, str | os.PathLike)
    record: Any = find_record(name_or_record) if named else name_or_record  # type: ignore[arg-type]
    require(isinstance(record, Experiment), "name_or_record", "be a name or a record", record)
    require_own_name(record)
    check_run_options(jobs, cluster, threads)
    trials = record.trials(scale, seeds)
    require_study(record.study)
    store, folder = Store(out), Path(out) / record.name / scale
    earlier = add_start_note(folder, seeds)
    try:
        run(
            trials,
            store,
            jobs=jobs,
            cluster=cluster,
            threads=threads,
            progress=progress,
            notice=notice,
        )
    except (DataError, ClusterError):
        if len(store.missing(trials)) == len(trials):
            remove_start_note(folder, earlier, Path(out))
        raise
    summary = summarise(record, scale, store, seeds)
    write_summary(folder / "summary.json", summary)
    report.write_report(summary, folder, animation_data(record, scale, store, seeds))
    return summary


def run_sweep(
    record: Experiment, out: str | Path = "runs", **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a sweep (`read_sweep`), or what is left of it: its summary, and a row a trial.

    ``<out>/<name>/`` gets the table of trials, summary.json and, where there is something to draw,
    a figure and a page. `options` are those of `run`.
    """
    store, folder = Store(out), Path(out) / record.name
    run(record.trials("paper"), store, **options)
    rows = sweep_rows(record, store)
    report.save_rows(rows, folder)
    drawn = with_default_panels(record, store)
    summary = summarise(drawn, "paper", store)
    write_summary(folder / "summary.json", summary)
    if drawn.panels:
        report.write_report(summary, folder)
    return summary, rows
