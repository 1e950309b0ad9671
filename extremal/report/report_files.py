"""The files of a report: figure, page, animation, and the table of trials.

The table is for other programs: CSV, and Parquet where pyarrow is there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from extremal._files import write_whole
from extremal.report.animation import save_animation
from extremal.report.figure import save_figure
from extremal.report.html_page import write_page

Row = Mapping[str, Any]


def save_rows(rows: Sequence[Row], folder: str | Path) -> list[Path]:
    """Write `table.csv` and, with pyarrow, `table.parquet` into a folder; return their paths.

    Columns are in the order in which they first come up. Lists are JSON in the CSV file and lists
    in the other one, where a column of several kinds of value is JSON too.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Path(folder) / "table.csv"
    write_whole(table, csv_bytes(rows, columns), make_folders=True)
    data = _parquet(rows, columns)
    if data is None:
        return [table]
    write_whole(table.with_suffix(".parquet"), data)
    return [table, table.with_suffix(".parquet")]


def csv_bytes(rows: Iterable[Row], columns: Sequence[str]) -> bytes:
    """Some columns of rows as a CSV file; a cell that a row does not have is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict | bool) else value


def _parquet(rows: Sequence[Row], columns: list[str]) -> bytes | None:
    try:
        # Imported here, because it is an extra.
        import pyarrow as arrow  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        return None
    found = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        try:
            found[name] = arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError):
            found[name] = arrow.array([v if v is None else json.dumps(v) for v in values])
    target = io.BytesIO()
    parquet.write_table(arrow.table(found), target)
    return target.getvalue()


def write_report(
    summary: Mapping[str, Any], folder: str | Path, film: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write `figure.png`, `figure.pdf` and `report.html` into a folder; return their paths.

    With a film (see `extremal.experiments.film`) also `animation.gif`.
    """
    png, pdf = save_figure(summary, folder)
    page = write_page(summary, Path(folder) / "report.html", picture=png.read_bytes())
    movies = [] if film is None else [save_animation(film, Path(folder) / "animation.gif")]
    return [png, pdf, page, *movies]
