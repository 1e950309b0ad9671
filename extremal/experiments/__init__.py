"""Experiments: records of what a paper shows, run trial by trial, stored and summarised."""

from extremal._files import FileError
from extremal.experiments.citations import citation
from extremal.experiments.experiment import (
    PROVENANCE,
    SCALES,
    Against,
    ArrayHeatMap,
    Bars,
    Claim,
    Experiment,
    ImageRows,
    Line,
    Movie,
    Panel,
    ParameterHeatMap,
    PointSet,
    Scale,
    Scene,
    Setting,
    Settings,
    VerticalLine,
)
from extremal.experiments.panel_data import animation_data
from extremal.experiments.registry import (
    find_record,
    find_study,
    get,
    installed,
    names,
    names_a_record,
)
from extremal.experiments.reproduce import reproduce, run_sweep
from extremal.experiments.running.cost_estimate import Estimate, estimate
from extremal.experiments.running.dask_cluster import ClusterError
from extremal.experiments.running.run_trials import Progress, RunReport, run
from extremal.experiments.storage.store import Store, StoredTrial
from extremal.experiments.summary import load_summary, summarise, write_summary
from extremal.experiments.sweep_file import read_sweep, sweep_rows, with_default_panels
from extremal.experiments.trial import Outcome, Study, Trial

__all__ = [
    "PROVENANCE",
    "SCALES",
    "Against",
    "ArrayHeatMap",
    "Bars",
    "Claim",
    "ClusterError",
    "Estimate",
    "Experiment",
    "FileError",
    "ImageRows",
    "Line",
    "Movie",
    "Outcome",
    "Panel",
    "ParameterHeatMap",
    "PointSet",
    "Progress",
    "RunReport",
    "Scale",
    "Scene",
    "Setting",
    "Settings",
    "Store",
    "StoredTrial",
    "Study",
    "Trial",
    "VerticalLine",
    "animation_data",
    "citation",
    "estimate",
    "find_record",
    "find_study",
    "get",
    "installed",
    "load_summary",
    "names",
    "names_a_record",
    "read_sweep",
    "reproduce",
    "run",
    "run_sweep",
    "summarise",
    "sweep_rows",
    "with_default_panels",
    "write_summary",
]
