"""Copy finished runs into results/ and rewrite the tables of README and docs from there.

    python tools/store_results.py demo:quick min-vidal-2024/figure-2:quick ...

With no argument only these are rewritten; with --draw all figures are drawn anew as well, from
the summaries in results/, after a change of how things are drawn.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from extremal.experiments import get, load_summary
from extremal.report.figure import png_bytes
from tools.doc_tables import ROOT, rewrite


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
    rewrite()


if __name__ == "__main__":
    main()
