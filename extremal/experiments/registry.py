"""The experiments by name: those of `papers/`, which are found by path, and the user's own.

``papers/min_vidal_2024/figure_2.py`` is "min-vidal-2024/figure-2" and ``papers/demo.py`` is
"demo"; each such module has a record named `experiment`. Names with a leading underscore are no
experiments.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from pathlib import Path

from extremal._check import require
from extremal.experiments.record import Experiment

_PACKAGE = "extremal.experiments.papers"
_FOLDER = Path(__file__).parent / "papers"
_registered: dict[str, Experiment] = {}


def names() -> list[str]:
    """The names of all experiments, in order; none of them is imported for it."""
    return sorted({*_shipped(), *_registered})


def get(name: str) -> Experiment:
    """The experiment of that name; ValueError with the nearest names where there is none."""
    if name in _registered:
        return _registered[name]
    module = _shipped().get(name)
    if module is None:
        raise ValueError(_unknown(name))
    found = getattr(importlib.import_module(module), "experiment", None)
    require(isinstance(found, Experiment), f"experiment in {module}", "be an Experiment", found)
    assert isinstance(found, Experiment)
    return found


def register(experiment: Experiment) -> None:
    """Add an experiment for this process; registering a name again replaces the earlier one."""
    require(isinstance(experiment, Experiment), "experiment", "be an Experiment", experiment)
    free = experiment.name not in _shipped()
    require(free, "name", "differ from the experiments that are there", experiment.name)
    _registered[experiment.name] = experiment


def _shipped() -> dict[str, str]:
    """Name to module path, from the files' names alone."""
    found = {}
    for entry in _modules(_FOLDER):
        if entry.ispkg:
            for inner in _modules(_FOLDER / entry.name):
                if not inner.ispkg:
                    found[_hyphens(f"{entry.name}/{inner.name}")] = (
                        f"{_PACKAGE}.{entry.name}.{inner.name}"
                    )
        else:
            found[_hyphens(entry.name)] = f"{_PACKAGE}.{entry.name}"
    return found


def _modules(folder: Path) -> list[pkgutil.ModuleInfo]:
    entries = pkgutil.iter_modules([str(folder)])
    return [entry for entry in entries if not entry.name.startswith("_")]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


def _unknown(name: str) -> str:
    known = names()
    wanted = _hyphens(name.lower())
    close = [other for other in known if wanted and wanted in other]
    close = close[:3] or difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f": did you mean {' or '.join(close)}?" if close else ""
    return f"unknown experiment {name!r}{hint}; see `extremal list`"
