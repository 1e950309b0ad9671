"""Commands about a model file: evaluate, certify."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor, nn

from extremal import _check, evaluate, report
from extremal._robustness import usual_radii, wilson
from extremal.attack.ball import NORMS
from extremal.certify import certificate
from extremal.certify.radius import EFFORTS
from extremal.cli.points import read_points
from extremal.data import Dataset
from extremal.models import double, load, output_margins

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

ModelArgument = Annotated[Path, typer.Argument(help="A model file: net.save('net.safetensors').")]
DataOption = Annotated[
    str, typer.Option("--data", "-d", help="mnist, or a .safetensors or .npz file with x and y.")
]
NormOption = Annotated[str, typer.Option(help="l1, l2 or linf.")]
RadiusOption = Annotated[
    list[float] | None, typer.Option("--radius", "-r", help="A radius; may be given several times.")
]
EffortOption = Annotated[str, typer.Option(help="tight, or fast.")]
PointsOption = Annotated[int, typer.Option(help="How many points at most, from the first on.")]
ShuffleOption = Annotated[bool, typer.Option("--shuffle", help="Take random points instead.")]
SplitOption = Annotated[str, typer.Option(help="test or train, of a data set with both.")]
BoxOption = Annotated[
    str | None, typer.Option(help="low,high or none; a known data set has its own.")
]
SeedOption = Annotated[int, typer.Option(help="Of everything that is random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="evaluate")(evaluate_model)
    app.command(name="certify")(certify_model)


def evaluate_model(
    model: ModelArgument,
    data: DataOption,
    norm: NormOption = "l2",
    radius: RadiusOption = None,
    effort: EffortOption = "tight",
    points: PointsOption = 500,
    shuffle: ShuffleOption = False,
    split: SplitOption = "test",
    box: BoxOption = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the numbers and the figure.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bound a network's robust accuracy from both sides: attacks above, a certificate below.

    Warnings say where the numbers can't be trusted.

    Example:  extremal evaluate net.safetensors --data mnist --radius 0.5 -r 1
    """
    net, test = _read(model, data, norm, radius, effort, points, shuffle, split, box, seed)
    result = evaluate(
        net,
        test,
        norm=norm,
        radii=radius or None,
        effort=effort,  # type: ignore[arg-type]  # it was checked
        generator=torch.Generator().manual_seed(seed),
        progress=sys.stderr.isatty(),
    )
    files = [] if out is None else report.save_robustness(result, out)
    curve = result.curve()
    told = {
        "headline": [result.headline(at) for at in curve.radii.tolist()],
        "table": curve.rows(),
        "gap": {name: _number(value) for name, value in asdict(result.gap).items()},
        "warnings": [asdict(warning) for warning in result.warnings],
        "settings": {
            "model": str(model),
            "data": data,
            "norm": norm,
            "box": result.box,
            "boxed": result.boxed,
            **result.settings,
        },
        "files": [str(path) for path in files],
    }
    if as_json:
        print(json.dumps(told, indent=2))
        return
    console = _console()
    console.print(result.table(), end="", markup=False, highlight=False)
    shown = radius or [float(curve.radii[len(curve.radii) // 2])]
    for at in shown:
        console.print(result.headline(at), markup=False, highlight=False)
    if result.box is not None and result.certified and not result.boxed:
        console.print("the certificate ignores the box: it holds there, and could be larger")
    for warning in result.warnings:
        console.print(f"warning: {warning.sentence}", markup=False, highlight=False)
    for path in files:
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def certify_model(
    model: ModelArgument,
    data: DataOption,
    norm: NormOption = "l2",
    radius: RadiusOption = None,
    effort: EffortOption = "tight",
    points: PointsOption = 500,
    shuffle: ShuffleOption = False,
    split: SplitOption = "test",
    box: BoxOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Certify radii at which no attack can change a network's answers.

    Example:  extremal certify net.safetensors --data mnist --effort fast
    """
    net, test = _read(model, data, norm, radius, effort, points, shuffle, split, box, seed)
    proof = certificate(
        net,
        test.x,
        test.y,
        norm=norm,
        box=test.box,
        effort=effort,  # type: ignore[arg-type]  # it was checked
        progress=sys.stderr.isatty(),
    )
    right = _correct(net, test)
    rows = _shares(proof.radius, right, radius or usual_radii(proof.radius))
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    quantiles = dict(zip(QUANTILES, proof.radius.quantile(levels).tolist(), strict=True))
    settings = {
        "model": str(model),
        "data": data,
        "norm": norm,
        "effort": effort,
        "points": len(test),
        "boxed": proof.boxed,
    }
    if as_json:
        numbers = {str(level): _number(value) for level, value in quantiles.items()}
        print(json.dumps({"table": rows, "quantiles": numbers, "settings": settings}, indent=2))
        return
    console = _console()
    console.print(f"{norm + ' radius':>11}  {'certified':>24}", highlight=False)
    for row in rows:
        low, high = row["interval"]
        cell = f"{100 * row['certified']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        console.print(f"{row['radius']:>11.4g}  {cell:>24}", markup=False, highlight=False)
    told_quantiles = ", ".join(f"{100 * q:.0f} %: {r:.4g}" for q, r in quantiles.items())
    console.print(
        f"quantiles of the certified radius of {len(test)} points: {told_quantiles}",
        highlight=False,
    )


def _read(
    model: Path,
    data: str,
    norm: str,
    radius: list[float] | None,
    effort: str,
    points: int,
    shuffle: bool,
    split: str,
    box: str | None,
    seed: int,
) -> tuple[nn.Module, Dataset]:
    """The network and the points, once every option is known to be good."""
    _check.choice("--norm", norm, NORMS)
    _check.choice("--effort", effort, EFFORTS)
    for value in radius or []:
        _check.number("--radius", value, minimum=0.0)
    _check.integer("--seed", seed, minimum=0)
    net = load(model)
    test = read_points(
        data,
        split=split,
        box=box,
        points=points,
        seed=seed if shuffle else None,
        progress=sys.stderr.isatty(),
    )
    _correct(net, test.take(slice(1)))  # dimensions and labels that do not fit say so here
    return net, test


def _correct(net: nn.Module, test: Dataset) -> Tensor:
    with torch.no_grad():
        return output_margins(double(net)(test.x.double()), test.y) > 0


def _shares(certified: Tensor, right: Tensor, radii: list[float]) -> list[dict[str, Any]]:
    """The share of points that are certified at each radius, with its 95 % interval."""
    rows = []
    for at in sorted(set(radii)):
        held = (right & (certified >= at)).sum()
        interval = wilson(held, len(certified)).tolist()
        rows.append({"radius": at, "certified": int(held) / len(certified), "interval": interval})
    return rows


def _number(value: float) -> float | None:
    """The number for JSON, which has neither NaN nor infinity."""
    return value if math.isfinite(value) else None


def _console() -> Console:
    return Console(width=None if Console().is_terminal else 80)
