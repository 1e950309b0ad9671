"""An evaluation in words: its sentence and its table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from extremal.evaluate.robustness_curve import Gap, RobustnessCurve


def headline(curve: RobustnessCurve, gap: Gap, *, certified: bool, sampled: bool) -> str:
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
            cell(row[name], row[f"{name}_interval"] if sampled else None)
            for name in ("certified", "attacked")
        )
        lines.append(f"{row['radius']:>11.4g}  " + "  ".join(f"{text:>24}" for text in cells))
    return "\n".join(lines) + "\n"


def cell(share: float, interval: Sequence[float] | None) -> str:
    """A share and perhaps its interval, in percent."""
    ends = "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{percent(share)}{ends}"


def percent(share: float) -> str:
    """A share in percent; only what is exactly none or all is shown as 0.0 % or 100.0 %."""
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if share in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            break
    return f"{text} %"
