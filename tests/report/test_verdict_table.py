"""The tables of ours against published, and the words in them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from extremal.report import rows_markdown, rows_table
from extremal.report.verdict_table import (
    duration,
    interval,
    published,
    setting,
    tally,
    tolerance,
    verdict,
)
from tests.report.helpers_summaries import make_summary

LONG = "certified accuracy of the subclass classifier at half the distance between two centres"


def rendered(table: Table) -> list[str]:
    console = Console(width=80, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_the_table_says_each_row_in_words(summary: dict[str, Any]) -> None:
    lines = rendered(rows_table(summary))
    for row, parts in zip(
        summary["rows"],
        (
            ("0.3162", "0.3301 [0.32, 0.34]", "±0.05", "agrees"),
            ("0.7071", "0.61 [0.5, 0.68]", "±0.05", "differs"),
            ("≤ 0.1", "0.051 [0.04, 0.06]", " 0 ", "agrees"),
            ("0.98", "–", "±0.01", "not run"),
        ),
        strict=True,
    ):
        start = " ".join(row["quantity"].split()[:3])
        line = next(line for line in lines if start in line and parts[0] in line)
        assert all(part in line for part in parts)
    assert any("quantity" in line and "ours [low, high]" in line for line in lines)
    assert "2 of 4 rows agree" in lines[-1]


EXTREMES = (0.0, 1.0, -1.23456e-10, 123456789.0, None)


@pytest.mark.parametrize(("ours", "other"), list(itertools.product(EXTREMES, EXTREMES)))
def test_80_columns_suffice_and_no_word_is_broken(ours: float | None, other: float | None) -> None:
    summary = make_summary()
    values = {"ours": ours, "low": other, "high": ours, "published": other, "tolerance": ours}
    for row in summary["rows"]:
        row |= {**values, "quantity": LONG, "rule": "above", "ok": None if ours is None else False}
    lines = rendered(rows_table(summary))
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert "…" not in text
    whole = set(text.split())
    assert set(LONG.split()) <= whole
    assert {"differs", "undefined", "not"} & whole


def test_brackets_in_a_quantity_are_text(summary: dict[str, Any]) -> None:
    summary["rows"][0]["quantity"] = "[bold]x[/bold]"
    assert any("[bold]x[/bold]" in line for line in rendered(rows_table(summary)))


def test_markdown_has_a_row_for_each_claim(summary: dict[str, Any]) -> None:
    summary["rows"][0]["quantity"] = "a | b *c* <d>"
    lines = rows_markdown(summary).splitlines()
    assert len(lines) == 2 + len(summary["rows"])
    assert lines[2].startswith(r"| a \| b \*c\* \<d> | 0.3162 | 0.3301 | [0.32, 0.34] | ±0.05 |")
    bare = [line.replace(r"\|", "").count("|") for line in lines]
    assert set(bare) == {8}


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"ok": True, "n": 3}, "agrees"),
        ({"ok": False, "n": 3}, "differs"),
        ({"ok": None, "n": 0}, "not run"),
        ({"ok": None, "n": 3}, "undefined"),
        ({"ok": None, "n": 3, "rule": "reported", "ours": 0.5}, "reported"),
        ({"ok": None, "n": 3, "rule": "reported", "ours": None}, "undefined"),
        ({"ok": None, "n": 0, "rule": "reported", "ours": None}, "not run"),
    ],
)
def test_verdicts(row: dict[str, Any], word: str) -> None:
    assert verdict(row) == word


def test_signs_of_rules() -> None:
    rules = ("near", "below", "above", "over")
    assert [published({"rule": rule, "published": 0.5}) for rule in rules] == [
        "0.5",
        "≤ 0.5",
        "≥ 0.5",
        "> 0.5",
    ]
    reported = {"rule": "reported", "published": None, "tolerance": 0.0}
    assert (published(reported), tolerance(reported)) == ("–", "–")


def test_a_single_value_has_no_interval() -> None:
    assert interval({"low": 0.5, "high": 0.5}) == ""
    assert interval({"low": None, "high": None}) == ""
    assert interval({"low": 0.25, "high": 0.5}) == "[0.25, 0.5]"


def test_tally_counts() -> None:
    good, bad = {"ok": True, "n": 1}, {"ok": False, "n": 1}
    assert tally({"rows": [good, good]}) == "2 of 2 rows agree with the source."
    assert tally({"rows": [good, bad, bad]}) == "1 of 3 rows agree with the source (2 differ)."
    reported = {"ok": None, "n": 1, "rule": "reported", "ours": 0.5}
    assert tally({"rows": [good, reported]}) == "1 of 1 rows agree with the source."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (59.4, "59 s"),
        (59.7, "1 min 0 s"),
        (200.0, "3 min 20 s"),
        (4325.2, "1 h 12 min"),
        (90_000.0, "25 h 0 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_settings_are_written_as_json() -> None:
    assert setting([1, 0.1, None, True]) == "[1, 0.1, null, true]"
    assert setting("α") == "α"
