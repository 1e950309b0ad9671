"""Panels and animations of a record as plain data: what is drawn, with nothing left to look up."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from extremal._check import require
from extremal.experiments.experiment import (
    ArrayHeatMap,
    Bars,
    Experiment,
    ImageRows,
    Line,
    Movie,
    Panel,
    ParameterHeatMap,
    Scale,
    Scene,
    Settings,
)
from extremal.experiments.storage.store import Store, StoredTrial
from extremal.experiments.trial import Trial

_NOT_DONE_REASON = "no trial of it is done yet"


def check_where(name: str, where: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    """Require that each key of `where` is a parameter of the trials."""
    known = sorted({key for trial in trials for key in trial.params})
    for key in where:
        rule = f"use parameters of the trials ({', '.join(known)})"
        require(key in known, f"where of {name!r}", rule, key)


def matching(where: Mapping[str, Any], found: Sequence[StoredTrial]) -> list[StoredTrial]:
    """Those whose parameters equal `where`; floats exactly."""
    return [
        stored
        for stored in found
        if all(_listed(stored.trial.params[key]) == _listed(value) for key, value in where.items())
    ]


def look_up(name: str, stored: StoredTrial) -> Any:
    """A value by name, from the trial's numbers or else its arrays (as nested lists)."""
    if name in stored.numbers:
        return stored.numbers[name]
    known = ", ".join([*stored.numbers, *stored.array_names])
    require(name in stored.array_names, "a panel or claim", f"name one of {known}", name)
    return stored.arrays[name].tolist()


def mean_and_range(values: Sequence[Any]) -> tuple[float, float, float]:
    """Mean, minimum and maximum; NaN if any value is."""
    floats = [math.nan if value is None else float(value) for value in values]
    if any(math.isnan(value) for value in floats):
        return math.nan, math.nan, math.nan
    finite = all(math.isfinite(value) for value in floats)
    # `fsum`, because the mean must not depend on the order of the trials.
    mean = (math.fsum(floats) if finite else sum(floats)) / len(floats)
    return mean, min(floats), max(floats)


def panel_data(
    panel: Panel,
    trials: Sequence[Trial],
    done: Sequence[StoredTrial],
    failed: Sequence[StoredTrial],
    settings: Settings,
) -> dict[str, Any]:
    """The panel as plain data with 6 digits, or one of kind "missing" where nothing is there."""
    check_where(panel.title, panel.where, trials)
    found = matching(panel.where, done)
    if not found:
        broken = matching(panel.where, failed)
        why = f"failed: {broken[0].reason.splitlines()[0]}" if broken else _NOT_DONE_REASON
        return {"kind": "missing", "title": panel.title, "reason": why}
    data = {"title": panel.title}
    match panel:
        case Line():
            check_where(panel.title, {panel.by: None} if panel.by else {}, trials)
            data |= _line(panel, found, settings)
        case Bars():
            data |= _bars(panel, found[0])
        case ArrayHeatMap():
            data |= _heat(panel, found[0])
        case ParameterHeatMap():
            check_where(panel.title, {panel.x: None, panel.y: None}, trials)
            data |= _diagram(panel, found)
        case Scene():
            data |= _scene(panel, found[0])
        case ImageRows():
            data |= _pictures(panel, found[0])
    rounded: dict[str, Any] = round_off(data)
    return rounded


def round_off(value: Any) -> Any:
    """The same with floats at 6 significant digits, which no eye tells from all of them."""
    if isinstance(value, dict):
        return {key: round_off(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [round_off(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _line(panel: Line, found: Sequence[StoredTrial], settings: Settings) -> dict[str, Any]:
    values = _distinct([stored.trial.params[panel.by] for stored in found]) if panel.by else [None]
    series = []
    for name in panel.y:
        for value in values:
            all_of_it = matching({panel.by: value}, found) if panel.by else list(found)
            chosen = [one for one in all_of_it if name in one.numbers]
            if not chosen and any(name in one.numbers for one in found):
                continue
            chosen = chosen or all_of_it
            label = _label(panel, name, value)
            style = panel.styles.get(_short(value), panel.styles.get(name, "solid"))
            series.append({"label": label, **_curve(panel.x, name, chosen), "style": style})
    marks = [
        {"at": float(mark.at(settings) if callable(mark.at) else mark.at), "label": mark.label}
        for mark in panel.vertical_lines
    ]
    axes: dict[str, Any] = {"xlabel": panel.xlabel, "ylabel": panel.ylabel, "log": panel.log}
    if not panel.joined:
        axes["joined"] = False
    return {"kind": "line", **axes, "series": series, "marks": marks}


def _curve(x: str, y: str, chosen: Sequence[StoredTrial]) -> dict[str, Any]:
    """Mean, minimum and maximum at each x, and the fewest trials (n) that are behind a point."""
    columns = [look_up(y, stored) for stored in chosen]
    if isinstance(columns[0], list):
        places = look_up(x, chosen[0])
        for stored, column in zip(chosen, columns, strict=True):
            own = look_up(x, stored)
            require(own == places, x, "be the same list in all trials", own)
            rule = f"be as long as {x!r} ({len(places)})"
            require(len(column) == len(places), y, rule, len(column))
        groups = [list(group) for group in zip(*columns, strict=True)]
    else:
        params = [stored.trial.params for stored in chosen]
        require(x in params[0], "x of a line", f"be a parameter, since {y!r} is a scalar", x)
        places = _distinct([point[x] for point in params])
        if all(isinstance(place, int | float) for place in places):
            places.sort()
        grouped: dict[Any, list[Any]] = {}
        for value, point in zip(columns, params, strict=True):
            grouped.setdefault(_hashable(point[x]), []).append(value)
        groups = [grouped[_hashable(place)] for place in places]
    means, lows, highs = zip(*map(mean_and_range, groups), strict=True) if groups else ([], [], [])
    n = min(map(len, groups), default=0)
    return {"x": places, "y": [*means], "low": [*lows], "high": [*highs], "n": n}


def _label(panel: Line, name: str, value: Any) -> str:
    """What a curve is called: its name in `y`, its value of `by`, or both where both vary.

    A value that is a name stands for itself.
    """
    parts = []
    names = panel.y if isinstance(panel.y, Mapping) else panel.labels
    if panel.by is None or len(panel.y) > 1:
        parts.append(names.get(name, name))
    if panel.by is not None:
        short = _short(value)
        itself = short if isinstance(value, str) else f"{panel.by} = {short}"
        default = panel.labels.get(short, itself)
        parts.append(panel.labels.get(str(value), default))
    return ", ".join(parts)


def _short(value: Any) -> str:
    """How labels and styles name a value of `by`."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bars(panel: Bars, stored: StoredTrial) -> dict[str, Any]:
    heights = look_up(panel.y, stored)
    require(isinstance(heights, list), panel.y, "be a list", heights)
    return {"kind": "bars", "xlabel": panel.xlabel, "ylabel": panel.ylabel, "y": heights}


def _heat(panel: ArrayHeatMap, stored: StoredTrial) -> dict[str, Any]:
    z = _matrix(panel.z, look_up(panel.z, stored))
    columns = None if panel.columns is None else look_up(panel.columns, stored)
    width = len(z[0]) if z else 0
    labelled = columns is None or len(columns) == width
    require(labelled, str(panel.columns), f"name {width} columns", columns)
    axes = {"xlabel": panel.xlabel, "ylabel": panel.ylabel}
    return {
        "kind": "heat",
        **axes,
        "z": z,
        "columns": columns,
        "low": panel.low,
        "high": panel.high,
    }


def _diagram(panel: ParameterHeatMap, found: Sequence[StoredTrial]) -> dict[str, Any]:
    """A heat map with names for rows and columns and, perhaps, cells that are fenced off."""
    columns, rows = (
        sorted(_distinct([stored.trial.params[name] for stored in found]))
        for name in (panel.x, panel.y)
    )
    rows.reverse()  # the first is drawn on top

    def means(name: str) -> list[list[float]]:
        cells = [[matching({panel.y: row, panel.x: at}, found) for at in columns] for row in rows]
        return [
            [mean_and_range([look_up(name, one) for one in c] or [None])[0] for c in r]
            for r in cells
        ]

    fenced = None
    if panel.outline is not None:
        fenced = [[mean > 0.5 for mean in row] for row in means(panel.outline)]
    axes = {"xlabel": panel.xlabel, "ylabel": panel.ylabel, "low": panel.low, "high": panel.high}
    names = {"columns": columns, "rows": rows, "fenced": fenced}
    return {"kind": "heat", **axes, "z": means(panel.z), **names}


def _scene(panel: Scene, stored: StoredTrial) -> dict[str, Any]:
    clouds, dims = [], set()
    for cloud in panel.point_sets:
        points = _matrix(cloud.points, look_up(cloud.points, stored))
        heads = None if cloud.heads is None else _matrix(cloud.heads, look_up(cloud.heads, stored))
        dims |= {len(row) for row in [*points, *(heads or [])]}
        look = {"label": cloud.label, "style": cloud.style, "colour": cloud.colour}
        clouds.append({**look, "points": points, "heads": heads})
    if not dims:
        return {"kind": "missing", "reason": "all its clouds are empty"}
    require(dims in ({2}, {3}), panel.title, "have all clouds in 2 or all in 3 dimensions", dims)
    return {"kind": "scene", "dim": dims.pop(), "clouds": clouds}


def _pictures(panel: ImageRows, stored: StoredTrial) -> dict[str, Any]:
    """Rows of images in 8 bits, each as the base64 of its bytes."""
    rows, shapes = [], set()
    for name, label in panel.images.items():
        known = ", ".join(stored.array_names)
        require(name in stored.array_names, panel.title, f"name arrays of {known}", name)
        images = stored.arrays[name]
        shapes.add(tuple(images.shape))
        good = images.ndim == 4 and images.shape[3] in (1, 3) and len(shapes) == 1
        rule = "be an (n, height, width, 1 or 3) array, all of one shape"
        require(good, name, rule, tuple(images.shape))
        inside = bool(((images >= 0) & (images <= 1)).all())
        require(inside, name, "have values in [0, 1]", "others")
        bytes_of = (images.double() * 255).round().to(torch.uint8)
        coded = [base64.b64encode(bytes(image.flatten().tolist())).decode() for image in bytes_of]
        rows.append({"label": label, "images": coded})
    return {"kind": "pictures", "shape": list(shapes.pop()[1:]), "rows": rows}


def _matrix(name: str, value: Any) -> list[list[Any]]:
    """Rows of one length; there may be none of them."""
    good = isinstance(value, list) and all(isinstance(row, list) for row in value)
    good = good and len({len(row) for row in value}) <= 1
    require(good, name, "be a (rows, columns) array", value)
    matrix: list[list[Any]] = value
    return matrix


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Each value once, in order; they may be lists, which no set holds."""
    seen: dict[Any, Any] = {}
    for value in values:
        seen.setdefault(_hashable(value), value)
    return [*seen.values()]


def _hashable(value: Any) -> Any:
    """The same for equal values, and fit for a dictionary: 1 and 1.0, (1, 2) and [1, 2]."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(inner)) for key, inner in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _listed(value: Any) -> Any:
    return [_listed(inner) for inner in value] if isinstance(value, list | tuple) else value


def animation_data(
    experiment: Experiment, scale: Scale, store: Store, seeds: int | None = None
) -> dict[str, Any] | None:
    """What an experiment's movie shows, or None where it has none or a scene's trial isn't done.

    It is read from the store and never part of a summary, which all those arrays would make large.
    """
    movie = experiment.movie
    if movie is None:
        return None
    trials = experiment.trials(scale, seeds)
    found = store.read_all(trials)
    done = [stored for stored in found if stored.status == "done"]
    shown = []
    for scene in movie.scenes:
        check_where(scene.title, scene.where, trials)
        own = matching(scene.where, done)
        if not own:
            return None
        shown.append(_frames(movie, scene, own[0]))
    times = shown[0].pop("times")
    for other in shown[1:]:
        theirs = other.pop("times")
        require(theirs == times, movie.times, "be the same list in all scenes", theirs)
    return {
        "title": movie.title,
        "times": times,
        "phases": list(movie.phases),
        "compress": movie.compress,
        "scenes": shown,
    }


def _frames(movie: Movie, scene: Scene, stored: StoredTrial) -> dict[str, Any]:
    times, loss = look_up(movie.times, stored), look_up(movie.loss, stored)
    for name, values in ((movie.times, times), (movie.loss, loss)):
        require(isinstance(values, list) and len(values) > 0, name, "be a list of numbers", values)
    require(len(loss) == len(times), movie.loss, f"have {len(times)} frames", len(loss))
    clouds = []
    for cloud in scene.point_sets:
        require(cloud.style != "arrows", cloud.label, "be points or rays in a movie", cloud.style)
        require(cloud.points in stored.array_names, "a movie", "name a stored array", cloud.points)
        array = stored.arrays[cloud.points]
        shape = tuple(array.shape)
        moves = array.ndim == 3
        fits = shape[-1:] == (3,) and (shape[0] == len(times) if moves else array.ndim == 2)
        rule = f"have shape (n, 3) or ({len(times)}, n, 3)"
        require(fits, cloud.points, rule, f"shape {shape}")
        look = {"label": cloud.label, "style": cloud.style, "colour": cloud.colour}
        clouds.append({**look, "moves": moves, "points": array.tolist()})
    turn = look_up(movie.alignment_ends, stored)
    return {"title": scene.title, "times": times, "loss": loss, "turn": turn, "clouds": clouds}
