"""A user's own grid, written as a TOML file: over an experiment, or over a function of theirs.

Such a file is

experiment = "min-vidal-2024/figure-2"    # or: function = "module:function"
scale = "quick"
seeds = 5

[settings]
dim = 200

[axes]
p = [1.0, 2.0, 3.0]
spread = {from = 0.1, to = 1.0, steps = 10}
init = {from = 1e-9, to = 1e-3, steps = 3, log = true}

[[plots]]
x = "spread"
y = ["distance"]
by = "p"
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from extremal._check import choice, integer, number, require
from extremal._files import FileError, read_whole
from extremal.experiments.experiment import SCALES, Experiment, Line, Setting
from extremal.experiments.registry import get, require_study
from extremal.experiments.storage.store import Store, StoredTrial
from extremal.experiments.trial import Trial

_TOP_KEYS = {"name", "title", "experiment", "function", "scale", "seeds", "version"}
_TABLE_NAMES = {"settings", "axes", "plots"}
_RANGE_KEYS = {"from", "to", "steps", "log"}
_PLOT_KEYS = {"x", "y", "by", "log", "title", "where"}
_MOST_PLOTS = 6
_SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SWEEP_PREFIX = "sweeps/"  # what the names of sweeps begin with


def read_sweep(path: str | Path) -> Experiment:
    """The record of a sweep file, all of whose values are those at scale "paper".

    ValueError with the name of the key, the rule and what was received where it is none.
    """
    source = Path(path)
    data = read_whole(source)
    if data is None:
        raise FileError(f"cannot read {source}: no such file")
    try:
        asked = tomllib.loads(data.decode())
    except ValueError as error:
        raise ValueError(f"{source} must be a TOML file, got {error}") from error
    unknown = sorted(set(asked) - _TOP_KEYS - _TABLE_NAMES)
    require(not unknown, f"{source}", f"have the keys {_listed(_TOP_KEYS | _TABLE_NAMES)}", unknown)
    one = ("experiment" in asked) != ("function" in asked)
    require(one, f"{source}", "name one experiment or one function", "both or none")
    _check_tables(asked)
    name = asked.get("name", source.stem)
    good = isinstance(name, str) and _SWEEP_NAME.fullmatch(name) is not None
    require(good, "name", "be letters, digits, dots, dashes and underscores", name)
    base = _of_experiment(asked) if "experiment" in asked else _of_function(asked)
    named = dataclasses.replace(
        base,
        name=f"{SWEEP_PREFIX}{name}",
        title=str(asked.get("title", name)),
        panels=tuple(_plot(plot) for plot in _plots(asked)),
        columns=2,
    )
    named.trials("paper")  # what is wrong with its values is said before any work
    return named


def _check_tables(asked: Mapping[str, Any]) -> None:
    """A name stands for one thing: repeats are no parameter, and an axis no setting."""
    settings, axes = _table(asked, "settings"), _table(asked, "axes")
    for table, names in (("settings", settings), ("axes", axes)):
        rule = "not have seeds, which is a number of repeats above the tables"
        require("seeds" not in names, table, rule, names.get("seeds"))
    for name in settings:
        require(name not in axes, name, "be in [settings] or in [axes]", "both")


def with_default_panels(experiment: Experiment, store: Store) -> Experiment:
    """The same with quick plots, where the file asks for none: each number against an axis.

    The axis is the one with the most numbers; another one with several values makes the curves.
    Curves are means over everything else.
    """
    if experiment.panels:
        return experiment
    trials = experiment.trials("paper")
    done = [found for found in store.read_all(trials) if found.status == "done"]
    varied = varied_parameters(experiment, trials)
    numeric = {name: len(values) for name, values in varied.items() if _numeric(values)}
    if not numeric or not done:
        return experiment
    x = max(numeric, key=lambda name: numeric[name])
    by = next((name for name in varied if name != x), None)
    names = [name for name, value in done[0].numbers.items() if _numeric([value])]
    panels = tuple(
        Line(f"{name} against {x}", x, (name,), x, name, by=by, log=_log(varied[x]))
        for name in names[:_MOST_PLOTS]
    )
    return dataclasses.replace(experiment, panels=panels)


def sweep_rows(experiment: Experiment, store: Store) -> list[dict[str, Any]]:
    """One row a trial, in the order of the grid: what varies, seed, status, seconds, numbers."""
    trials = experiment.trials("paper")
    varied = varied_parameters(experiment, trials)
    found = {stored.trial.key: stored for stored in store.read_all(trials)}
    return [_row(trial, [*varied], found.get(trial.key)) for trial in trials]


def varied_parameters(experiment: Experiment, trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """The parameters that the axes set, with their values in order; those with one come last."""
    names: dict[str, list[Any]] = {}
    for axis in experiment.axes:
        for point in experiment.settings[axis].value:
            for name in point if isinstance(point, Mapping) else [axis]:
                names.setdefault(name, [])
    for name in names:
        # A parameter may be a list or a mapping, which only as text can be looked up.
        values = (trial.params.get(name) for trial in trials)
        names[name] = [*{json.dumps(value, sort_keys=True): value for value in values}.values()]
    return dict(sorted(names.items(), key=lambda item: len(item[1]) == 1))


def _row(trial: Trial, varied: list[str], stored: StoredTrial | None) -> dict[str, Any]:
    row = {name: trial.params.get(name) for name in varied}
    row |= {"seed": trial.seed, "status": "missing" if stored is None else stored.status}
    if stored is not None:
        row |= {"seconds": stored.seconds, "reason": stored.reason.partition("\n")[0]}
        # A number with the name of a parameter must not hide it.
        row |= {f"{n}_found" if n in row else n: v for n, v in stored.numbers.items()}
    return row


def _of_experiment(asked: Mapping[str, Any]) -> Experiment:
    require("version" not in asked, "version", "be that of the experiment", asked.get("version"))
    base = get(str(asked["experiment"]))
    scale = asked.get("scale", "quick")
    choice("scale", scale, SCALES)
    values = base.at(scale)
    settings = _table(asked, "settings")
    axes = {name: _values(name, value) for name, value in _table(asked, "axes").items()}
    own = [axis for axis in base.axes if axis not in settings and axis not in axes]
    changed = settings | axes | _seeds(asked)
    known = sorted({*values, *_inner(base, values)})
    for name in changed:
        rule = f"be a setting of {base.name} ({', '.join(known)})"
        require(name in known or name == "seeds", name, rule, name)
    _check_hidden(base, values, own, changed)
    kept = {
        name: dataclasses.replace(setting, value=values[name])
        for name, setting in base.settings.items()
    }
    mine = {name: Setting(value, "O", "of the sweep") for name, value in changed.items()}
    return dataclasses.replace(
        base,
        settings=kept | mine,
        axes=(*own, *axes),
        claims=(),
        quick={},
        smoke={},
        movie=None,
        source=f"{base.name}, {scale}",
        notes="",
    )


def _check_hidden(
    base: Experiment, values: Mapping[str, Any], own: list[str], changed: Mapping[str, Any]
) -> None:
    """A setting that a point of one of the experiment's own axes sets would be set back by it."""
    for axis in own:
        inside = {name for point in values[axis] if isinstance(point, Mapping) for name in point}
        for name in sorted(inside & set(changed)):
            rule = f"not be set by the axis {axis!r} of {base.name}, or that be set too"
            require(False, name, rule, changed[name])


def _of_function(asked: Mapping[str, Any]) -> Experiment:
    require("scale" not in asked, "scale", "be left out for a function", asked.get("scale"))
    axes = {name: _values(name, value) for name, value in _table(asked, "axes").items()}
    values = _table(asked, "settings") | axes | {"seeds": 1} | _seeds(asked)
    study = str(asked["function"])
    Trial(study, {}, 0)  # It checks the form of the name.
    require_study(study)
    settings = {name: Setting(value, "O", "of the sweep") for name, value in values.items()}
    version = integer("version", asked.get("version", 1), minimum=1)
    return Experiment("", "", study, study, settings, tuple(axes), (), version=version)


def _inner(base: Experiment, values: Mapping[str, Any]) -> set[str]:
    """The names that points of axes set."""
    points = [point for axis in base.axes for point in values[axis]]
    return {name for point in points if isinstance(point, Mapping) for name in point}


def _seeds(asked: Mapping[str, Any]) -> dict[str, int]:
    return {"seeds": integer("seeds", asked["seeds"], minimum=1)} if "seeds" in asked else {}


def _table(asked: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = asked.get(name, {})
    require(isinstance(found, dict), name, "be a table", found)
    return dict(found)


def _values(name: str, value: Any) -> list[Any]:
    """The values of an axis: a list, or a range."""
    if isinstance(value, dict):
        return _range(name, value)
    require(isinstance(value, list) and len(value) > 0, name, "be a list or a range", value)
    return list(value)


def _range(name: str, value: Mapping[str, Any]) -> list[float]:
    good = {"from", "to", "steps"} <= set(value) <= _RANGE_KEYS
    require(good, name, "have from, to, steps and perhaps log", value)
    steps = integer(f"{name}.steps", value["steps"], minimum=2)
    low, high = (number(f"{name}.{end}", value[end]) for end in ("from", "to"))
    if value.get("log", False):
        require(min(low, high) > 0.0, name, "be above 0 where log = true", value)
        low, high = math.log(low), math.log(high)
    inner = [low + (high - low) * k / (steps - 1) for k in range(1, steps - 1)]
    # Twelve digits: 0.30000000000000004 would be another trial than 0.3, and ends are as written.
    middle = [float(f"{math.exp(v) if value.get('log', False) else v:.12g}") for v in inner]
    return [float(value["from"]), *middle, float(value["to"])]


def _plots(asked: Mapping[str, Any]) -> list[Any]:
    found = asked.get("plots", [])
    require(isinstance(found, list), "plots", "be a list of tables, [[plots]]", found)
    return list(found)


def _plot(plot: Any) -> Line:
    good = isinstance(plot, dict) and {"x", "y"} <= set(plot) <= _PLOT_KEYS
    require(good, "plots", f"have x and y, and of {_listed(_PLOT_KEYS)} what you like", plot)
    y = plot["y"] if isinstance(plot["y"], list) else [plot["y"]]
    words = [plot["x"], *y, plot.get("by", "")]
    require(all(isinstance(word, str) for word in words), "plots", "name x, y and by", plot)
    choice("plots.log", plot.get("log", ""), ("", "x", "y", "xy"))
    label = y[0] if len(y) == 1 else ""
    title = str(plot.get("title", f"{', '.join(y)} against {plot['x']}"))
    where = _table(plot, "where")
    by, log = plot.get("by"), plot.get("log", "")
    return Line(title, plot["x"], tuple(y), plot["x"], label, by=by, where=where, log=log)


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _log(values: Sequence[float]) -> Any:
    return "x" if min(values) > 0 and max(values) / min(values) > 100 else ""


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
