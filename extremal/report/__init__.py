"""Figures, tables and pages, made from stored results: the only part that draws."""

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
