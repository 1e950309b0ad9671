"""Experiments: records of what a paper shows, run trial by trial, stored and summarised."""

from extremal.experiments.connection import ClusterError
from extremal.experiments.estimate import Estimate, estimate
from extremal.experiments.files import StoreError
from extremal.experiments.movies import film
from extremal.experiments.record import (
    MARKS,
    SCALES,
    Bars,
    Claim,
    Cloud,
    Diagram,
    Experiment,
    Heat,
    Line,
    Mark,
    Movie,
    Panel,
    Pictures,
    Scale,
    Scene,
    Setting,
    Settings,
)
from extremal.experiments.registry import get, names, register
from extremal.experiments.runner import Progress, RunReport, run
from extremal.experiments.store import Store, Stored
from extremal.experiments.summary import load_summary, summarise, write_summary
from extremal.experiments.sweep import read_sweep, sweep_rows, with_plots
from extremal.experiments.trial import Outcome, Study, Trial

__all__ = [
    "MARKS",
    "SCALES",
    "Bars",
    "Claim",
    "Cloud",
    "ClusterError",
    "Diagram",
    "Estimate",
    "Experiment",
    "Heat",
    "Line",
    "Mark",
    "Movie",
    "Outcome",
    "Panel",
    "Pictures",
    "Progress",
    "RunReport",
    "Scale",
    "Scene",
    "Setting",
    "Settings",
    "Store",
    "StoreError",
    "Stored",
    "Study",
    "Trial",
    "estimate",
    "film",
    "get",
    "load_summary",
    "names",
    "read_sweep",
    "register",
    "run",
    "summarise",
    "sweep_rows",
    "with_plots",
    "write_summary",
]
