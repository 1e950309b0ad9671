"""Figures, tables and pages, made from stored results: the only part that draws.

A name is imported when it is first used, since the drawing libraries take a second and a table in
the terminal needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extremal.report.animation import save_animation
    from extremal.report.figure import draw, save_figure
    from extremal.report.html_page import write_page
    from extremal.report.report_files import save_rows, write_report
    from extremal.report.result_plots import (
        draw_pairs,
        draw_robustness,
        plot,
        save_pairs,
        save_robustness,
    )
    from extremal.report.verdict_table import rows_markdown, rows_table

__all__ = [
    "draw",
    "draw_pairs",
    "draw_robustness",
    "plot",
    "rows_markdown",
    "rows_table",
    "save_animation",
    "save_figure",
    "save_pairs",
    "save_robustness",
    "save_rows",
    "write_page",
    "write_report",
]

# The names that each file holds, as they are imported above.
_NAMES_BY_FILE = {
    "animation": ("save_animation",),
    "figure": ("draw", "save_figure"),
    "html_page": ("write_page",),
    "report_files": ("save_rows", "write_report"),
    "result_plots": ("draw_pairs", "draw_robustness", "plot", "save_pairs", "save_robustness"),
    "verdict_table": ("rows_markdown", "rows_table"),
}


def __getattr__(name: str) -> object:
    """Import the file that holds a public name, when it is first used."""
    for file, names in _NAMES_BY_FILE.items():
        if name in names:
            return getattr(importlib.import_module(f"extremal.report.{file}"), name)
    raise AttributeError(f"module 'extremal.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Every public name, imported or not."""
    return sorted({*globals(), *__all__})
