"""The report of an experiment: one HTML page that works from a file, without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from extremal._files import write_whole
from extremal.report.figure import check, png_bytes
from extremal.report.page_parts import SCRIPT, STYLE
from extremal.report.page_sections import figure, head, rows, settings, trials
from extremal.report.plotly_panels import figures

# The browser itself refuses whatever is not in the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write_page(
    summary: Mapping[str, Any], path: str | Path, *, picture: bytes | None = None
) -> Path:
    """Write the report as one HTML file, whole or not at all, and return its path.

    `picture` is the figure as PNG, which is drawn anew where it is not given.
    """
    write_whole(path, page(summary, picture=picture).encode(), make_folders=True)
    return Path(path)


def page(summary: Mapping[str, Any], *, picture: bytes | None = None) -> str:
    """The HTML text of the report."""
    check(summary)
    png = png_bytes(summary) if picture is None else picture
    sections = [head(summary), rows(summary), figure(summary, png)]
    sections += [settings(summary), trials(summary)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(str(summary["title"]))}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{"".join(sections)}</main>
<script>{_plotly()}</script>
<script type="application/json" id="panels">{_inline(figures(summary))}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _plotly() -> str:
    # Imported here, because a figure or a table alone does not need it.
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _inline(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")
