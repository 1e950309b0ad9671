"""All files of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extremal.report.animate import save_animation
from extremal.report.figure import save_figure
from extremal.report.page import write_page


def write_report(
    summary: Mapping[str, Any], folder: str | Path, film: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write `figure.png`, `figure.pdf` and `report.html` into a folder; return their paths.

    With a film (see `extremal.experiments.animation_data`) also `animation.gif`.
    """
    png, pdf = save_figure(summary, folder)
    page = write_page(summary, Path(folder) / "report.html", picture=png.read_bytes())
    movies = [] if film is None else [save_animation(film, Path(folder) / "animation.gif")]
    return [png, pdf, page, *movies]
