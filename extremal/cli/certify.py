"""The command that certifies a model file."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor

from extremal.certify import Certificate, certificate
from extremal.cli.asked import (
    Asked,
    BoxOption,
    DataOption,
    EffortOption,
    JsonOption,
    ModelArgument,
    NormOption,
    PointsOption,
    RadiusOption,
    SeedOption,
    ShuffleOption,
    SplitOption,
    correct,
    say,
)
from extremal.cli.points import Points
from extremal.evaluate import (
    default_radii,
    finite_or_none,
    share_with_interval,
    wilson_interval,
)

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def certify_model(
    model: ModelArgument,
    data: DataOption,
    norm: NormOption = "l2",
    radius: RadiusOption = None,
    effort: EffortOption = "tight",
    points: PointsOption = 500,
    shuffle: ShuffleOption = True,
    split: SplitOption = "test",
    box: BoxOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Certify radii at which no attack can change a network's answers.

    Example:  extremal certify net.safetensors --data mnist --effort fast
    """
    asked = Asked(model, data, norm, radius, effort, points, shuffle, split, box, seed)
    net, chosen = asked.read()
    test = chosen.data
    proof = certificate(
        net,
        test.x,
        test.y,
        norm=norm,
        box=test.box,
        effort=effort,  # type: ignore[arg-type]  # it was checked
        progress=sys.stderr.isatty(),
    )
    right = correct(net, test)
    told = {
        **_numbers(proof.radius, right, radius or default_radii(proof.radius), chosen.sampled),
        "methods": _methods(proof),
        "settings": {**asked.settings(chosen), "boxed": proof.boxed},
    }
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        _print(told, norm, chosen)


def _numbers(certified: Tensor, right: Tensor, radii: list[float], sampled: bool) -> dict[str, Any]:
    """Shares of all points, and quantiles of the radii (n,) of the correctly classified ones."""
    rows = []
    for at in sorted(set(radii)):
        share, interval = _share(right & (certified >= at), sampled)
        rows.append({"radius": at, "certified": share, "interval": interval})
    clean, interval = _share(right, sampled)
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    known = certified[right].quantile(levels).tolist() if bool(right.any()) else []
    return {
        "clean": {"accuracy": clean, "interval": interval, "correct": int(right.sum())},
        "table": rows,
        "quantiles": {
            str(level): finite_or_none(known[k]) if known else None
            for k, level in enumerate(QUANTILES)
        },
    }


def _share(holds: Tensor, sampled: bool) -> tuple[float, list[float] | None]:
    """The share of points (n,) for which something holds, and its 95 % interval for a sample."""
    count = holds.sum()
    interval = wilson_interval(count, len(holds)).tolist() if sampled else None
    return int(count) / len(holds), interval


def _methods(proof: Certificate) -> dict[str, int]:
    """Of how many points each bound gave the radius."""
    counts = torch.bincount(proof.method[proof.method >= 0], minlength=len(proof.methods))
    return dict(zip(proof.methods, counts.tolist(), strict=True))


def _print(told: dict[str, Any], norm: str, chosen: Points) -> None:
    say(f"{norm + ' radius':>11}  {'certified':>24}")
    for row in told["table"]:
        say(f"{row['radius']:>11.4g}  {share_with_interval(row['certified'], row['interval']):>24}")
    clean = told["clean"]
    if chosen.data.box is not None and not told["settings"]["boxed"]:
        say("the certificate ignores the box: it holds there, and could be larger")
    accuracy = share_with_interval(clean["accuracy"], clean["interval"])
    say(f"clean accuracy {accuracy} on {chosen.sentence}")
    if clean["correct"] == 0:
        say("no point is classified correctly: no quantiles")
        return
    quantiles = ", ".join(
        f"{100 * float(level):.0f} %: {'inf' if size is None else format(size, '.4g')}"
        for level, size in told["quantiles"].items()
    )
    many = f"the {clean['correct']} correctly classified points alone"
    say(f"quantiles of the certified radius, of {many}: {quantiles}")
