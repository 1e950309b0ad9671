"""Commands about a model file: evaluate, which attacks and certifies, and certify alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from extremal import evaluate, report
from extremal.certify import Certificate, certificate
from extremal.cli.options import (
    BoxOption,
    ChosenPoints,
    DataOption,
    EffortOption,
    EvaluationOptions,
    JsonOption,
    ModelArgument,
    NormOption,
    PointsOption,
    RadiusOption,
    SeedOption,
    ShuffleOption,
    SplitOption,
    correctly_classified,
)
from extremal.cli.output import print_json, print_lines, print_paths
from extremal.evaluate import (
    Robustness,
    default_radii,
    finite_or_none,
    output_warnings,
    share_with_interval,
    wilson_interval,
)

# Levels at which `certify` gives quantiles of the certified radii.
QUANTILE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
IGNORED_BOX = "the certificate ignores the box: it holds there, and could be larger"

OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder for the numbers and the figure.")
]
app = typer.Typer()


@app.command(name="evaluate")
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
    asked = EvaluationOptions(model, data, norm, radius, effort, points, shuffle, split, box, seed)
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
        print_json(_evaluation_as_json(result, asked.settings(chosen), files))
    else:
        _print_evaluation(result, radius, files)


def _evaluation_as_json(
    result: Robustness, settings: dict[str, Any], files: Sequence[str]
) -> dict[str, Any]:
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


def _print_evaluation(result: Robustness, radius: list[float] | None, files: Sequence[str]) -> None:
    radii = result.curve().radii.tolist()
    print_lines(*result.table().splitlines())
    print_lines(*(result.headline(at) for at in radius or [radii[len(radii) // 2]]))
    if result.box is not None and result.certified and not result.boxed:
        print_lines(IGNORED_BOX)
    print_lines(*(f"warning: {warning.sentence}" for warning in result.warnings))
    print_paths(*files)


@app.command(name="certify")
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

    Warnings say where the numbers can't be trusted.

    Example:  extremal certify net.safetensors --data mnist --effort fast
    """
    asked = EvaluationOptions(model, data, norm, radius, effort, points, shuffle, split, box, seed)
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
    right = correctly_classified(net, test)
    told = {
        **_certified_shares(
            proof.radius, right, radius or default_radii(proof.radius), chosen.sampled
        ),
        "methods": _methods(proof),
        "warnings": [asdict(warning) for warning in output_warnings(net, test)],
        "settings": {**asked.settings(chosen), "boxed": proof.boxed},
    }
    if as_json:
        print_json(told)
    else:
        _print_certificate(told, norm, chosen)


def _certified_shares(
    certified: Tensor, right: Tensor, radii: list[float], sampled: bool
) -> dict[str, Any]:
    """Shares of all points, and quantiles of the radii (n,) of the correctly classified ones."""
    rows = []
    for at in sorted(set(radii)):
        share, interval = _share(right & (certified >= at), sampled)
        rows.append({"radius": at, "certified": share, "interval": interval})
    clean, interval = _share(right, sampled)
    levels = torch.tensor(QUANTILE_LEVELS, dtype=torch.float64)
    known = certified[right].quantile(levels).tolist() if bool(right.any()) else []
    return {
        "clean": {"accuracy": clean, "interval": interval, "correct": int(right.sum())},
        "table": rows,
        "quantiles": {
            str(level): finite_or_none(known[k]) if known else None
            for k, level in enumerate(QUANTILE_LEVELS)
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


def _print_certificate(told: dict[str, Any], norm: str, chosen: ChosenPoints) -> None:
    print_lines(f"{norm + ' radius':>11}  {'certified':>24}")
    for row in told["table"]:
        print_lines(
            f"{row['radius']:>11.4g}  {share_with_interval(row['certified'], row['interval']):>24}"
        )
    clean = told["clean"]
    if chosen.data.box is not None and not told["settings"]["boxed"]:
        print_lines(IGNORED_BOX)
    accuracy = share_with_interval(clean["accuracy"], clean["interval"])
    print_lines(f"clean accuracy {accuracy} on {chosen.sentence}")
    _print_quantiles(told)
    print_lines(*(f"warning: {warning['sentence']}" for warning in told["warnings"]))


def _print_quantiles(told: dict[str, Any]) -> None:
    clean = told["clean"]
    if clean["correct"] == 0:
        print_lines("no point is classified correctly: no quantiles")
        return
    quantiles = ", ".join(
        f"{100 * float(level):.0f} %: {'inf' if size is None else format(size, '.4g')}"
        for level, size in told["quantiles"].items()
    )
    many = f"the {clean['correct']} correctly classified points alone"
    print_lines(f"quantiles of the certified radius, of {many}: {quantiles}")
