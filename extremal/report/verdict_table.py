"""Ours against published: the table for a terminal of 80 columns, and for a Markdown file.

Numbers and verdicts are put into words here, the same in the terminal, in Markdown and on the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
# The sign before a published value, by the rule that ours is held against it with.
RULE_SIGNS = {"near": "", "below": "≤ ", "above": "≥ ", "over": "> ", "reported": ""}
# Verdicts that are counted beside agreement; undefined is where ours is no finite number.
OTHER_VERDICTS = ("differs", "not run", "undefined")


def number(value: float | None) -> str:
    """A number with four significant digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4g}"


def published(row: Row) -> str:
    """The published value, with the sign of the rule: 0.98, ≤ 0.1 or ≥ 0.7."""
    return RULE_SIGNS[row["rule"]] + number(row["published"])


def tolerance(row: Row) -> str:
    """How far ours may be off, to both sides or beyond a bound, or must be over it."""
    if row["rule"] == "reported":
        return number(None)
    return ("±" if row["rule"] == "near" else "") + number(row["tolerance"])


def interval(row: Row) -> str:
    """The smallest and the largest value over the trials, or nothing if there is only one."""
    if row["low"] is None or row["high"] is None or row["low"] == row["high"]:
        return ""
    return f"[{number(row['low'])}, {number(row['high'])}]"


def verdict(row: Row) -> str:
    """Whether ours agrees with the published value, in a word or two."""
    if row["ok"] is None and row["n"] and row.get("rule") == "reported":
        return "undefined" if row["ours"] is None else "reported"
    if row["ok"] is None:
        return "undefined" if row["n"] else "not run"
    return "agrees" if row["ok"] else "differs"


def verdicts(summary: Mapping[str, Any]) -> list[str]:
    """The verdicts of all rows that are held against something."""
    return [verdict(row) for row in summary["rows"] if row.get("rule") != "reported"]


def tally(summary: Mapping[str, Any]) -> str:
    """How many rows agree, in a sentence."""
    words = verdicts(summary)
    if not words:
        return "No published value to compare with at this scale."
    rest = [
        f"{words.count(word)} {_plural(word, words)}" for word in OTHER_VERDICTS if word in words
    ]
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{words.count('agrees')} of {len(words)} rows agree with the source{more}."


def _plural(word: str, words: Sequence[str]) -> str:
    return "differ" if word == "differs" and words.count(word) > 1 else word


def setting(value: Any) -> str:
    """A setting's value as it would be written in JSON, text without quotation marks."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """A time in the two largest units that matter: 0.4 s, 3 min 20 s, 1 h 12 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def run_command(summary: Mapping[str, Any]) -> str:
    """The command that makes the results."""
    return f"extremal run {summary['experiment']} --scale {summary['scale']}"


# Where a value with its interval is longer than this, the interval goes below it.
ONE_LINE_CHARACTERS = 24
# The look of a verdict in a terminal; it repeats what the word says.
VERDICT_STYLES = {
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
    short = all(len(f"{number(r['ours'])} {interval(r)}") <= ONE_LINE_CHARACTERS for r in rows)
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
        table.add_row(*map(Text, cells), Text(word, style=VERDICT_STYLES[word]))
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
