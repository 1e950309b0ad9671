"""The command that evaluates a model file; `add_to` adds it and `certify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from extremal import evaluate, report
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
    say,
)
from extremal.cli.certify import certify_model
from extremal.evaluate import Robustness, finite_or_none

OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder for the numbers and the figure.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands about a model file."""
    app.command(name="evaluate")(evaluate_model)
    app.command(name="certify")(certify_model)


def evaluate_model(
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
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bound a network's robust accuracy from both sides: attacks above, a certificate below.

    Warnings say where the numbers can't be trusted.

    Example:  extremal evaluate net.safetensors --data mnist --radius 0.5 -r 1
    """
    asked = Asked(model, data, norm, radius, effort, points, shuffle, split, box, seed)
    net, chosen = asked.read()
    result = evaluate(
        net,
        chosen.data,
        norm=norm,
        radii=radius or None,
        effort=effort,  # type: ignore[arg-type]  # it was checked
        sampled=chosen.sampled,
        generator=torch.Generator().manual_seed(seed),
        progress=sys.stderr.isatty(),
    )
    files = [] if out is None else [str(path) for path in report.save_robustness(result, out)]
    if as_json:
        print(json.dumps(_told(result, asked.settings(chosen), files), indent=2))
    else:
        _print(result, radius, files)


def _told(result: Robustness, settings: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """What `--json` prints."""
    curve = result.curve()
    rows = curve.rows()
    if not result.sampled:  # an interval would be of no population
        rows = [row | {"certified_interval": None, "attacked_interval": None} for row in rows]
    return {
        "headline": [result.headline(at) for at in curve.radii.tolist()],
        "table": rows,
        "gap": {name: finite_or_none(value) for name, value in asdict(result.gap).items()},
        "warnings": [asdict(warning) for warning in result.warnings],
        "settings": {**settings, "boxed": result.boxed, **result.settings},
        "files": list(files),
    }


def _print(result: Robustness, radius: list[float] | None, files: Sequence[str]) -> None:
    radii = result.curve().radii.tolist()
    say(*result.table().splitlines())
    say(*(result.headline(at) for at in radius or [radii[len(radii) // 2]]))
    if result.box is not None and result.certified and not result.boxed:
        say("the certificate ignores the box: it holds there, and could be larger")
    say(*(f"warning: {warning.sentence}" for warning in result.warnings))
    for path in files:
        print(path)
