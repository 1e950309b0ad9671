"""Copy finished runs into results/ and rewrite the README's tables from there.

    python tools/results.py demo:quick min-vidal-2024/figure-2:quick ...

With no argument only the README is rewritten.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from extremal import report
from extremal.experiments import get, load_summary

ROOT = Path(__file__).parents[1]


def main() -> None:
    for item in sys.argv[1:]:
        name, _, scale = item.partition(":")
        folder, target = ROOT / "runs" / name / scale, ROOT / "results" / name
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "summary.json", target / f"{scale}.json")
        shutil.copyfile(folder / "figure.png", target / f"{scale}.png")
        if get(name).movie is not None:
            shutil.copyfile(folder / "animation.gif", target / f"{scale}.gif")
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text()))


def rendered(text: str) -> str:
    """The README with its generated parts made anew from results/."""
    table = report.rows_markdown(load_summary(ROOT / "results/demo/quick.json"))
    text = _between(text, "table: results/demo/quick.json", "end of table", table)
    return _between(text, "verdicts: results", "end of verdicts", verdicts())


def verdicts() -> str:
    """One row for each stored summary: how many rows agree, and the figure."""
    lines = ["| experiment | scale | rows that agree | figure |", "|---|---|---:|---|"]
    for path in sorted((ROOT / "results").rglob("*.json")):
        summary = load_summary(path)
        agree = sum(row["ok"] is True for row in summary["rows"])
        count = f"{agree} of {len(summary['rows'])}"
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
    return re.sub(pattern, lambda m: f"{m[1]}{content.strip()}\n{m[2]}", text, flags=re.S)


if __name__ == "__main__":
    main()
