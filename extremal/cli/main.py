"""`extremal`: run the papers' experiments and see ours against published."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from extremal._version import __version__
from extremal.cli import (
    data_commands,
    experiment_commands,
    explore,
    model_commands,
    separation,
    store_commands,
    sweep,
    tool_commands,
)

app = typer.Typer(
    name="extremal",
    help="Train, attack and certify shallow networks, and see why some of them are robust.",
    epilog="Start with: extremal demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
_INTERRUPTED = 130
# The base of the errors for a wrong option or argument, which typer does not export by name.
_USAGE: type[Exception] = typer.BadParameter.__mro__[2]
experiment_commands.add_to(app)
sweep.add_to(app)
store_commands.add_to(app)
model_commands.add_to(app)
data_commands.add_to(app)
separation.add_to(app)
tool_commands.add_to(app)
explore.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"extremal {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Train, attack and certify shallow networks, and see why some of them are robust."""


def main() -> None:
    """Run the command line: bad input is one clear line and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except _USAGE as error:
        message = error.format_message()  # type: ignore[attr-defined]
        print(f"error: {message}" if sys.argv[1:] else message, file=sys.stderr)
        code = 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        code = 0
    if code == _INTERRUPTED:  # typer, too, makes this of a Ctrl-C
        print("interrupted; run the same command again to go on", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
