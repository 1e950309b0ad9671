"""The tables of the docs, each made from what one bench printed, or of a stored run's rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from extremal import __version__, report
from extremal.experiments import load_summary

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"


def rewrite() -> None:
    """Make the tables of all pages of the docs anew."""
    for page in (ROOT / "docs").rglob("*.md"):
        page.write_text(rendered(page.read_text()))


def rendered(text: str) -> str:
    """A page of the docs with its tables made anew from bench/results/ and results/.

    `<!-- rows: results/demo/quick.json -->` stands for all rows of a stored run, and
    `<!-- rows: results/demo/quick.json: median -->` for those that have the regular expression in
    their quantity, in a narrower table.
    """

    def table(found: re.Match[str]) -> str:
        bench = found[1].split("_")[0]
        result = json.loads((FOLDER / f"{bench}.json").read_text())
        return f"<!-- bench: {found[1]} -->\n{TABLES[found[1]](result)}<!-- end of bench -->"

    def rows(found: re.Match[str]) -> str:
        path, _, pattern = found[1].partition(": ")
        summary = load_summary(ROOT / path)
        made = _chosen(summary, pattern) if pattern else report.rows_markdown(summary)
        return f"<!-- rows: {found[1]} -->\n{made.strip()}\n<!-- end of rows -->"

    def costs(found: re.Match[str]) -> str:
        return f"<!-- costs: {found[1]} -->\n{_costs(ROOT / found[1])}<!-- end of costs -->"

    def accuracies(found: re.Match[str]) -> str:
        made = _accuracies([ROOT / path for path in found[1].split()])
        return f"<!-- test accuracy: {found[1]} -->\n{made}<!-- end of test accuracy -->"

    def versions(found: re.Match[str]) -> str:
        made = _versions(found[1].split())
        return f"<!-- versions: {found[1]} -->\n{made}<!-- end of versions -->"

    text = re.sub(
        r"<!-- versions: (.+?) -->\n.*?<!-- end of versions -->", versions, text, flags=re.S
    )
    text = re.sub(
        r"<!-- test accuracy: (.+?) -->\n.*?<!-- end of test accuracy -->",
        accuracies,
        text,
        flags=re.S,
    )
    text = re.sub(r"<!-- costs: (\S+) -->\n.*?<!-- end of costs -->", costs, text, flags=re.S)
    text = re.sub(r"<!-- bench: (\w+) -->\n.*?<!-- end of bench -->", table, text, flags=re.S)
    return re.sub(r"<!-- rows: (.+?) -->\n.*?<!-- end of rows -->", rows, text, flags=re.S)


def _chosen(summary: dict[str, Any], pattern: str) -> str:
    """Rows whose quantity has the regular expression in it, without tolerance and source."""
    rows = [row for row in summary["rows"] if re.search(pattern, row["quantity"])]
    if not rows:
        raise ValueError(f"no row of {summary['experiment']} has {pattern!r} in its quantity")
    lines = report.rows_markdown({**summary, "rows": rows}).strip().splitlines()
    lines[1] = lines[1].replace("|", " | ").strip()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return "".join(f"| {' | '.join([*each[:4], each[5]])} |\n" for each in cells)


def _versions(names: list[str]) -> str:
    """One row: this package's version, and those that constraints.txt pins of some others."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    return _markdown(["extremal", *names], [[__version__, *(pinned[name] for name in names)]])


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
    return _markdown(head, rows)


def _costs(folder: Path) -> str:
    """One row for each stored run at paper scale: its trials and core-hours."""
    rows = []
    for path in sorted(folder.rglob("paper.json")):
        summary = load_summary(path)
        count, seconds = summary["trials"]["done"], summary["seconds"]
        hours = [f"{seconds / 3600:.2f}", f"{seconds / max(count, 1):.0f}"]
        rows.append([f"`{summary['experiment']}`", str(count), *hours])
    return _markdown(["paper scale", "trials", "core-hours", "seconds of a trial"], rows)


def cluster(result: dict[str, Any]) -> str:
    """Every ratio and every figure that is one number, a row each; the load stands in the head."""
    singles = {name: value for name, value in result["figures"].items() if _is_number(value)}
    empty = result["figures"]["seconds of the empty trials"]
    count = result["settings"]["empty trials"]
    singles |= {f"seconds of {count} empty trials, {where}": empty[where] for where in empty}
    loads = [
        f"{singles.pop(name):.1f}" for name in ("load before", "load after") if name in singles
    ]
    rows = [[name, f"{value:.3g}"] for name, value in (result["ratios"] | singles).items()]
    return _markdown(["", f"load of the machine {' to '.join(loads)}" if loads else ""], rows)


def store(result: dict[str, Any]) -> str:
    """One row a command: seconds with each store, and their ratio."""
    small, large = (result["figures"][size] for size in ("small", "large"))
    rows = [
        [what, f"{small[what]:.1f}", f"{large[what]:.1f}", f"{large[what] / small[what]:.1f}"]
        for what in small
        if _is_number(small[what])
    ]
    sizes = [f"{result['settings']['trials'][size]:,} trials" for size in ("small", "large")]
    return _markdown(["CPU seconds", *sizes, "ratio"], rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def flow(result: dict[str, Any]) -> str:
    """One row for each p and kind of data."""
    rows = []
    figures = result["figures"]
    for p in (1, 3):
        for kind in ("known mixture", "plain x and y"):
            where = f"{kind}, p = {p}"
            spent = figures[f"where the last flow's seconds went, {where}"]
            stages = [spent.get(stage, 0.0) for stage in ("alignment", "waking", "fitting")]
            ratio = result["ratios"][f"recipe over flow, denormals flushed, {where}"]
            cells = [f"{figures[f'flow, s, {where}']:.2f}", f"{ratio:.0f}"]
            cells += [f"{part:.2f}" for part in (*stages, spent["all"] - sum(stages))]
            rows.append([f"p = {p}, {kind}", *cells])
    head = ["", "seconds", "times faster than the recipe", "alignment", "waking", "fitting"]
    return _markdown([*head, "set-up"], rows)


def attack(result: dict[str, Any]) -> str:
    """One row for each setting: robust accuracy of each attack, p = 1 to 4, and the total time."""
    kinds = ("ours", "apgd-ce", "autoattack")
    powers, figures = result["settings"]["powers"], result["figures"]
    rows = []
    for norm, radii in result["settings"]["radii"].items():
        for radius in radii:
            found = [figures[f"p = {p}, {norm} {radius:g}"] for p in powers]
            cells = [" ".join(f"{of[kind]['accuracy']:.3f}" for of in found) for kind in kinds]
            rows.append([f"{norm} {radius:g}", *cells])
    spent = figures["seconds in total"]
    rows.append(["seconds, all settings", *(f"{spent[kind]:.0f}" for kind in kinds)])
    return _markdown(["robust accuracy, p = 1 2 3 4", "ours", "APGD-CE", "AutoAttack"], rows)


def certify(result: dict[str, Any]) -> str:
    """One row for each network: how near the certificate comes, what it proves, what it costs."""
    ratios, figures = result["ratios"], result["figures"]
    rows = []
    for p in result["settings"]["mnist"]["powers"]:
        name = f"mnist, p = {p}"
        quantiles = [
            ratios[f"certified over attacked radius, quantile {q}, {name}"] for q in ("0.1", "0.5")
        ]
        cells = [f"{value:.3f}" for value in quantiles]
        for radius in ("l2 0.5", "l2 1"):
            found = figures[f"accuracy, {name}"][radius]
            kinds = ("certified", "attacked", "linear", "lipschitz")
            cells.append(" / ".join(f"{found[kind]:.3f}" for kind in kinds))
        cells.append(f"{ratios[f'certificate over one minimal attack, seconds, {name}']:.1f}")
        rows.append([f"p = {p}", *cells])
    accuracy = "certified / attacked / linear / Lipschitz"
    head = ["", "ratio, 10 %", "ratio, median", f"l2 .5: {accuracy}", f"l2 1: {accuracy}"]
    return _markdown([*head, "cost in attacks"], rows)


def certify_mixture(result: dict[str, Any]) -> str:
    """One row for each synthetic network: both sides' radii, their ratio, and the cost."""
    ratios, figures = result["ratios"], result["figures"]
    rows = []
    for p in result["settings"]["mixture"]["powers"]:
        name = f"mixture, p = {p}"
        cells = [
            f"{ratios[f'certified over attacked radius, quantile {q}, {name}']:.4f}"
            for q in ("0.01", "0.5")
        ]
        radii, spent = figures[f"radii, {name}"], figures[f"seconds, {name}"]
        cells += [f"{radii[side]['0.5']:.4f}" for side in ("certified", "attacked")]
        kinds = ("attack", "certificate", "plain x and y", "known mixture")
        rows.append([f"p = {p}", *cells, *(f"{spent[kind]:.1f}" for kind in kinds)])
    head = ["", "ratio, 1 %", "ratio, median", "certified, median", "attacked, median", "attack, s"]
    return _markdown([*head, "certificate, s", "training, s", "training, known mixture, s"], rows)


def certify_boxed(result: dict[str, Any]) -> str:
    """One row for each norm within the box: medians of certified over attacked radius."""
    powers = result["settings"]["mnist"]["powers"]
    rows = []
    for norm in ("linf", "l1", "l2"):
        found = [
            result["figures"][f"certified over attacked, {norm} in the box, mnist, p = {p}"]
            for p in powers
        ]
        cells = [f"{of['certified over attacked radius, quantile 0.5']:.3f}" for of in found]
        rows.append([norm, *cells])
    return _markdown(["median ratio", *(f"p = {p}" for p in powers)], rows)


def distance(result: dict[str, Any]) -> str:
    """One row for each p."""
    rows = []
    ratios = result["ratios"]
    for p in (1, 3):
        end = f", p = {p}"
        keys = (
            "algorithm 1 over ours, seconds",
            "our supremum at its scale over algorithm 1's value",
            "our distance over our supremum at its scale",
            "proven upper bound over our distance",
        )
        first, *others = (ratios[key + end] for key in keys)
        rows.append([f"p = {p}", f"{first:.0f}", *(f"{value:.3f}" for value in others)])
    head = ["", "times faster than Algorithm 1", "our supremum / its value, at its c"]
    return _markdown([*head, "our distance / our supremum at its c", "proven bound / ours"], rows)


def estimator(result: dict[str, Any]) -> str:
    """One row for each data set: means over its splits, ours and each rival."""
    figures, settings = result["figures"], result["settings"]
    kinds = ("ours", *settings["rivals"])
    rows = []
    for name in settings["data"]:
        found = [figures[f"{name}, split {k}"] for k in range(settings["splits"])]
        cells = [
            f"{sum(of[kind][measure] for of in found) / len(found):.3f}"
            for measure in ("accuracy", "area")
            for kind in kinds
        ]
        rows.append([name.replace("_", " "), *cells])
    head = [f"{measure}, {kind}" for measure in ("accuracy", "area") for kind in kinds]
    return _markdown(["", *head], rows)


def train(result: dict[str, Any]) -> str:
    """One row for each p: seconds of an epoch, how much faster, and accuracies."""
    rows = []
    for p in result["settings"]["powers"]:
        found = result["figures"][f"p = {p}"]
        ours, plain, loader = (found[kind] for kind in ("ours", "plain", "loader"))
        cells = [f"{run['seconds of an epoch']:.2f}" for run in (ours, plain, loader)]
        cells += [
            f"{result['ratios'][f'{kind} over ours, seconds, p = {p}']:.2f}"
            for kind in ("plain", "loader")
        ]
        cells += [f"{run['accuracy']:.4f}" for run in (ours, plain)]
        rows.append([f"p = {p}", *cells])
    head = ["seconds of an epoch", "ours", "plain loop", "with a DataLoader", "plain / ours"]
    return _markdown([*head, "DataLoader / ours", "accuracy, ours", "accuracy, plain"], rows)


def estimator_losses(result: dict[str, Any]) -> str:
    """Every split in which ours is less accurate, or less robust, than a rival."""
    rows = [lost.rsplit(": ", 1) for lost in result["figures"]["losses"]]
    return _markdown(["ours loses in", "ours < theirs"], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("|  |", "| |")


_ALL = (
    flow,
    attack,
    certify,
    certify_mixture,
    certify_boxed,
    distance,
    estimator,
    estimator_losses,
    store,
    cluster,
    train,
)
TABLES = {each.__name__: each for each in _ALL}
