"""Commands that start tools: bench, which measures speed, and explore, the page in the browser."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from extremal import _check
from extremal.cli.options import OutOption
from extremal.cli.output import print_json, print_note

# The folder of the benchmarks in a checkout; a wheel has none.
BENCH_FOLDER = Path(__file__).parents[2] / "bench"

app = typer.Typer()


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark: a file of the repo's bench/ folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure one thing against another in the same run, and print the ratios.

    Example:  extremal bench gradients --json
    """
    known = sorted(path.stem for path in BENCH_FOLDER.glob("[a-z]*.py"))
    _check.require(bool(known), "bench", "be called from a checkout with its bench/ folder", "none")
    _check.choice("name", name, known)
    sys.path.insert(0, str(BENCH_FOLDER.parent))
    result = importlib.import_module(f"bench.{name}").measure()
    if as_json:
        print_json(result)
        return
    for key, ratio in result["ratios"].items():
        print(f"{key}: {ratio:.2f}")


@app.command()
def explore(
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8050,
    host: Annotated[
        str, typer.Option(help="The address to listen on; beyond this machine it warns.")
    ] = "127.0.0.1",
    out: OutOption = Path("runs"),
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
    from extremal.web import LOOPBACK_NAMES, serve  # noqa: PLC0415 - Dash is an extra, and slow to import

    if host not in LOOPBACK_NAMES:
        print_note(
            f"warning: whoever reaches {host} can use this explorer, read the results in {out} and "
            "have this machine compute; there is no password"
        )
    serve(host, port, out, browse=browse, tell=lambda line: print(line, flush=True))
