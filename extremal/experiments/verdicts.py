"""Ours against published: the rows of a summary, with fits and intervals; do they agree?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from extremal._check import require
from extremal.evaluate import wilson_interval
from extremal.experiments.experiment import Claim, Settings
from extremal.experiments.panel_data import check_where, look_up, matching, mean_and_range
from extremal.experiments.storage.store import StoredTrial
from extremal.experiments.trial import Trial

# Fewer points than three have no interval: two always lie on a line.
_FEWEST_POINTS_OF_A_FIT = 3
# Decimal fractions are not exact in binary: 0.8 - 0.7 must count as within 0.1.
_ROUNDING_SHARE = 1e-9

Interval = tuple[float | None, float | None, float | None]  # ours, and the ends beside it


def verdict(
    claim: Claim, trials: Sequence[Trial], done: Sequence[StoredTrial], settings: Settings
) -> dict[str, Any]:
    """Ours against published: the mean over the matching trials, with minimum and maximum."""
    published, tolerance = _published(claim, trials, done, settings)
    ours, low, high = _interval(claim, claim.where, trials, done)
    ok = None
    if ours is not None and low is not None and high is not None:
        least, most = low, high
        if isinstance(claim.published, Mapping):
            least = most = ours
            if claim.rule == "over":
                least = published + smallest_paired_difference(claim, claim.published, done)
        known = not any(map(math.isnan, (ours, least, published)))
        ok = _agrees(claim.rule, tolerance, ours, least, most, published) if known else None
    return {
        "quantity": claim.quantity,
        "published": published,
        "ours": ours,
        "low": low,
        "high": high,
        "tolerance": tolerance,
        "ok": ok,
        "source": claim.source,
        "rule": claim.rule,
        "n": len(matching(claim.where, done)),
    }


def _published(
    claim: Claim, trials: Sequence[Trial], done: Sequence[StoredTrial], settings: Settings
) -> tuple[float, float]:
    """The value to compare with and the tolerance; NaN where there is none.

    Where other trials give it: the middle of their range, or their mean for a bound.
    """
    if claim.published is None:
        return math.nan, claim.tolerance
    if isinstance(claim.published, Mapping):
        mean, low, high = _interval(claim, claim.published, trials, done)
        if mean is None or low is None or high is None:
            return math.nan, claim.tolerance
        if claim.rule != "near":
            return mean, claim.tolerance
        return (low + high) / 2.0, (high - low) / 2.0 + claim.tolerance
    value = claim.published(settings) if callable(claim.published) else claim.published
    return float(value), claim.tolerance


def smallest_paired_difference(
    claim: Claim, others: Mapping[str, Any], done: Sequence[StoredTrial]
) -> float:
    """The least difference to the trial of the same seed among `others`; NaN where one lacks it."""
    sides = [matching(where, done) for where in (claim.where, others)]
    ours, theirs = ({one.trial.seed: look_up(claim.value, one) for one in side} for side in sides)
    single = len(ours) + len(theirs) == sum(map(len, sides))
    require(single, f"where of {claim.quantity!r}", "match one trial of a seed", "several")
    if ours.keys() != theirs.keys() or None in (*ours.values(), *theirs.values()):
        return math.nan
    return mean_and_range([ours[seed] - theirs[seed] for seed in ours])[1]


def _interval(
    claim: Claim, where: Mapping[str, Any], trials: Sequence[Trial], done: Sequence[StoredTrial]
) -> Interval:
    """Mean, minimum and maximum of the claim's value over the matching trials, or an interval."""
    check_where(claim.quantity, where, trials)
    found = matching(where, done)
    if not found:
        return None, None, None
    if claim.interval in FITS:
        return _fitted(claim, found)
    values = [look_up(claim.value, stored) for stored in found]
    scalar = all(value is None or isinstance(value, int | float) for value in values)
    require(scalar, claim.value, f"be a number for {claim.quantity!r}", values)
    return _share(claim.value, values) if claim.interval == "share" else mean_and_range(values)


def _share(name: str, values: Sequence[Any]) -> Interval:
    """The share of ones, and the ends of its interval: Wilson 1927, with 95 % confidence."""
    require(set(values) <= {0, 1}, name, "be 0 or 1 in each trial", sorted(set(values)))
    (ends,) = wilson_interval(torch.tensor([float(sum(values))]), len(values)).tolist()
    return math.fsum(values) / len(values), *ends


def _fitted(claim: Claim, found: Sequence[StoredTrial]) -> Interval:
    """The slope of one fit to the points of all these trials, and the ends of its interval."""
    points: list[tuple[Any, Any]] = []
    for stored in found:
        known = claim.abscissa in stored.trial.params
        places = stored.trial.params[claim.abscissa] if known else look_up(claim.abscissa, stored)
        values = look_up(claim.value, stored)
        both = [each if isinstance(each, list) else [each] for each in (places, values)]
        rule = f"be as long as {claim.abscissa!r}, {len(both[0])}"
        require(len(both[0]) == len(both[1]), claim.value, rule, len(both[1]))
        points += zip(*both, strict=True)
    kept = [(x, y) for x, y in points if y is not None and not math.isnan(y)]
    fit = FITS[claim.interval]([x for x, _ in kept], [y for _, y in kept])
    return fit.slope, fit.low, fit.high


def _agrees(
    rule: str, tolerance: float, mean: float, low: float, high: float, published: float
) -> bool:
    """Whether the mean is near, or every trial within a bound: a bound has no exceptions."""
    margin = tolerance + _ROUNDING_SHARE * max(1.0, abs(published))
    return {
        "near": abs(mean - published) <= margin,
        "above": low >= published - margin,
        "below": high <= published + margin,
        "over": low > published + margin,
    }[rule]


@dataclass(frozen=True)
class LineFit:
    """A line by least squares: its slope, the ends of that one's 95 % interval, the rms residual.

    All are NaN where there are fewer than three points, or all at one place.
    """

    slope: float
    low: float
    high: float
    residual: float


def line_fit(x: Sequence[float], y: Sequence[float]) -> LineFit:
    """The line through points; its interval is Student's, for errors of one size."""
    require(len(x) == len(y), "y", f"have {len(x)} values", len(y))
    if len(x) < _FEWEST_POINTS_OF_A_FIT or len(set(x)) < 2:
        return LineFit(math.nan, math.nan, math.nan, math.nan)
    from scipy import stats  # noqa: PLC0415 - slow to load, and only fits need it

    found = stats.linregress(x, y)
    slope, half = float(found.slope), float(stats.t.ppf(0.975, len(x) - 2) * found.stderr)
    rests = [b - float(found.intercept) - slope * a for a, b in zip(x, y, strict=True)]
    residual = math.sqrt(math.fsum(rest**2 for rest in rests) / len(x))
    return LineFit(slope, slope - half, slope + half, residual)


def exponential_fit(x: Sequence[float], y: Sequence[float]) -> LineFit:
    """y = a 2^(slope x): doublings for each step of x; the residual is in doublings."""
    return line_fit(x, _doublings("y", y))


def power_fit(x: Sequence[float], y: Sequence[float]) -> LineFit:
    """y = a x^slope; the residual is in doublings."""
    return line_fit(_doublings("x", x), _doublings("y", y))


def exponential_over_power(x: Sequence[float], y: Sequence[float]) -> LineFit:
    """In place of a slope the exponential fit's residual over the power's; an interval of none.

    Below 1 the points are nearer to exponential growth than to a power law.
    """
    fast, slow = exponential_fit(x, y).residual, power_fit(x, y).residual
    ratio = fast / slow if slow > 0 else math.nan
    return LineFit(ratio, ratio, ratio, fast)


def _doublings(name: str, values: Sequence[float]) -> list[float]:
    require(all(value > 0 for value in values), name, "be above 0 for a growth law", values)
    return [math.log2(value) for value in values]


FITS: dict[str, Callable[[Sequence[float], Sequence[float]], LineFit]] = {
    "exponential": exponential_fit,
    "power": power_fit,
    "lead": exponential_over_power,
}
