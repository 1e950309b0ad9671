"""Write the tables of the docs anew, each from what one bench printed, or from a stored run's rows.

A bench brings the functions that make its tables.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

from bench._common import markdown_table
from extremal import __version__, report
from extremal.experiments import load_summary

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"


def rewrite() -> None:
    """Make the tables of all pages of the docs anew."""
    for page in (ROOT / "docs").rglob("*.md"):
        page.write_text(rendered(page.read_text()))


def rendered(text: str) -> str:
    """A page of the docs with its tables made anew, each between two comments.

    `<!-- rows: results/demo/quick.json -->` stands for all rows of a stored run up to
    `<!-- end of rows -->`, and `<!-- rows: results/demo/quick.json: median -->` for those that have
    the regular expression in their quantity, in a narrower table. `_MAKERS` has the other kinds.
    """

    def made(found: re.Match[str]) -> str:
        kind, what = found[1], found[2]
        table = _MAKERS[kind](what).strip()
        return f"<!-- {kind}: {what} -->\n{table}\n<!-- end of {kind} -->"

    kinds = "|".join(_MAKERS)
    return re.sub(rf"<!-- ({kinds}): (.+?) -->\n.*?<!-- end of \1 -->", made, text, flags=re.S)


def _rows(what: str) -> str:
    """The rows of a stored run, or with a regular expression some, without tolerance and source."""
    path, _, pattern = what.partition(": ")
    summary = load_summary(ROOT / path)
    if not pattern:
        return report.rows_markdown(summary)
    rows = [row for row in summary["rows"] if re.search(pattern, row["quantity"])]
    if not rows:
        raise ValueError(f"no row of {summary['experiment']} has {pattern!r} in its quantity")
    lines = report.rows_markdown({**summary, "rows": rows}).strip().splitlines()
    lines[1] = lines[1].replace("|", " | ").strip()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return "".join(f"| {' | '.join([*each[:4], each[5]])} |\n" for each in cells)


def _versions(what: str) -> str:
    """One row: this package's version, and those that constraints.txt pins of some others."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    names = what.split()
    return markdown_table(["extremal", *names], [[__version__, *(pinned[name] for name in names)]])


def bench_table(name: str) -> str:
    """A table of a bench's stored result by its function: "certify" by `table`, "certify_boxed" by
    `boxed_table` of bench/certify.py.
    """
    bench, _, part = name.partition("_")
    result = json.loads((FOLDER / f"{bench}.json").read_text())
    module = importlib.import_module(f"bench.{bench}")
    made: str = getattr(module, f"{part}_table" if part else "table")(result)
    return made


def _accuracies(what: str) -> str:
    """One row for each stored run: the mean over networks at the end of training, and the range."""
    rows, head = [], [""]
    for path in (ROOT / each for each in what.split()):
        summary = load_summary(path)
        panel = next(each for each in summary["panels"] if each["title"].startswith("Accuracy"))
        tests = [each for each in panel["series"] if each["label"].startswith("test, ")]
        ends = [[each[part][-1] for part in ("y", "low", "high")] for each in tests]
        head = ["", *(each["label"].removeprefix("test, ") for each in tests)]
        cells = [f"{mean:.4f} ({low:.4f} to {high:.4f})" for mean, low, high in ends]
        rows.append([f"`{path.parent.name}`", *cells])
    return markdown_table(head, rows)


def _costs(what: str) -> str:
    """One row for each stored run at paper scale: its trials and core-hours."""
    rows = []
    for path in sorted((ROOT / what).rglob("paper.json")):
        summary = load_summary(path)
        count, seconds = summary["trials"]["done"], summary["seconds"]
        hours = [f"{seconds / 3600:.2f}", f"{seconds / max(count, 1):.0f}"]
        rows.append([f"`{summary['experiment']}`", str(count), *hours])
    return markdown_table(["paper scale", "trials", "core-hours", "seconds of a trial"], rows)


# What makes the table of each kind of comment, from what the comment names.
_MAKERS = {
    "bench": bench_table,
    "costs": _costs,
    "rows": _rows,
    "test accuracy": _accuracies,
    "versions": _versions,
}
