"""All files of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extremal.report.figure import save_figure
from extremal.report.page import write_page


def write_report(summary: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write `figure.png`, `figure.pdf` and `report.html` into a folder; return their paths."""
    png, pdf = save_figure(summary, folder)
    page = write_page(summary, Path(folder) / "report.html", picture=png.read_bytes())
    return [png, pdf, page]
