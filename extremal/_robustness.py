"""What is known of a network's robustness: for each point a radius from below and from above."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from extremal import _check
from extremal._files import as_path, read_whole, write_whole
from extremal._health import HealthWarning
from extremal.attack.ball import NORMS

SLACK = 1e-6  # by which rounding may put a certified radius above an attacked one, as a share
_FORMAT = "extremal-robustness-1"
_NORMAL = NormalDist().inv_cdf(0.975)


class BracketViolation(RuntimeError):  # noqa: N818 - it is named for what happened
    """A point was broken within its certified radius: a certificate or an attack is wrong.

    `points` holds the indices.
    """

    def __init__(self, points: Sequence[int], worst: str) -> None:
        self.points = tuple(points)
        shown = ", ".join(map(str, self.points[:10])) + (", ..." if len(self.points) > 10 else "")
        many = f"{len(self.points)} point{'s' if len(self.points) > 1 else ''}"
        super().__init__(f"{many} broken within the certified radius ({worst}): {shown}")


@dataclass(frozen=True)
class Gap:
    """How wide the brackets are: 1 - lower/upper; NaN where no point has a finite one."""

    median: float
    ninetieth: float  # percentile


@dataclass(frozen=True, eq=False)
class RobustnessCurve:
    """Robust accuracy at each radius, from below and from above, with 95 % intervals.

    The intervals are Wilson's, for the share in the population that the points were drawn from.
    """

    norm: str
    count: int  # points
    radii: Tensor  # (m,) float64
    certified: Tensor  # (m,): at least this share of the points keeps its class
    attacked: Tensor  # (m,): at most this share does
    certified_interval: Tensor  # (m, 2)
    attacked_interval: Tensor  # (m, 2)

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each radius, of plain numbers."""
        columns = {
            name: getattr(self, name).tolist()
            for name in ("certified", "certified_interval", "attacked", "attacked_interval")
        }
        return [
            {"radius": radius, **{name: column[k] for name, column in columns.items()}}
            for k, radius in enumerate(self.radii.tolist())
        ]


@dataclass(frozen=True, eq=False)
class Robustness:
    """For each of n points: no perturbation of norm <= lower changes its class, one of upper does.

    Both are 0 where a point is misclassified; upper is inf where no attack was found, and lower is
    0 where nothing is certified. `certified` says whether a certificate took part, and `boxed`
    whether it used the box, which attacks always do. `attack` names what found each upper radius
    ("clean" for a misclassified point, "" where nothing was found), `certificate` what gave each
    lower one ("" where nothing did).
    A lower radius above an upper one is a `BracketViolation`.
    """

    lower: Tensor  # (n,) float64
    upper: Tensor  # (n,) float64
    norm: str
    box: tuple[float, float] | None
    certified: bool
    boxed: bool
    attack: tuple[str, ...]
    certificate: tuple[str, ...]
    warnings: tuple[HealthWarning, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.choice("norm", self.norm, NORMS)
        count = len(self.upper)
        for name in ("lower", "upper", "attack", "certificate"):
            length = len(getattr(self, name))
            _check.require(length == count, name, f"have {count} entries", length)
        _check.require(count >= 1, "upper", "have at least one entry", count)
        for name in ("lower", "upper"):
            value = getattr(self, name).detach().double().cpu()
            _check.require(bool((value >= 0).all()), name, "be >= 0 and not NaN", value.tolist())
            object.__setattr__(self, name, value)
        bad = torch.nonzero(self.lower > self.upper * (1.0 + SLACK)).squeeze(1)
        if len(bad) > 0:
            at = bad[(self.lower[bad] - self.upper[bad]).argmax()]
            worst = f"certified {float(self.lower[at]):g}, broken at {float(self.upper[at]):g}"
            raise BracketViolation(bad.tolist(), worst)

    def __len__(self) -> int:
        return len(self.upper)

    @property
    def correct(self) -> Tensor:
        """Which points are classified correctly, (n,) bool."""
        return self.upper > 0

    @property
    def gap(self) -> Gap:
        """Median and 90th percentile of 1 - lower/upper, for correct points with a finite upper."""
        seen = self.correct & self.upper.isfinite()
        if not bool(seen.any()):
            return Gap(math.nan, math.nan)
        gaps = (1.0 - self.lower[seen] / self.upper[seen]).clamp(min=0.0)
        return Gap(float(gaps.quantile(0.5)), float(gaps.quantile(0.9)))

    def curve(self, radii: Sequence[float] | None = None) -> RobustnessCurve:
        """Certified and attacked accuracy at each radius.

        Robust accuracy at r lies between the shares of points with lower >= r (and upper > r, so
        that a misclassified point does not count at r = 0) and with upper > r. `radii` are those
        of the evaluation unless given, or else about six that span the attacked ones.
        """
        wanted = checked_radii(self._usual() if radii is None else radii)
        asked, count = torch.tensor(wanted, dtype=torch.float64), len(self)
        below = torch.nextafter(self.upper, torch.zeros_like(self.upper))
        last = torch.where(self.correct, torch.minimum(self.lower, below), -1.0)  # r that are held
        held = count - torch.searchsorted(last.sort().values, asked)
        standing = count - torch.searchsorted(self.upper.sort().values, asked, right=True)
        return RobustnessCurve(
            self.norm,
            count,
            asked,
            held.double() / count,
            standing.double() / count,
            wilson(held, count),
            wilson(standing, count),
        )

    def headline(self, radius: float) -> str:
        """Robust accuracy at a radius in one sentence.

        The 95 % interval reaches from the low end of the certified share's to the high end of the
        attacked one's, so that it covers whatever the truth between them is.
        """
        curve = self.curve([radius])
        low, high = float(curve.certified), float(curve.attacked)
        ends = (float(curve.certified_interval[0, 0]), float(curve.attacked_interval[0, 1]))
        where = f"robust accuracy at {self.norm} radius {radius:g}"
        spread = f"95 % interval for the population {100 * ends[0]:.1f}-{100 * ends[1]:.1f} %"
        if not self.certified:
            spread = f"95 % interval of that share up to {100 * ends[1]:.1f} %"
            here = f"is at most {100 * high:.1f} % on these {len(self)} points ({spread})"
            return f"{where} {here}, nothing is certified"
        between = f"lies between {100 * low:.1f} % and {100 * high:.1f} %"
        gap = self.gap.median
        rest = "no finite bracket" if math.isnan(gap) else f"bracket gap median {100 * gap:.1f} %"
        return f"{where} {between} on these {len(self)} points ({spread}), {rest}"

    def table(self, radii: Sequence[float] | None = None) -> str:
        """The curve as plain text, one line for each radius."""
        lines = [f"{self.norm + ' radius':>11}  {'certified':>24}  {'attacked':>24}"]
        for row in self.curve(radii).rows():
            cells = (
                _cell(row[name], row[f"{name}_interval"]) for name in ("certified", "attacked")
            )
            lines.append(f"{row['radius']:>11.4g}  " + "  ".join(f"{cell:>24}" for cell in cells))
        return "\n".join(lines) + "\n"

    def to_frame(self) -> dict[str, list[Any]]:
        """The points as a dict of columns, which `pandas.DataFrame` takes as it is."""
        return {
            "point": list(range(len(self))),
            "correct": self.correct.tolist(),
            "lower": self.lower.tolist(),
            "upper": self.upper.tolist(),
            "attack": list(self.attack),
            "certificate": list(self.certificate),
        }

    def to_json(self) -> str:
        """Everything as JSON, with null for an infinite radius; `load` reads it."""
        content = {
            "format": _FORMAT,
            "norm": self.norm,
            "box": self.box,
            "certified": self.certified,
            "boxed": self.boxed,
            "warnings": [asdict(warning) for warning in self.warnings],
            "settings": dict(self.settings),
            "lower": _nulls(self.lower),
            "upper": _nulls(self.upper),
            "attack": self.attack,
            "certificate": self.certificate,
        }
        return json.dumps(content, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write `to_json` to a file, whole or not at all."""
        write_whole(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Robustness:
        """Read what `save` wrote; a missing, broken or foreign file is a ValueError."""
        content = read_whole(path)
        _check.require(content is not None, "path", "name an existing file", as_path(path))
        assert content is not None
        try:
            read = json.loads(content)
            _check.choice("format", read.pop("format", None), [_FORMAT])
            warnings = tuple(HealthWarning(**warning) for warning in read.pop("warnings"))
            box = read.pop("box")
            return cls(
                lower=_infinities(read.pop("lower")),
                upper=_infinities(read.pop("upper")),
                box=None if box is None else (float(box[0]), float(box[1])),
                attack=tuple(read.pop("attack")),
                certificate=tuple(read.pop("certificate")),
                warnings=warnings,
                **read,
            )
        except (ValueError, KeyError, TypeError, AttributeError, BracketViolation) as error:
            rule = "be a file that Robustness.save wrote"
            raise ValueError(f"path must {rule}, got {path} ({error!r})") from error

    def _usual(self) -> list[float]:
        asked = self.settings.get("radii")
        return [float(radius) for radius in asked] if asked else usual_radii(self.upper, self.lower)


def checked_radii(radii: object) -> list[float]:
    """Radii as a list of finite numbers >= 0, at least one."""
    good = isinstance(radii, Sequence | Tensor) and not isinstance(radii, str) and len(radii) > 0
    _check.require(good, "radii", "be a sequence of at least one number", radii)
    values = radii.tolist() if isinstance(radii, Tensor) else list(radii)  # type: ignore[call-overload]
    return [_check.number("radii", value, minimum=0.0) for value in values]


def usual_radii(*sizes: Tensor) -> list[float]:
    """0 and five steps to the 90th percentile of the first sizes with positive finite ones."""
    for size in sizes:
        known = size[size.isfinite() & (size > 0)]
        if len(known) > 0:
            top = float(known.quantile(0.9))
            return sorted({0.0, *(float(f"{top * k / 5:.2g}") for k in range(1, 6))})
    return [0.0]


def wilson(hits: Tensor, count: int) -> Tensor:
    """Wilson's 95 % intervals (m, 2) for shares of which hits (m,) of `count` trials were seen.

    (s + z^2/2n -+ z sqrt(s (1 - s)/n + z^2/4n^2)) / (1 + z^2/n) with s = hits/n and z = 1.96.
    """
    share = hits.double() / count
    square = _NORMAL**2 / count
    half = _NORMAL * (share * (1.0 - share) / count + square / (4.0 * count)).sqrt()
    ends = torch.stack([share + 0.5 * square - half, share + 0.5 * square + half], dim=-1)
    return (ends / (1.0 + square)).clamp(0.0, 1.0)


def _cell(share: float, interval: Sequence[float]) -> str:
    return f"{100 * share:.1f} % [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def _nulls(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _infinities(values: Sequence[float | None]) -> Tensor:
    known = [math.inf if value is None else value for value in values]
    return torch.tensor(known, dtype=torch.float64)
