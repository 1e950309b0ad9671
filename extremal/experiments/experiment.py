"""What an experiment is: a short, declarative record that the runner, the report and people read.

A record holds settings with their provenance, the grid of trials, the published values to compare
with and what to draw. It holds no algorithm: `study` names the function that computes one trial.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from extremal._check import choice, integer, require
from extremal.experiments.trial import Trial

Scale = Literal["smoke", "quick", "paper"]
"""How large a run is: seconds, minutes, or the paper's own sizes."""
SCALES: tuple[Scale, ...] = ("smoke", "quick", "paper")
"""All scales, from small to large."""
PROVENANCE = {
    "S": "stated in the source",
    "A": "found in the authors' published code or result files",
    "O": "ours, or from where the note says",
}
"""What the letters of a setting's provenance mean."""
Settings = Mapping[str, Any]
"""Values of settings by their names."""
Rule = Literal["near", "below", "above", "over", "reported"]
"""When our number agrees with a published one."""
Against = Literal["published", "theory", "question"]
"""What a claim holds our number against: a published value, a theory's, or a question of ours."""
AGAINST: tuple[Against, ...] = ("published", "theory", "question")
"""All that a claim may hold our number against, each with a table of its own in docs/results.md."""


@dataclass(frozen=True)
class Setting:
    """A value at paper scale, and where it comes from: S stated, A authors' files, O ours."""

    value: Any
    provenance: Literal["S", "A", "O"]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A published (or predicted) number, and which of our numbers to hold against it.

    `value` names a scalar in the trials' numbers; it is averaged over the trials whose parameters
    match `where`. `rule` says when it agrees: "near" where the mean is within `tolerance` of the
    published value, "below" where every trial is at most it plus the tolerance, "above" where every
    trial is at least it minus the tolerance, "over" where every trial exceeds it by more than the
    tolerance, so that a tie is no agreement. `published` may be a function of the settings, or the
    parameters of other trials: then "near" has the mean lie within those trials' range, "below" and
    "above" hold the mean against theirs, and "over" each trial against the one of its own seed. A
    "reported" number is held against nothing: `published` is None and there is no verdict.

    Beside the mean stands the range of the trials, or with `interval` "share", for values of 0 and
    1, the interval that holds the probability of 1 with 95 % confidence (Wilson 1927).

    With `interval` "exponential" or "power" ours is a slope with its 95 % interval, fitted to the
    points (`abscissa`, value) of all matching trials together (`experiments.verdicts`): doublings
    of the value for each step of `abscissa`, or the exponent of a power law. Both may be lists of
    one length; `abscissa` may be a parameter. A value of null, which could not be measured, is left
    out. "lead" has the residual of the first over that of the second. "below" and "above" judge by
    the interval's ends.

    `against` has no default: "published" where a paper, a talk or a file of the authors states the
    value or the order, or it is read off their figure; "theory" where it is a theorem's, a
    conjecture's or a derivation's; "question" where the claim is ours, such as a check of the run
    or what an open question expects: such a row is an answer and no verdict on a source.
    """

    quantity: str
    value: str
    published: float | Callable[[Settings], float] | Mapping[str, Any] | None
    tolerance: float
    source: str
    where: Mapping[str, Any] = field(default_factory=dict)
    rule: Rule = "near"
    scales: tuple[Scale, ...] = ("quick", "paper")
    interval: Literal["range", "share", "exponential", "power", "lead"] = "range"
    abscissa: str = ""
    against: Against = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what a claim cannot be held against."""
        choice(f"against of {self.quantity!r}", self.against, AGAINST)


@dataclass(frozen=True)
class VerticalLine:
    """A vertical dashed line at a value of x, such as a critical radius."""

    at: float | Callable[[Settings], float]
    label: str


@dataclass(frozen=True)
class Line:
    """Curves: the mean over matching trials, with the band between minimum and maximum.

    Where `y` is a scalar of each trial, `x` is a parameter (distance against spread). Where `y` is
    a list, `x` is a list of the same length in the numbers (accuracy against radius). One curve for
    each value of the parameter `by`, and for each name in `y`, of those trials that have it; where
    `y` maps names to labels, curves are called by these, and `labels` are of the values of `by`;
    `styles` gives the line style of a value of `by`, or of a name. Where `x` has names, between
    which nothing lies, points that are not `joined` have bars in place of bands.
    """

    title: str
    x: str
    y: tuple[str, ...] | Mapping[str, str]
    xlabel: str
    ylabel: str
    by: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    styles: Mapping[str, Literal["solid", "dashed", "dotted"]] = field(default_factory=dict)
    vertical_lines: tuple[VerticalLine, ...] = ()
    log: Literal["", "x", "y", "xy"] = ""
    joined: bool = True


@dataclass(frozen=True)
class Bars:
    """A bar plot of a list, from the first trial that matches `where`."""

    title: str
    y: str
    xlabel: str
    ylabel: str
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayHeatMap:
    """A colour map of a stored (rows, columns) array, from the first trial that matches `where`.

    `columns` names a list of column labels in the trial's numbers.
    """

    title: str
    z: str
    xlabel: str
    ylabel: str
    columns: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True)
class ParameterHeatMap:
    """A colour map over two parameters `x` and `y`: the mean of the number `z` over trials.

    Cells where the number `outline` is above one half on average are fenced off from the others,
    such as those where a theory expects something. Cells of no trial stay empty.
    """

    title: str
    x: str
    y: str
    z: str
    xlabel: str
    ylabel: str
    outline: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class PointSet:
    """One set of points or arrows of a `Scene`: stored (n, 2) or (n, 3) arrays.

    `style` is "points", "rays" (from the origin to each point) or "arrows" (`heads` names the
    array of their components, which start at `points`).
    """

    points: str
    label: str
    style: Literal["points", "rays", "arrows"] = "points"
    heads: str | None = None
    colour: Literal["positive", "negative", "neutral", "accent"] = "neutral"


@dataclass(frozen=True)
class Scene:
    """A drawing in the plane or in space, from the first trial that matches `where`."""

    title: str
    point_sets: tuple[PointSet, ...]
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageRows:
    """Rows of small images, from the first trial that matches `where`.

    `images` maps the names of stored (n, height, width, channels) arrays, one row each, to what the
    rows are called; values are in [0, 1], of one channel or three.
    """

    title: str
    images: Mapping[str, str]
    where: Mapping[str, Any] = field(default_factory=dict)


Panel = Line | Bars | ArrayHeatMap | ParameterHeatMap | Scene | ImageRows
"""One drawing of a figure."""


@dataclass(frozen=True)
class Movie:
    """An animation of scenes in space, side by side, each of the first trial that matches it.

    A point set moves if its stored array is (frames, n, 3), and stands still if it is (n, 3).
    `times` and `loss` name lists of the frames' times and losses, and `alignment_ends` the last
    time of the first of the two `phases`. Rays that move are drawn with length ||w||^`compress`, so
    that small and large ones are both seen.
    """

    title: str
    scenes: tuple[Scene, ...]
    times: str
    loss: str
    alignment_ends: str
    phases: tuple[str, str]
    compress: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """One figure, table or theorem of a paper as a runnable record.

    `settings` are those of the paper; `quick` and `smoke` override some of them (such values are
    ours, chosen for time). A setting named in `axes` holds a list, and the trials are the product
    of the axes and of `seeds` repetitions. Where an axis is a list of mappings, each of its points
    sets the parameters that it names, in place of one of the axis's own name.
    """

    name: str
    title: str
    source: str
    study: str
    settings: Mapping[str, Setting]
    axes: tuple[str, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    columns: int = 3
    notes: str = ""
    version: int = 1  # of the study: raise it when the study computes something else
    movie: Movie | None = None

    def variant(
        self,
        name: str,
        *,
        settings: Mapping[str, Setting] | None = None,
        without: tuple[str, ...] = (),
        **changes: Any,
    ) -> Experiment:
        """The same under another name, with some of its settings and fields changed.

        - `settings`: those that differ; ones that the record lacks come last.
        - `without`: settings to leave out, at every scale.
        - `changes`: other fields of the record, such as `title`, `source` or `panels`.
        """
        unknown = sorted(set(without) - set(self.settings))
        require(not unknown, f"without of {name}", f"name settings of {self.name}", unknown)
        kept = {key: value for key, value in self.settings.items() if key not in without}
        given = {"quick": self.quick, "smoke": self.smoke} | changes
        for scale in ("quick", "smoke"):
            given[scale] = {key: each for key, each in given[scale].items() if key not in without}
        return replace(self, name=name, settings=kept | dict(settings or {}), **given)

    def at(self, scale: Scale) -> dict[str, Any]:
        """The settings at a scale, as plain values."""
        choice("scale", scale, SCALES)
        values = {name: setting.value for name, setting in self.settings.items()}
        overrides = {"paper": {}, "quick": self.quick, "smoke": self.smoke}[scale]
        unknown = sorted(set(overrides) - set(values))
        require(not unknown, f"{scale} of {self.name}", "override known settings", unknown)
        return {**values, **overrides}

    def provenance(self, scale: Scale) -> list[dict[str, Any]]:
        """One row a setting: name, value at this scale, provenance and note."""
        values = self.at(scale)
        rows = []
        for name, setting in self.settings.items():
            kept = values[name] == setting.value
            note = setting.note if kept else f"chosen for time; at paper scale {setting.value}"
            mark = setting.provenance if kept else "O"
            rows.append({"name": name, "value": values[name], "mark": mark, "note": note})
        return rows

    def trials(self, scale: Scale, seeds: int | None = None) -> list[Trial]:
        """The trials at a scale, in a fixed order; `seeds` replaces the number of repetitions."""
        values = self.at(scale)
        repeats = values.pop("seeds", 1) if seeds is None else integer("seeds", seeds, minimum=1)
        values.pop("seeds", None)
        axes = [_points(axis, values.pop(axis)) for axis in self.axes]
        return [
            Trial(self.study, values | dict(itertools.chain(*point)), seed, self.version)
            for point in itertools.product(*axes)
            for seed in range(repeats)
        ]

    def varied(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a trial's parameters that the axes set, of an axis of mappings the first."""
        names = (_points(axis, self.settings[axis].value)[0][0][0] for axis in self.axes)
        return {name: params[name] for name in names}


def _points(axis: str, values: list[Any]) -> list[list[tuple[str, Any]]]:
    """What each point of an axis sets: names and values."""
    return [
        list(value.items()) if isinstance(value, Mapping) else [(axis, value)] for value in values
    ]
