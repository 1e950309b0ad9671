"""`extremal bench NAME`: speed, always as a ratio of two things measured in the same run."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from extremal import _check

_FOLDER = Path(__file__).parents[2] / "bench"


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(name="bench")(bench)


def bench(
    name: Annotated[str, typer.Argument(help="A benchmark: a file of the repo's bench/ folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure one thing against another in the same run, and print the ratios.

    Example:  extremal bench gradients --json
    """
    known = sorted(path.stem for path in _FOLDER.glob("[a-z]*.py"))
    _check.require(bool(known), "bench", "be called from a checkout with its bench/ folder", "none")
    _check.choice("name", name, known)
    sys.path.insert(0, str(_FOLDER.parent))
    result = importlib.import_module(f"bench.{name}").measure()
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for key, ratio in result["ratios"].items():
        print(f"{key}: {ratio:.2f}")
