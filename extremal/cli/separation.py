"""The command that measures how far apart the classes of a data set are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from extremal import _check, data, measure, report
from extremal._files import write_whole
from extremal.cli.asked import JsonOption, say
from extremal.cli.points import read_file
from extremal.data import DATASETS, Dataset
from extremal.measure import SEPARATION_NORMS, Separation

_SHOWN = 8  # pairs in the picture and in the list

DataArgument = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(DATASETS)}; a .safetensors or .npz file with x and y; or a folder with "
        "train and test, each with a folder of images for every class."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(name="separation")(separation)


def separation(
    name: DataArgument,
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = "linf",
    points: Annotated[
        int | None, typer.Option(help="Random points of each set; all unless given.")
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels of a side, for a folder of images.")] = 32,
    seed: Annotated[int, typer.Option(help="Of the random points.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for numbers and pictures of pairs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how far apart classes are: exact distances to the nearest point of another class.

    Among training points, and from test points to training points where there are some.

    Example:  extremal separation mnist --norm linf
    """
    _check.choice("--norm", norm, SEPARATION_NORMS)
    _check.integer("--size", size, minimum=1)
    _check.integer("--seed", seed, minimum=0)
    if points is not None:
        _check.integer("--points", points, minimum=2)
    learn, test = _some(_read(name, size), points, seed)
    searches: dict[str, tuple[Dataset, Dataset | None]] = {"train-train": (learn, None)}
    if test is not None:
        searches["test-train"] = (test, learn)
    progress = sys.stderr.isatty()
    found = {
        kind: measure.separation(own, other, norm=norm, progress=progress)  # type: ignore[arg-type]  # checked
        for kind, (own, other) in searches.items()
    }
    told: dict[str, Any] = {"data": name, "norm": norm}
    told |= {kind: _numbers(each, *searches[kind]) for kind, each in found.items()}
    files: list[Path] = []
    if out is not None:
        files = [_picture(found[kind], *searches[kind], out / f"{kind}.png") for kind in found]
        files.append(out / "separation.json")
        write_whole(files[-1], (json.dumps(told, indent=2) + "\n").encode())
    told["files"] = [str(path) for path in files]
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        _print(told, list(found))


def _read(name: str, size: int) -> tuple[Dataset, Dataset | None]:
    """Training and test points, or the points of a file alone."""
    if name in DATASETS:
        return data.load(name, progress=sys.stderr.isatty())
    if not Path(name).is_dir():
        return read_file(name, "DATA"), None
    whole = all((Path(name) / part).is_dir() for part in ("train", "test"))
    _check.require(whole, "DATA", "hold the folders train and test", Path(name))
    return data.load_split(name, size=size, progress=sys.stderr.isatty())


def _some(
    sets: tuple[Dataset, Dataset | None], points: int | None, seed: int
) -> tuple[Dataset, Dataset | None]:
    """Random points of each set, or all."""
    if points is None:
        return sets
    g = torch.Generator().manual_seed(seed)
    learn, test = (
        None if part is None else part.subset(min(points, len(part)), generator=g) for part in sets
    )
    assert learn is not None
    return learn, test


def _numbers(found: Separation, own: Dataset, other: Dataset | None) -> dict[str, Any]:
    return {
        "points": len(own),
        "reference": len(own if other is None else other),
        "minimum": found.minimum,
        "mean": found.mean,
        "by_class": {
            str(label): {"minimum": least, "mean": mean}
            for label, (least, mean) in found.by_class.items()
        },
        "pairs": [list(pair) for pair in found.pairs],
        "duplicates": [list(pair) for pair in found.duplicates],
        "conflicts": [list(pair) for pair in found.conflicts],
    }


def _picture(found: Separation, own: Dataset, other: Dataset | None, path: Path) -> Path:
    """The closest pairs and, after them, label conflicts."""
    reference = own if other is None else other
    pairs = list(dict.fromkeys([*found.pairs, *found.conflicts]))[:_SHOWN]
    i, j = (torch.tensor(places) for places in zip(*pairs, strict=True))
    titles = [(f"{a}: class {own.y[a]}", f"{b}: class {reference.y[b]}") for a, b in pairs]
    return report.save_pairs(own.x[i], reference.x[j], titles, path)


def _print(told: dict[str, Any], kinds: list[str]) -> None:
    for kind in kinds:
        part = told[kind]
        say(
            f"{kind}, {told['norm']}: minimum {part['minimum']:.4g}, mean {part['mean']:.4g} "
            f"({part['points']} points, nearest among {part['reference']})"
        )
        least = ", ".join(f"{c}: {row['minimum']:.4g}" for c, row in part["by_class"].items())
        say(f"  smallest by class: {least}")
        say(f"  closest pairs: {_listed(part['pairs'])}")
        say(f"  equal points of one class: {_listed(part['duplicates'])}")
        say(f"  equal points of different classes: {_listed(part['conflicts'])}")
    for path in told["files"]:
        say(path)


def _listed(pairs: list[list[int]]) -> str:
    """The first pairs and how many there are."""
    if not pairs:
        return "none"
    shown = ", ".join(f"{i}-{j}" for i, j in pairs[:_SHOWN])
    return shown if len(pairs) <= _SHOWN else f"{shown}, ... ({len(pairs)} in all)"
