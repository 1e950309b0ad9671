"""Write the tables of README and docs anew, each from what a bench printed or from stored runs.

A bench brings the functions that make its tables.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from bench._common import markdown_table
from extremal import __version__, report
from extremal._check import choice
from extremal.experiments import get, load_summary
from extremal.experiments.experiment import AGAINST
from extremal.report.verdict_table import verdict

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"
RESULTS = ROOT / "results"
# Summaries of all stored runs, in the order of their names.
STORED_RUNS = sorted(RESULTS.rglob("*.json"))
# Names of experiments that begin so are open questions, and stand among the answers in any case.
_OPEN_QUESTIONS = "open-questions/"
# Kinds of data of the bench on the flow: what any user has, and what a known mixture is.
_FLOWS = ("plain x and y", "known mixture")


def rewrite() -> None:
    """Make the tables of the README and of all pages of the docs anew."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
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
    `boxed_table` of bench/certify.py, "flow_fidelity" by `table` of bench/flow_fidelity.py.
    """
    is_whole = (ROOT / "bench" / f"{name}.py").is_file()
    bench, _, part = (name, "", "") if is_whole else name.partition("_")
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


def _three_ways(what: str) -> str:
    """One row for each norm and radius: accuracies of p = 1 to 4, published and ours."""
    summary = load_summary(ROOT / what)
    published = {row["quantity"]: row["published"] for row in summary["rows"]}
    panels = {panel["title"]: panel["series"] for panel in summary["panels"]}
    head = ["p = 1 2 3 4", "published", "APGD-CE", "strongest attack"]
    head += ["one network, 1000 random points of the official test set, strongest attack"]
    head += ["500 of these points, attacked", "certified"]
    rows = []
    for norm in ("linf", "l2", "l1"):
        ours, official = (
            panels[f"{kind}, {norm}"] for kind in ("Robust accuracy", "Official test set")
        )
        for at, radius in enumerate(ours[0]["x"][1:], 1):
            told = [published[f"p = {p}: APGD-CE at {norm} {radius:g}"] for p in (1, 2, 3, 4)]
            ways = [
                [series["y"][at] for series in found if series["label"].startswith(f"{way}, p")]
                for found, way in (
                    *((ours, "APGD-CE"), (ours, "attacked"), (official, "attacked")),
                    *((official, "attacked, few points"), (official, "certified, few points")),
                )
            ]
            cells = [" ".join(f"{value:.3f}" for value in row) for row in (told, *ways)]
            rows.append([f"{norm} {radius:g}", *cells])
    return markdown_table(head, rows)


def stored_rows(path: Path, against: str) -> list[dict[str, Any]]:
    """Those rows of a stored summary whose claims are held against this: published, say.

    A summary does not say it: rows and the record's claims of the scale are in the same order.
    """
    summary = load_summary(path)
    claims = [each for each in get(summary["experiment"]).claims if summary["scale"] in each.scales]
    both = zip(claims, summary["rows"], strict=True)
    return [row for claim, row in both if claim.against == against]


def _verdicts(what: str) -> str:
    """One row for each stored run with claims of this kind: how many agree, or the answer."""
    choice("verdicts", what, AGAINST)
    return _answers() if what == "question" else _agreements(what)


def _agreements(against: str) -> str:
    """One row for each stored run with such claims: how many of them agree, and the figure."""
    lines = ["| experiment | scale | rows that agree | figure |", "|---|---|---:|---|"]
    for path in STORED_RUNS:
        words = [verdict(row) for row in stored_rows(path, against)]
        if words:
            count = f"{words.count('agrees')} of {len(words)}"
            lines.append(f"| {_run_name(path)} | {path.stem} | {count} | {_figures(path)} |")
    return "\n".join(lines)


def _answers() -> str:
    """One row for each stored run that asks: its question, what a finding answers, the figure.

    A run asks that has claims of this kind, that is of an open question, or that has no claims.
    """
    findings = _findings()
    lines = ["| experiment | scale | question | answer | figure |", "|---|---|---|---|---|"]
    for path in STORED_RUNS:
        name = str(path.parent.relative_to(RESULTS))
        claimed = load_summary(path)["rows"]
        if claimed and not stored_rows(path, "question") and not name.startswith(_OPEN_QUESTIONS):
            continue
        link, answer = findings.get(path.with_suffix(""), ("", ""))
        larger, _ = findings.get(path.with_name("paper"), ("", ""))
        if larger and not link:
            link, answer = larger, "(of the run at paper scale)"
        told = f"{link} {answer}" if link else f"[the figure](../{_figure_path(path)})"
        cells = [_run_name(path), path.stem, get(name).title, told, _figures(path)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _findings() -> dict[Path, tuple[str, str]]:
    """By stored run, without suffix: a link to the page that shows it, and its answer.

    The index of the findings has both, the answer in a sentence; pages name the files of runs.
    """
    folder, found = ROOT / "docs" / "findings", {}
    table_row = re.compile(r"^\| \[(.+?)\]\((.+?\.md)\) \| (.+) \|$", re.M)
    for question, page, answer in table_row.findall((folder / "index.md").read_text()):
        for run in re.findall(r"results/([\w/-]+)\.(?:json|png)", (folder / page).read_text()):
            found.setdefault(RESULTS / run, (f"[{question}](findings/{page})", answer))
    return found


def _run_name(path: Path) -> str:
    return f"`{path.parent.relative_to(RESULTS)}`"


def _figure_path(path: Path) -> Path:
    return path.with_suffix(".png").relative_to(ROOT)


def _figures(path: Path) -> str:
    """Links to a stored run's figure and animation, those that there are."""
    files = [path.with_suffix(suffix) for suffix in (".png", ".gif")]
    return ", ".join(
        f"[{file.suffix[1:].upper()}](../{file.relative_to(ROOT)})"
        for file in files
        if file.is_file()
    )


def _headlines(what: str) -> str:
    """What people use today, what this package does, and by how much: from stored benches."""
    folder = ROOT / what
    flow, attack, certify, distance, estimator, train = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("flow", "attack", "certify", "distance", "estimator", "train")
    )
    faster = [
        flow["ratios"][f"recipe over flow, denormals flushed, {kind}, p = 3"] for kind in _FLOWS
    ]
    settings = [found for name, found in attack["figures"].items() if name.startswith("p = ")]
    more = sum(each["ours"]["accuracy"] > each["autoattack"]["accuracy"] for each in settings)
    proven = certify["figures"]["accuracy, mnist, p = 3"]["l2 0.5"]
    slow = [distance["ratios"][f"algorithm 1 over ours, seconds, p = {p}"] for p in (1, 3)]
    area = estimator["ratios"]["our area over that of default, digits"]
    loops = [train["ratios"][f"plain over ours, seconds, p = {p}"] for p in (1, 3)]
    rows = [
        [
            "train to the end of the flow",
            "the papers' SGD, 80,200 steps",
            f"{faster[0]:.0f} times faster from samples, {faster[1]:.0f} from a known mixture "
            "(p = 3)",
        ],
        [
            f"attack, {len(settings)} settings",
            "AutoAttack, standard",
            f"{attack['ratios']['autoattack over ours, seconds in total']:.0f} times faster, "
            f"weaker in {more} of {len(settings)}",
        ],
        [
            "certify MNIST at l2 radius 0.5, p = 3",
            f"linear bounds (CROWN's, our own): {proven['linear']:.3f} proven",
            f"{proven['certified']:.3f} proven, no more than {proven['attacked']:.3f} possible",
        ],
        [
            "distance of a trained network to the predicted one",
            "Algorithm 1 of Min & Vidal 2024",
            f"{slow[0]:,.0f} (p = 1), {slow[1]:,.0f} (p = 3) times faster, with proven bounds",
        ],
        [
            "a head on digits: mean radius at which a point breaks",
            "scikit-learn's MLPClassifier",
            f"{area:.2f} times as large",
        ],
        [
            "an epoch of Adam on MNIST",
            "a plain PyTorch loop",
            f"{loops[0]:.1f} (p = 1), {loops[1]:.1f} (p = 3) times faster",
        ],
    ]
    return markdown_table(["task", "in use today", "extremal"], rows)


def _files(what: str) -> str:
    """Every module below a folder with the first sentence of its docstring, folder by folder."""
    parts = []
    modules = sorted((ROOT / what).rglob("*.py"), key=lambda file: (file.parent, file.name))
    for folder, files in groupby(modules, key=lambda file: file.parent):
        rows = [f"| `{file.name}` | {_first_sentence(file)} |" for file in files]
        head = f"## {folder.relative_to(ROOT)}/\n\n| file | what it is for |\n|---|---|"
        parts.append("\n".join([head, *rows]))
    return "\n\n".join(parts)


def _first_sentence(module: Path) -> str:
    first = (ast.get_docstring(ast.parse(module.read_text())) or "").split("\n\n")[0]
    return re.split(r"(?<=\.) ", " ".join(first.split()))[0].replace("|", "\\|")


# What makes the table of each kind of comment, from what the comment names.
_MAKERS = {
    "bench": bench_table,
    "costs": _costs,
    "files": _files,
    "headlines": _headlines,
    "rows": _rows,
    "test accuracy": _accuracies,
    "three ways": _three_ways,
    "verdicts": _verdicts,
    "versions": _versions,
}
