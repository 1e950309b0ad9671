"""Run benches and keep what they print under bench/results/, with a figure where one is drawn.

python tools/benches.py flow growth
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from extremal import report

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"
LABELS = {
    "samples": "samples n",
    "dimension": "dimension D",
    "width": "neurons h",
    "p": "power p",
    "init": "standard deviation of the first weights",
}


def main() -> None:
    sys.path.insert(0, str(ROOT))
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        result = importlib.import_module(f"bench.{name}").measure()
        (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        if name == "growth":
            draw_growth(result)
    page = ROOT / "docs" / "gradient-flow.md"
    page.write_text(rendered(page.read_text()))


def rendered(text: str) -> str:
    """The page on gradient flow with its table made anew from bench/results/flow.json."""
    found = json.loads((FOLDER / "flow.json").read_text())
    pattern = "(<!-- bench: flow -->\n).*?(<!-- end of bench -->)"
    return re.sub(pattern, lambda m: f"{m[1]}{flow_table(found)}{m[2]}", text, flags=re.S)


def flow_table(result: dict[str, Any]) -> str:
    """One row for each p and kind of data."""
    lines = ["| | seconds | times faster than the recipe | alignment | waking | fitting | set-up |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    figures = result["figures"]
    for p in (1, 3):
        for kind in ("known mixture", "plain x and y"):
            where = f"{kind}, p = {p}"
            spent = figures[f"where the last flow's seconds went, {where}"]
            stages = [spent.get(stage, 0.0) for stage in ("alignment", "waking", "fitting")]
            ratio = result["ratios"][f"recipe over flow, denormals flushed, {where}"]
            cells = [f"{figures[f'flow, s, {where}']:.2f}", f"{ratio:.0f}"]
            cells += [f"{part:.2f}" for part in (*stages, spent["all"] - sum(stages))]
            lines.append(f"| p = {p}, {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_growth(result: dict[str, Any]) -> None:
    """One panel for each axis: the cost beside that of the middle size, for both methods."""
    panels = [
        {
            "kind": "line",
            "title": f"against {axis}",
            "xlabel": label,
            "ylabel": "cost beside the middle size",
            "log": "" if axis == "p" else "xy",
            "series": [
                _series(method, result["figures"][f"{method}: {axis}"]) for method in METHODS
            ],
            "marks": [],
        }
        for axis, label in LABELS.items()
    ]
    title = "How the cost of a gradient flow grows"
    png, pdf = report.save_figure({"title": title, "panels": panels, "columns": 3}, FOLDER)
    png.replace(FOLDER / "growth.png")
    pdf.unlink()


METHODS = ("general", "mixture")


def _series(method: str, found: dict[str, list[float]]) -> dict[str, Any]:
    costs = found["cost"]
    return {
        "label": method,
        "x": found["x"],
        "y": costs,
        "low": costs,
        "high": costs,
        "n": 1,
        "style": "solid",
    }


if __name__ == "__main__":
    main()
