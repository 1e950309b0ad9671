"""The summary of an experiment: everything that tables, figures and pages are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from extremal._check import require
from extremal._files import FileError, json_file, read_whole, write_whole
from extremal.experiments.experiment import MARKS, Claim, Experiment, Scale, Settings
from extremal.experiments.panel_data import check_where, look_up, matching, resolve, spread
from extremal.experiments.storage.store import Store, StoredTrial
from extremal.experiments.trial import Trial
from extremal.experiments.verdicts import FITS

_NORMAL = 1.959964  # the normal distribution's 97.5 % quantile


def summarise(
    experiment: Experiment, scale: Scale, store: Store, seeds: int | None = None
) -> dict[str, Any]:
    """What the store has of an experiment at a scale, as JSON values.

    Claims become `rows`, ours against published; panels become plain data. What isn't there yet is
    null or of kind "missing". NaN and infinities are null too, since JSON has neither. Only
    "seconds" depends on anything but the trials' results.
    """
    settings = experiment.at(scale)
    trials = experiment.trials(scale, seeds)
    found = store.read_all(trials)
    done = [stored for stored in found if stored.status == "done"]
    failed = [stored for stored in found if stored.status == "failed"]
    claims = [claim for claim in experiment.claims if scale in claim.scales]
    summary = {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "scale": scale,
        "version": experiment.version,
        "trials": {"done": len(done), "failed": len(failed), "total": len(trials)},
        "failures": [
            {"params": stored.trial.params, "seed": stored.trial.seed, "reason": stored.reason}
            for stored in failed
        ],
        "settings": _provenance(experiment, scale, seeds),
        "marks": MARKS,
        "notes": experiment.notes,
        "rows": [_row(claim, trials, done, settings) for claim in claims],
        "panels": [resolve(panel, trials, done, failed, settings) for panel in experiment.panels],
        "seconds": round(math.fsum(stored.seconds for stored in found), 3),
        "columns": experiment.columns,
    }
    plain: dict[str, Any] = _plain(summary)
    return plain


def write_summary(path: str | Path, summary: dict[str, Any]) -> None:
    """Write a summary as JSON, whole or not at all."""
    write_whole(Path(path), json_file(summary), make_folders=True)


def load_summary(path: str | Path) -> dict[str, Any]:
    """Read a summary that `write_summary` wrote."""
    data = read_whole(Path(path))
    if data is None:
        raise FileError(f"cannot read {path}: no such file")
    try:
        summary = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} must hold a summary as JSON, got {error}") from error
    good = isinstance(summary, dict) and {"experiment", "rows", "panels"} <= set(summary)
    require(good, str(path), "hold a summary", type(summary).__name__)
    result: dict[str, Any] = summary
    return result


def _row(
    claim: Claim, trials: Sequence[Trial], done: Sequence[StoredTrial], settings: Settings
) -> dict[str, Any]:
    """Ours against published: the mean over the matching trials, with minimum and maximum."""
    published, tolerance = _published(claim, trials, done, settings)
    ours, low, high = _spread(claim, claim.where, trials, done)
    ok = None
    if ours is not None and low is not None and high is not None:
        least, most = low, high
        if isinstance(claim.published, Mapping):
            over = claim.rule == "over"
            least = published + _least_lead(claim, claim.published, done) if over else ours
            most = ours
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
        mean, low, high = _spread(claim, claim.published, trials, done)
        if mean is None or low is None or high is None:
            return math.nan, claim.tolerance
        if claim.rule != "near":
            return mean, claim.tolerance
        return (low + high) / 2.0, (high - low) / 2.0 + claim.tolerance
    value = claim.published(settings) if callable(claim.published) else claim.published
    return float(value), claim.tolerance


def _least_lead(claim: Claim, others: Mapping[str, Any], done: Sequence[StoredTrial]) -> float:
    """The least difference to the trial of the same seed among `others`; NaN where one lacks it."""
    sides = [matching(where, done) for where in (claim.where, others)]
    ours, theirs = ({one.trial.seed: look_up(claim.value, one) for one in side} for side in sides)
    single = len(ours) + len(theirs) == sum(map(len, sides))
    require(single, f"where of {claim.quantity!r}", "match one trial of a seed", "several")
    if ours.keys() != theirs.keys() or None in (*ours.values(), *theirs.values()):
        return math.nan
    return spread([ours[seed] - theirs[seed] for seed in ours])[1]


def _spread(
    claim: Claim, where: Mapping[str, Any], trials: Sequence[Trial], done: Sequence[StoredTrial]
) -> tuple[float | None, float | None, float | None]:
    """Mean, minimum and maximum of the claim's value over the matching trials, or an interval."""
    check_where(claim.quantity, where, trials)
    if claim.interval in FITS:
        return _fitted(claim, matching(where, done))
    values = [look_up(claim.value, stored) for stored in matching(where, done)]
    scalar = all(value is None or isinstance(value, int | float) for value in values)
    require(scalar, claim.value, f"be a number for {claim.quantity!r}", values)
    if values and claim.interval == "share":
        return _wilson(claim.value, values)
    return spread(values) if values else (None, None, None)


def _fitted(
    claim: Claim, found: Sequence[StoredTrial]
) -> tuple[float | None, float | None, float | None]:
    """The slope of one fit to the points of all these trials, and the ends of its interval."""
    if not found:
        return None, None, None
    points: list[tuple[Any, Any]] = []
    for stored in found:
        known = claim.against in stored.trial.params
        places = stored.trial.params[claim.against] if known else look_up(claim.against, stored)
        values = look_up(claim.value, stored)
        both = [each if isinstance(each, list) else [each] for each in (places, values)]
        rule = f"be as long as {claim.against!r}, {len(both[0])}"
        require(len(both[0]) == len(both[1]), claim.value, rule, len(both[1]))
        points += zip(*both, strict=True)
    kept = [(x, y) for x, y in points if y is not None and not math.isnan(y)]
    fit = FITS[claim.interval]([x for x, _ in kept], [y for _, y in kept])
    return fit.slope, fit.low, fit.high


def _wilson(name: str, values: Sequence[Any]) -> tuple[float, float, float]:
    """The share of ones, and the ends of its interval: Wilson 1927, with 95 % confidence."""
    require(set(values) <= {0, 1}, name, "be 0 or 1 in each trial", sorted(set(values)))
    n, share = len(values), math.fsum(values) / len(values)
    weight = _NORMAL**2 / n
    middle = (share + weight / 2) / (1 + weight)
    half = _NORMAL / (1 + weight) * math.sqrt(share * (1 - share) / n + weight / (4 * n))
    return share, middle - half, middle + half


def _agrees(
    rule: str, tolerance: float, mean: float, low: float, high: float, published: float
) -> bool:
    """Whether the mean is near, or every trial within a bound: a bound has no exceptions."""
    # Decimal fractions aren't exact in binary: 0.8 - 0.7 must be within 0.1.
    margin = tolerance + 1e-9 * max(1.0, abs(published))
    return {
        "near": abs(mean - published) <= margin,
        "above": low >= published - margin,
        "below": high <= published + margin,
        "over": low > published + margin,
    }[rule]


def _provenance(experiment: Experiment, scale: Scale, seeds: int | None) -> list[dict[str, Any]]:
    rows = experiment.provenance(scale)
    if seeds is None or seeds == experiment.at(scale).get("seeds", 1):
        return rows
    chosen = {"name": "seeds", "value": seeds, "mark": "O", "note": "asked for in this run"}
    return [*(row for row in rows if row["name"] != "seeds"), chosen]


def _plain(value: Any) -> Any:
    """The same as JSON will give it back: lists for tuples, null for NaN and infinities."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
