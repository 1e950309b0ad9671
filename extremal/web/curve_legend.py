"""Legends of curves as part of the page: they wrap as text does, and can be read aloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from dash import html

from extremal.web.theme import Figure

# Pixels of the sample of a curve.
SAMPLE_WIDTH, SAMPLE_HEIGHT = 34, 14
# How plotly's dashes are drawn, in widths of a line.
DASHES = {"solid": "", "dash": "9,5", "dot": "2,3"}


def legend(figure: Figure) -> list[Any]:
    """The curves of a figure by their names, those of one group together, each with a sample."""
    groups: dict[str, list[Any]] = {}
    for trace in figure["data"]:
        image = html.Img(src=sample(trace), alt="", className="sample")
        groups.setdefault(trace["legendgroup"], []).append(html.Li([image, trace["name"]]))
    return [html.Ul(entries) for entries in groups.values()]


def sample(trace: Mapping[str, Any]) -> str:
    """The address of a picture of a curve: its colour, its dashes, its marks."""
    line, middle = trace["line"], SAMPLE_HEIGHT / 2
    dashes = DASHES[line.get("dash", "solid")]
    drawn = f'<path d="M0 {middle}H{SAMPLE_WIDTH}" stroke-dasharray="{dashes}"/>'
    if "markers" in trace["mode"]:
        drawn += f'<path d="M{SAMPLE_WIDTH / 2} {middle - 5}l5 5-5 5-5-5z"/>'
    look = f'fill="none" stroke="{line["color"]}" stroke-width="{line["width"]}"'
    size = f'width="{SAMPLE_WIDTH}" height="{SAMPLE_HEIGHT}"'
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look}>{drawn}</svg>'
    return f"data:image/svg+xml,{quote(picture)}"
