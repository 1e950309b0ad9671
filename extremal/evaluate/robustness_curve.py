"""Robust accuracy against the radius, how sure a share of so many points is, and both in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from extremal import _check

# The quantile of the normal distribution for intervals of 95 %, 1.96.
_NORMAL_QUANTILE = NormalDist().inv_cdf(0.975)


def headline(curve: RobustnessCurve, gap: BracketGap, *, certified: bool, sampled: bool) -> str:
    """Robust accuracy at the curve's one radius in a sentence.

    The 95 % interval reaches from the low end of the certified share's to the high end of the
    attacked one's, so that it covers whatever the truth between them is. There is none where the
    points are no random sample.
    """
    low, high = (percent(float(share)) for share in (curve.certified, curve.attacked))
    ends = (float(curve.certified_interval[0, 0]), float(curve.attacked_interval[0, 1]))
    if not sampled:
        spread = "not drawn at random: no interval for the population"
    elif certified:
        spread = f"95 % interval for the population {100 * ends[0]:.1f}-{100 * ends[1]:.1f} %"
    else:
        spread = f"95 % interval of that share up to {100 * ends[1]:.1f} %"
    where = f"robust accuracy at {curve.norm} radius {float(curve.radii):g}"
    points = f"on these {curve.count} points ({spread})"
    if not certified:
        return f"{where} is at most {high} {points}, nothing is certified"
    median = gap.median
    rest = "no finite bracket" if math.isnan(median) else f"bracket gap median {percent(median)}"
    return f"{where} lies between {low} and {high} {points}, {rest}"


def table(curve: RobustnessCurve, *, sampled: bool) -> str:
    """The curve as plain text, one line for each radius; with intervals for a random sample."""
    lines = [f"{curve.norm + ' radius':>11}  {'certified':>24}  {'attacked':>24}"]
    for row in curve.rows():
        cells = (
            share_with_interval(row[name], row[f"{name}_interval"] if sampled else None)
            for name in ("certified", "attacked")
        )
        lines.append(f"{row['radius']:>11.4g}  " + "  ".join(f"{text:>24}" for text in cells))
    return "\n".join(lines) + "\n"


def share_with_interval(share: float, interval: Sequence[float] | None) -> str:
    """A share and perhaps its interval, in percent.

    Arguments:

    - `share`: a number in 0..1.
    - `interval`: (low, high) in the same units; None leaves it out.
    """
    ends = "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{percent(share)}{ends}"


def percent(share: float) -> str:
    """A share in percent; only what is exactly none or all is shown as 0.0 % or 100.0 %."""
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if share in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            break
    return f"{text} %"


@dataclass(frozen=True)
class BracketGap:
    """How wide the brackets are: 1 - lower/upper; NaN where no point has a finite one."""

    median: float  # over correct points with a finite upper radius
    ninetieth: float  # percentile


@dataclass(frozen=True, eq=False)
class RobustnessCurve:
    """Robust accuracy at each radius, from below and from above, with 95 % intervals.

    The intervals are Wilson's, for the share in the population that the points were drawn from.
    They say nothing of it where the points were not drawn at random.
    """

    norm: str  # "l1", "l2" or "linf", the norm of the radii
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


def checked_radii(radii: object) -> list[float]:
    """Radii as a list of finite numbers >= 0, at least one."""
    good = isinstance(radii, Sequence | Tensor) and not isinstance(radii, str) and len(radii) > 0
    _check.require(good, "radii", "be a sequence of at least one number", radii)
    values = radii.tolist() if isinstance(radii, Tensor) else list(radii)  # type: ignore[call-overload]
    return [_check.number("radii", value, minimum=0.0) for value in values]


def default_radii(*sizes: Tensor) -> list[float]:
    """0 and five steps to the 90th percentile of the first sizes with positive finite ones.

    Arguments:

    - `sizes`: radii (n,), once or more often.
    """
    for size in sizes:
        known = size[size.isfinite() & (size > 0)]
        if len(known) > 0:
            top = float(known.quantile(0.9))
            return sorted({0.0, *(float(f"{top * k / 5:.2g}") for k in range(1, 6))})
    return [0.0]


def wilson_interval(hits: Tensor, count: int) -> Tensor:
    """Wilson's 95 % intervals (m, 2) for shares of which hits (m,) of `count` trials were seen.

    (s + z^2/2n -+ z sqrt(s (1 - s)/n + z^2/4n^2)) / (1 + z^2/n) with s = hits/n and z = 1.96.

    Arguments:

    - `hits`: counts (m,), whole numbers in 0..count.
    - `count`: the number of trials, n.
    """
    share = hits.double() / count
    square = _NORMAL_QUANTILE**2 / count
    half = _NORMAL_QUANTILE * (share * (1.0 - share) / count + square / (4.0 * count)).sqrt()
    ends = torch.stack([share + 0.5 * square - half, share + 0.5 * square + half], dim=-1)
    return (ends / (1.0 + square)).clamp(0.0, 1.0)
