"""Numbers and verdicts in words, the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
SIGNS = {"near": "", "below": "≤ ", "above": "≥ ", "over": "> ", "reported": ""}
REST = ("differs", "not run", "undefined")  # undefined: ours came out as no finite number


def number(value: float | None) -> str:
    """A number with four significant digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4g}"


def published(row: Row) -> str:
    """The published value, with the sign of the rule: 0.98, ≤ 0.1 or ≥ 0.7."""
    return SIGNS[row["rule"]] + number(row["published"])


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
    rest = [f"{words.count(word)} {_plural(word, words)}" for word in REST if word in words]
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


def command(summary: Mapping[str, Any]) -> str:
    """The command that makes the results."""
    return f"extremal run {summary['experiment']} --scale {summary['scale']}"
