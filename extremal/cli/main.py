"""`extremal`: run the papers' experiments and see ours against published."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from extremal._version import __version__

# What a shell makes of a program that Ctrl-C ended.
INTERRUPTED_EXIT_CODE = 130
# The base of the errors for a wrong option or argument, which typer does not export by name.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
# Each command: the module that holds it, and its line in the list of commands.
COMMAND_LINES = {
    "demo": (
        "experiment_commands",
        "Show the headline result in about a minute: p = 1 breaks where p = 3 holds.",
    ),
    "list": ("experiment_commands", "List the experiments."),
    "run": (
        "experiment_commands",
        "Run an experiment, or what is left of it, and compare with the published values.",
    ),
    "show": (
        "experiment_commands",
        "Show ours against published, from the run folder or else from the shipped results.",
    ),
    "sweep": (
        "experiment_commands",
        "Run a grid of your own over an experiment or a Python function of yours.",
    ),
    "cite": ("experiment_commands", "Print BibTeX of what an experiment rests on."),
    "store": (
        "store_commands",
        "The folder of finished trials: list, check, compact, export, import.",
    ),
    "evaluate": (
        "model_commands",
        "Bound a network's robust accuracy from both sides: attacks above, a certificate below.",
    ),
    "certify": (
        "model_commands",
        "Certify radii at which no attack can change a network's answers.",
    ),
    "data": ("data_commands", "Data sets: list them, fetch them, find their files."),
    "separation": (
        "data_commands",
        "Measure how far apart classes are: exact distances to the nearest point of another class.",
    ),
    "bench": (
        "tool_commands",
        "Measure one thing against another in the same run, and print the ratios.",
    ),
    "explore": (
        "tool_commands",
        "Turn p and watch what the neurons learn, in the browser; images and stored runs, too.",
    ),
}


def imported_command(name: str) -> Any:
    """The command itself, with its options; its module takes seconds to import."""
    module = importlib.import_module(f"extremal.cli.{COMMAND_LINES[name][0]}")
    group: Any = typer.main.get_command(module.app)
    return group.commands[name]


class CommandsImportedLate(TyperGroup):
    """Commands that are known by a line each, and imported when one of them is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, line) in COMMAND_LINES.items():
            self.commands[name] = TyperCommand(name, help=line)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, imported, and the arguments after it."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else imported_command(name), rest


app = typer.Typer(
    name="extremal",
    cls=CommandsImportedLate,
    help="Train, attack and certify shallow networks, and see why some of them are robust.",
    epilog="Start with: extremal demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


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
    except USAGE_ERROR as error:
        message = error.format_message()  # type: ignore[attr-defined]
        print(f"error: {message}" if sys.argv[1:] else message, file=sys.stderr)
        code = 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        code = 0
    if code == INTERRUPTED_EXIT_CODE:  # typer, too, makes this of a Ctrl-C
        print("interrupted; run the same command again to go on", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
