"""Ours against published: the table for a terminal of 80 columns, and for a Markdown file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from extremal.report.words import interval, number, published, tally, tolerance, verdict

ONE_LINE = 24  # characters; where a value with its interval is longer, the interval goes below
STYLES = {
    "agrees": "green",
    "differs": "bold red",
    "reported": "",
    "not run": "dim",
    "undefined": "bold red",
}


def rows_table(summary: Mapping[str, Any]) -> Table:
    """A table with a row for each claim: quantity, published, ours [low, high], verdict.

    Verdicts are words; colour only repeats them.
    """
    rows = summary["rows"]
    short = all(len(f"{number(r['ours'])} {interval(r)}") <= ONE_LINE for r in rows)
    table = Table(
        title=Text(f"{summary['experiment']} ({summary['scale']})"),
        caption=Text(tally(summary)),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("quantity", min_width=16)
    table.add_column("published", justify="right", no_wrap=True)
    table.add_column(Text("ours [low, high]"), no_wrap=True)
    table.add_column("tolerance", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        ours = (" " if short else "\n").join(filter(None, (number(row["ours"]), interval(row))))
        word = verdict(row)
        cells = (str(row["quantity"]), published(row), ours, tolerance(row))
        table.add_row(*map(Text, cells), Text(word, style=STYLES[word]))
    return table


def rows_markdown(summary: Mapping[str, Any]) -> str:
    """The same table in Markdown, with the sources, ending in a line break."""
    lines = [
        "| quantity | published | ours | [low, high] | tolerance | verdict | source |",
        "|---|---:|---:|---|---:|---|---|",
    ]
    for row in summary["rows"]:
        cells = (
            row["quantity"],
            published(row),
            number(row["ours"]),
            interval(row),
            tolerance(row),
            verdict(row),
            row["source"],
        )
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: object) -> str:
    """Text for a Markdown cell: on one line, with what Markdown would read escaped."""
    line = " ".join(str(text).split())
    for sign in ("\\", "|", "*", "_", "`", "<", "$"):
        line = line.replace(sign, "\\" + sign)
    return line
