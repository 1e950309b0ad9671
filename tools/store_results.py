"""Copy finished runs into results/ and rewrite the tables of README and docs from there.

    python tools/store_results.py demo:quick min-vidal-2024/figure-2:quick ...

With no argument only these are rewritten; with --draw all figures are drawn anew as well, from
the summaries in results/, after a change of how things are drawn.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from extremal import report
from extremal.experiments import get, load_summary
from extremal.report.figure import png_bytes
from extremal.report.verdict_table import verdicts as verdict_words
from tools.doc_tables import ROOT, rewrite

_OFFICIAL = "Official test set"


def main() -> None:
    asked = sys.argv[1:]
    if asked == ["--draw"]:
        asked = []
        for path in (ROOT / "results").rglob("*.json"):
            path.with_suffix(".png").write_bytes(png_bytes(load_summary(path)))
    for item in asked:
        name, _, scale = item.partition(":")
        folder, target = ROOT / "runs" / name / scale, ROOT / "results" / name
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "summary.json", target / f"{scale}.json")
        shutil.copyfile(folder / "figure.png", target / f"{scale}.png")
        if get(name).movie is not None:
            shutil.copyfile(folder / "animation.gif", target / f"{scale}.gif")
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text()))
    rewrite()


def rendered(text: str) -> str:
    """The README with its generated parts made anew from results/."""
    table = report.rows_markdown(load_summary(ROOT / "results/demo/quick.json"))
    text = _between(text, "table: results/demo/quick.json", "end of table", table)
    text = _between(text, "verdicts: results", "end of verdicts", verdicts())
    path = "results/min-vidal-2024/table-1/paper.json"
    if not (ROOT / path).is_file():
        return text
    return _between(text, f"three ways: {path}", "end of three ways", three_ways(ROOT / path))


def three_ways(path: Path) -> str:
    """One row for each norm and radius: accuracies of p = 1 to 4, published and ours."""
    summary = load_summary(path)
    published = {row["quantity"]: row["published"] for row in summary["rows"]}
    panels = {panel["title"]: panel["series"] for panel in summary["panels"]}
    head = ["p = 1 2 3 4", "published", "APGD-CE", "strongest attack"]
    head += ["one network, 1000 random points of the official test set, strongest attack"]
    head += ["500 of these points, attacked", "certified"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for norm in ("linf", "l2", "l1"):
        ours, official = (panels[f"{kind}, {norm}"] for kind in ("Robust accuracy", _OFFICIAL))
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
            lines.append([f"{norm} {radius:g}", *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def verdicts() -> str:
    """One row for each stored summary: how many rows agree, and the figure."""
    lines = ["| experiment | scale | rows that agree | figure |", "|---|---|---:|---|"]
    for path in sorted((ROOT / "results").rglob("*.json")):
        summary = load_summary(path)
        words = verdict_words(summary)
        count = f"{words.count('agrees')} of {len(words)}"
        files = [path.with_suffix(suffix) for suffix in (".png", ".gif")]
        links = [
            f"[{file.suffix[1:].upper()}]({file.relative_to(ROOT)})"
            for file in files
            if file.is_file()
        ]
        cells = (f"`{summary['experiment']}`", summary["scale"], count, ", ".join(links))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _between(text: str, start: str, end: str, content: str) -> str:
    pattern = f"(<!-- {re.escape(start)} -->\n).*?(<!-- {re.escape(end)} -->)"
    made, count = re.subn(pattern, lambda m: f"{m[1]}{content.strip()}\n{m[2]}", text, flags=re.S)
    if count != 1:
        raise ValueError(f"the text must have one place for {start!r}, got {count}")
    return made


if __name__ == "__main__":
    main()
