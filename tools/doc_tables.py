"""Write the tables of the docs anew, each from what one bench printed, or from a stored run's rows.

A bench brings the functions that make its tables.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

from bench._common import markdown_table
from extremal import report
from extremal.experiments import load_summary

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"


def rewrite() -> None:
    """Make the tables of all pages of the docs anew."""
    for page in (ROOT / "docs").rglob("*.md"):
        page.write_text(rendered(page.read_text()))


def rendered(text: str) -> str:
    """A page of the docs with its tables made anew from bench/results/ and results/."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- bench: {found[1]} -->\n{bench_table(found[1])}<!-- end of bench -->"

    def rows(found: re.Match[str]) -> str:
        made = report.rows_markdown(load_summary(ROOT / found[1])).strip()
        return f"<!-- rows: {found[1]} -->\n{made}\n<!-- end of rows -->"

    def costs(found: re.Match[str]) -> str:
        return f"<!-- costs: {found[1]} -->\n{_costs(ROOT / found[1])}<!-- end of costs -->"

    def accuracies(found: re.Match[str]) -> str:
        made = _accuracies([ROOT / path for path in found[1].split()])
        return f"<!-- test accuracy: {found[1]} -->\n{made}<!-- end of test accuracy -->"

    text = re.sub(
        r"<!-- test accuracy: (.+?) -->\n.*?<!-- end of test accuracy -->",
        accuracies,
        text,
        flags=re.S,
    )
    text = re.sub(r"<!-- costs: (\S+) -->\n.*?<!-- end of costs -->", costs, text, flags=re.S)
    text = re.sub(r"<!-- bench: (\w+) -->\n.*?<!-- end of bench -->", table, text, flags=re.S)
    return re.sub(r"<!-- rows: (\S+) -->\n.*?<!-- end of rows -->", rows, text, flags=re.S)


def bench_table(name: str) -> str:
    """A table of a bench's stored result by its function: "certify" by `table`, "certify_boxed" by
    `boxed_table` of bench/certify.py.
    """
    bench, _, part = name.partition("_")
    result = json.loads((FOLDER / f"{bench}.json").read_text())
    module = importlib.import_module(f"bench.{bench}")
    made: str = getattr(module, f"{part}_table" if part else "table")(result)
    return made


def _accuracies(paths: list[Path]) -> str:
    """One row for each stored run: the mean over networks at the end of training, and the range."""
    rows, head = [], [""]
    for path in paths:
        summary = load_summary(path)
        panel = next(each for each in summary["panels"] if each["title"].startswith("Accuracy"))
        tests = [each for each in panel["series"] if each["label"].startswith("test, ")]
        ends = [[each[part][-1] for part in ("y", "low", "high")] for each in tests]
        head = ["", *(each["label"].removeprefix("test, ") for each in tests)]
        cells = [f"{mean:.4f} ({low:.4f} to {high:.4f})" for mean, low, high in ends]
        rows.append([f"`{path.parent.name}`", *cells])
    return markdown_table(head, rows)


def _costs(folder: Path) -> str:
    """One row for each stored run at paper scale: its trials and core-hours."""
    rows = []
    for path in sorted(folder.rglob("paper.json")):
        summary = load_summary(path)
        count, seconds = summary["trials"]["done"], summary["seconds"]
        hours = [f"{seconds / 3600:.2f}", f"{seconds / max(count, 1):.0f}"]
        rows.append([f"`{summary['experiment']}`", str(count), *hours])
    return markdown_table(["paper scale", "trials", "core-hours", "seconds of a trial"], rows)
