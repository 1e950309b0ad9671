"""What is known of a network's robustness: for each point a radius from below and from above.

Files hold it as JSON, which has neither infinities nor NaN nor tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extremal import _check
from extremal._files import as_path, read_whole, write_whole
from extremal.attack import Ball
from extremal.data import Box
from extremal.evaluate import robustness_curve
from extremal.evaluate.health_checks import HealthWarning
from extremal.evaluate.robustness_curve import (
    BracketGap,
    RobustnessCurve,
    checked_radii,
    default_radii,
    wilson_interval,
)

# By this share rounding may put a certified radius above an attacked one.
BRACKET_ROUNDING_SHARE = 1e-6
# The name of the file format, which a file begins with.
_FILE_FORMAT = "extremal-robustness-1"


def finite_or_none(value: float) -> float | None:
    """The number as JSON has it: None for NaN and infinity.

    Arguments:

    - `value`: any number.
    """
    return value if math.isfinite(value) else None


def radii_to_json(values: Tensor) -> list[float | None]:
    """Numbers (n,) with None for the infinite ones."""
    return [finite_or_none(value) for value in values.tolist()]


def radii_from_json(values: Sequence[float | None]) -> Tensor:
    """What `radii_to_json` was made of, (n,) in float64."""
    known = [math.inf if value is None else value for value in values]
    return torch.tensor(known, dtype=torch.float64)


def box_to_json(box: Box | None) -> list[float | list[float]] | None:
    """A box as two numbers, or as two lists with one for each coordinate.

    Arguments:

    - `box`: (low, high), numbers or (dim,) tensors; None for no limits.
    """
    if box is None:
        return None
    return [end.tolist() if isinstance(end, Tensor) else float(end) for end in box]


def box_from_json(box: Any) -> Box | None:
    """What `box_to_json` was made of, tensors in float64."""
    if box is None:
        return None
    low, high = box
    if isinstance(low, list):
        return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
    return float(low), float(high)


class BracketViolation(RuntimeError):  # noqa: N818 - it is named for what happened
    """A point was broken within its certified radius: a certificate or an attack is wrong.

    `points` holds the indices.
    """

    def __init__(self, points: Sequence[int], worst: str) -> None:
        self.points = tuple(points)
        shown = ", ".join(map(str, self.points[:10])) + (", ..." if len(self.points) > 10 else "")
        many = f"{len(self.points)} point{'s' if len(self.points) > 1 else ''}"
        super().__init__(f"{many} broken within the certified radius ({worst}): {shown}")


def check_bracket(lower: Tensor, upper: Tensor, where: str = "") -> None:
    """Require that no certified radius (n,) is above the attacked one.

    Arguments:

    - `lower`: certified radii (n,).
    - `upper`: attacked radii (n,), inf where no attack was found. A certified radius that is
      larger, by a share of more than 1e-6 for rounding, raises a `BracketViolation`.
    - `where`: words for the error that say of what the radii are; none by default.
    """
    bad = torch.nonzero(lower > upper * (1.0 + BRACKET_ROUNDING_SHARE)).squeeze(1)
    if len(bad) > 0:
        at = bad[(lower[bad] - upper[bad]).argmax()]
        worst = f"certified {float(lower[at]):g}, broken at {float(upper[at]):g}"
        raise BracketViolation(bad.tolist(), f"{where}: {worst}" if where else worst)


@dataclass(frozen=True, eq=False)
class Robustness:
    """For each of n points: no perturbation of norm <= lower changes its class, one of upper does.

    Both are 0 where a point is misclassified; upper is inf where no attack was found, and lower is
    0 where nothing is certified. In `attack` a misclassified point has "clean", and one that
    nothing was found for "". Only where `sampled` is set is there an interval for the population. A
    lower radius above an upper one is a `BracketViolation`.
    """

    lower: Tensor  # (n,) float64
    upper: Tensor  # (n,) float64
    norm: str  # "l1", "l2" or "linf", the norm of perturbations
    box: Box | None  # (low, high) that attacks stay in; None for no limits
    certified: bool  # whether a certificate took part
    boxed: bool  # whether the certificate used the box, which attacks always do
    attack: tuple[str, ...]  # (n,): what found each upper radius; "clean" or "" where none
    certificate: tuple[str, ...]  # (n,): what gave each lower radius, "" where nothing did
    warnings: tuple[HealthWarning, ...] = ()  # what the health checks noticed
    settings: Mapping[str, Any] = field(default_factory=dict)  # those of the evaluation, by name
    sampled: bool = True  # whether the points are a random sample, or a whole data set

    def __post_init__(self) -> None:
        Ball(self.norm, 0.0, self.box)  # which checks norm and box
        count = len(self.upper)
        for name in ("lower", "upper", "attack", "certificate"):
            length = len(getattr(self, name))
            _check.require(length == count, name, f"have {count} entries", length)
        _check.require(count >= 1, "upper", "have at least one entry", count)
        for name in ("lower", "upper"):
            value = getattr(self, name).detach().double().cpu()
            _check.require(bool((value >= 0).all()), name, "be >= 0 and not NaN", value.tolist())
            object.__setattr__(self, name, value)
        check_bracket(self.lower, self.upper)

    def __len__(self) -> int:
        return len(self.upper)

    @property
    def correct(self) -> Tensor:
        """Which points are classified correctly, (n,) bool."""
        return self.upper > 0

    @property
    def gap(self) -> BracketGap:
        """Median and 90th percentile of 1 - lower/upper, for correct points with a finite upper."""
        bracketed = self.correct & self.upper.isfinite()
        if not bool(bracketed.any()):
            return BracketGap(math.nan, math.nan)
        gaps = (1.0 - self.lower[bracketed] / self.upper[bracketed]).clamp(min=0.0)
        return BracketGap(float(gaps.quantile(0.5)), float(gaps.quantile(0.9)))

    def curve(self, radii: Sequence[float] | None = None) -> RobustnessCurve:
        """Certified and attacked accuracy at each radius.

        Robust accuracy at r lies between the shares of points with lower >= r (and upper > r, so
        that a misclassified point does not count at r = 0) and with upper > r. `radii` are those
        of the evaluation unless given, or else about six that span the attacked ones.
        """
        wanted = checked_radii(self._default_radii() if radii is None else radii)
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
            wilson_interval(held, count),
            wilson_interval(standing, count),
        )

    def headline(self, radius: float) -> str:
        """Robust accuracy at one `radius` in one sentence, see `robustness_curve.headline`."""
        curve = self.curve([radius])
        return robustness_curve.headline(
            curve, self.gap, certified=self.certified, sampled=self.sampled
        )

    def table(self, radii: Sequence[float] | None = None) -> str:
        """The curve as plain text, one line for each of `radii`; None is as in `curve`."""
        return robustness_curve.table(self.curve(radii), sampled=self.sampled)

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
            "format": _FILE_FORMAT,
            "norm": self.norm,
            "box": box_to_json(self.box),
            "certified": self.certified,
            "boxed": self.boxed,
            "warnings": [asdict(warning) for warning in self.warnings],
            "settings": dict(self.settings),
            "sampled": self.sampled,
            "lower": radii_to_json(self.lower),
            "upper": radii_to_json(self.upper),
            "attack": self.attack,
            "certificate": self.certificate,
        }
        return json.dumps(content, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write `to_json` to the file `path`, whole or not at all."""
        write_whole(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Robustness:
        """Read from `path` what `save` wrote; a missing, broken or foreign file is a ValueError."""
        content = read_whole(path)
        _check.require(content is not None, "path", "name an existing file", as_path(path))
        try:
            read = json.loads(content or b"")
            _check.choice("format", read.pop("format", None), [_FILE_FORMAT])
            warnings = tuple(HealthWarning(**warning) for warning in read.pop("warnings"))
            return cls(
                lower=radii_from_json(read.pop("lower")),
                upper=radii_from_json(read.pop("upper")),
                box=box_from_json(read.pop("box")),
                attack=tuple(read.pop("attack")),
                certificate=tuple(read.pop("certificate")),
                warnings=warnings,
                **read,
            )
        except (ValueError, KeyError, TypeError, AttributeError, BracketViolation) as error:
            rule = "be a file that Robustness.save wrote"
            raise ValueError(f"path must {rule}, got {path} ({error!r})") from error

    def _default_radii(self) -> list[float]:
        asked = self.settings.get("radii")
        return (
            [float(radius) for radius in asked] if asked else default_radii(self.upper, self.lower)
        )
