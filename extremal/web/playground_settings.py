"""What the playground is asked: its settings with their bounds, and their way into a link and back.

Everything that comes from a browser passes through here, and whatever is not within the bounds is a
ValueError with the setting's name, the rule and what was received.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from extremal import _check

# Losses that can be chosen.
LOSS_NAMES = ("exp", "logistic")
# Characters that a link may have.
LONGEST_LINK = 2000
# Characters of a bad value that an error repeats.
SHOWN_CHARACTERS = 40
# Whole numbers up to which a browser counts without rounding.
LARGEST_TURN = 2**53


@dataclass(frozen=True)
class SettingBounds:
    """The least and the largest value of a setting, the step of its control, and its words.

    `label` stands beside the control, `about` is what it means.
    """

    low: float
    high: float
    step: float
    label: str
    about: str


# The bounds of every setting with a control.
SETTING_BOUNDS = {
    "positive": SettingBounds(
        1, 6, 1, "Subclasses of class +", "K₁: how many clusters class + is made of."
    ),
    "negative": SettingBounds(
        1, 6, 1, "Subclasses of class −", "K₂: how many clusters class − is made of."
    ),
    "spread": SettingBounds(
        *(0, 0.5, 0.01, "Spread of a cluster"),
        "α: how far points lie from their centre, about. The noise is N(0, α²/dim) in each "
        "coordinate.",
    ),
    "p": SettingBounds(
        *(1, 6, 0.1, "Power p"),
        "A neuron gives max(0, ⟨w, x⟩)ᵖ / ‖w‖ᵖ⁻¹ to its class. p = 1 is ReLU; theory: from 3 on "
        "the network is as robust as any can be.",
    ),
    "init": SettingBounds(
        *(-8, -1, 1, "First weights"),
        "The standard deviation of all weights before training. The smaller, the more neurons turn "
        "before they grow.",
    ),
    "width": SettingBounds(4, 300, 1, "Neurons", "h: how many neurons the network has."),
    "seed": SettingBounds(0, 9999, 1, "Seed", "The seed of data and first weights."),
}
# Settings that are whole numbers.
WHOLE_NUMBERS = ("positive", "negative", "init", "width", "seed")
# The plane is drawn, and points may be chosen, from minus this to this.
PLANE_REACH = 1.5


@dataclass(frozen=True)
class PlaygroundSettings:
    """The settings that decide what is trained; with `second_p`, a second p to compare with."""

    positive: int = 2
    negative: int = 2
    spread: float = 0.1
    p: float = 1.0
    init: int = -4
    width: int = 60
    seed: int = 0
    loss: str = "exp"
    second_p: float | None = None

    def __post_init__(self) -> None:
        for name in SETTING_BOUNDS:
            object.__setattr__(self, name, _within(name, getattr(self, name)))
        if self.second_p is not None:
            object.__setattr__(self, "second_p", _within("p", self.second_p, "second_p"))
        _check.choice("loss", self.loss, LOSS_NAMES)

    @property
    def count(self) -> int:
        """K, the number of subclasses."""
        return self.positive + self.negative

    @property
    def dim(self) -> int:
        """As many dimensions as there are centres, and at least three."""
        return max(3, self.count)

    def problems(self) -> list[PlaygroundSettings]:
        """One set-up for each p, without the other."""
        powers = [self.p] if self.second_p is None else [self.p, self.second_p]
        return [replace(self, p=p, second_p=None) for p in powers]


@dataclass(frozen=True)
class PlanePoint:
    """The plane of two centres, counted from 1, and a point across * mu_first + up * mu_second.

    By `usual_plane_point` the second is of the other class, so that the edge between them is seen.
    """

    first: int = 1
    second: int = 3
    across: float = 1.0
    up: float = 0.0

    def __post_init__(self) -> None:
        most = int(SETTING_BOUNDS["positive"].high + SETTING_BOUNDS["negative"].high)
        for name in ("first", "second"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1, most))
        _check.require(self.first != self.second, "second", "be another centre than first", "same")
        for name in ("across", "up"):
            value = finite(name, getattr(self, name))
            object.__setattr__(
                self, name, _check.number(name, value, minimum=-PLANE_REACH, maximum=PLANE_REACH)
            )

    def check(self, setup: PlaygroundSettings) -> None:
        """Require that there are such centres."""
        for name in ("first", "second"):
            rule = f"be one of the centres 1..{setup.count}"
            value = getattr(self, name)
            _check.require(value <= setup.count, name, rule, value)


def usual_plane_point(setup: PlaygroundSettings) -> PlanePoint:
    """The first centre of each class."""
    return PlanePoint(second=setup.positive + 1)


def read_settings(values: Mapping[str, Any]) -> PlaygroundSettings:
    """A set-up from what a browser sent: a name that is missing has its usual value.

    One that is there must have a value, but for `second_p`: whatever is wrong is said, not mended.
    """
    return PlaygroundSettings(**_known(values, PlaygroundSettings))


def read_plane_point(values: Mapping[str, Any], setup: PlaygroundSettings) -> PlanePoint:
    """A plane and a point from what a browser sent, with centres that the set-up has."""
    probe = replace(usual_plane_point(setup), **_known(values, PlanePoint))
    probe.check(setup)
    return probe


def read_turn(values: object) -> int:
    """The number of a move, which rises from move to move of a browser; 0 where it has none."""
    turn = values.get("turn") if isinstance(values, Mapping) else None
    return turn if isinstance(turn, int) and abs(turn) < LARGEST_TURN else 0


def read_link(search: str | None) -> tuple[PlaygroundSettings, PlanePoint]:
    """What a link's query says, all of it known and within the bounds."""
    known = {field.name for kind in (PlaygroundSettings, PlanePoint) for field in fields(kind)}
    values = read_query(search, known | {"beside"})
    if "beside" in values:  # so links of earlier versions call the second p
        _check.require("second_p" not in values, "link", "name the second p once", "it twice")
        values["second_p"] = values.pop("beside")
    setup = read_settings(values)
    return setup, read_plane_point(values, setup)


def read_query(search: object, known: set[str]) -> dict[str, str]:
    """A link's query as a dict.

    Names that nobody knows are an error, and so are long links and names that stand twice.
    """
    _check.require(search is None or isinstance(search, str), "link", "be text", search)
    text = str(search or "").removeprefix("?")
    rule = f"have at most {LONGEST_LINK} characters"
    _check.require(len(text) <= LONGEST_LINK, "link", rule, f"{len(text)} characters")
    values: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        shown = name[:SHOWN_CHARACTERS]
        _check.require(name in known, "link", f"name only {', '.join(sorted(known))}", shown)
        twice = f"{values.get(name, '')[:SHOWN_CHARACTERS]} and {value[:SHOWN_CHARACTERS]}"
        _check.require(name not in values, "link", f"name {shown} once", twice)
        values[name] = value
    return values


def link(setup: PlaygroundSettings, probe: PlanePoint) -> str:
    """The query that `read_link` reads as the same: what differs from the defaults, no more."""
    values = {**_changed(setup, PlaygroundSettings()), **_changed(probe, usual_plane_point(setup))}
    return f"?{urlencode(values)}" if values else ""


def described(setup: PlaygroundSettings) -> str:
    """All settings in a line, as it stands beside what was computed with them."""
    parts = [
        " and ".join(f"p = {one.p:g}" for one in setup.problems()),
        f"{setup.positive} + {setup.negative} subclasses",
        f"spread {setup.spread:g}",
        f"first weights 1e{setup.init}",
        f"{setup.width} neurons",
        f"seed {setup.seed}",
        f"{setup.loss} loss",
    ]
    return " · ".join(parts)


def _changed(
    chosen: PlaygroundSettings | PlanePoint, standard: PlaygroundSettings | PlanePoint
) -> dict[str, Any]:
    usual = asdict(standard)
    return {name: value for name, value in asdict(chosen).items() if value != usual[name]}


def _known(values: object, kind: type) -> dict[str, Any]:
    _check.instance("settings", values, Mapping, "be a mapping")
    assert isinstance(values, Mapping)
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


def _within(name: str, value: object, shown: str | None = None) -> float | int:
    bound = SETTING_BOUNDS[name]
    number = finite(shown or name, value)
    if name in WHOLE_NUMBERS:
        return whole(shown or name, number, int(bound.low), int(bound.high))
    return _check.number(shown or name, number, minimum=bound.low, maximum=bound.high)


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds, from a number or from text."""
    number = finite(name, value)
    rule = f"be a whole number from {low} to {high}"
    _check.require(number == int(number) and low <= number <= high, name, rule, f"{number:g}")
    return int(number)


def finite(name: str, value: object) -> float:
    """A finite number from a number or from text, since links and controls hold text."""
    rule = "be a number"
    _check.require(value not in (None, ""), name, rule, "nothing")
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    _check.require(plain, name, rule, type(value).__name__)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        number = math.nan
    _check.require(math.isfinite(number), name, rule, str(value)[:SHOWN_CHARACTERS])
    return number
