"""Run benches and keep what they print under bench/results/, with a figure where one is drawn.

python tools/store_benches.py flow growth
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from extremal import report
from tools.doc_tables import FOLDER, rewrite

LABELS = {
    "samples": "samples n",
    "dimension": "dimension D",
    "width": "neurons h",
    "p": "power p",
    "init": "standard deviation of the first weights",
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        result = importlib.import_module(f"bench.{name}").measure()
        (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        if name == "growth":
            draw_growth(result)
    rewrite()


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
