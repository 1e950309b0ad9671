"""`extremal explore`: the explorer in the browser."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(explore)


def explore(
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8050,
    host: Annotated[
        str, typer.Option(help="The address to listen on; beyond this machine it warns.")
    ] = "127.0.0.1",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that holds the runs.")] = (
        Path("runs")
    ),
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or only serve.")
    ] = True,
) -> None:
    """Turn p and watch what the neurons learn, in the browser; images and stored runs, too.

    Served on this machine alone unless --host says otherwise, and without any network.

    Example:  extremal explore --port 8050
    """
    if importlib.util.find_spec("dash") is None:
        raise ValueError("the explorer needs Dash; install it: pip install 'extremal[explore]'")
    from extremal.web import LOOPBACK, serve  # noqa: PLC0415 - Dash is an extra, and slow to import

    if host not in LOOPBACK:
        print(
            f"warning: whoever reaches {host} can use this explorer, read the results in {out} and "
            "have this machine compute; there is no password",
            file=sys.stderr,
        )
    serve(host, port, out, browse=browse, tell=lambda line: print(line, flush=True))
