"""Pieces of pages: labelled controls, places for figures and for messages."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from extremal.web.freshness import old_line
from extremal.web.playground_settings import SETTING_BOUNDS
from extremal.web.terms import explained
from extremal.web.theme import empty_figure

# Seconds that a slider must rest before its value counts.
SETTLE_SECONDS = 0.15
# Buttons are named one by one: by default there is one that sends the data to a server.
GRAPH_CONFIG: Any = {
    "displaylogo": False,
    "displayModeBar": "hover",
    "responsive": True,
    "showSendToCloud": False,
    "plotlyServerURL": "",
}
# Buttons of a graph in the plane.
FLAT_GRAPH_CONFIG: Any = {
    **GRAPH_CONFIG,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}
# Buttons of a graph in space.
SPACE_GRAPH_CONFIG: Any = {**GRAPH_CONFIG, "modeBarButtons": [["toImage", "resetCameraDefault3d"]]}
# A graph without buttons.
BARE_GRAPH_CONFIG: Any = {**GRAPH_CONFIG, "displayModeBar": False}


def slider(name: str, value: float, *, control: str | None = None) -> Any:
    """A labelled range control of a setting, with its meaning and its value beside the label."""
    limits = SETTING_BOUNDS[name]
    ident = control or f"c-{name}"
    label = limits.label if control is None else f"{limits.label}, beside"
    what = explained("?", limits.about, className="what", **aria(label=f"What is: {label}"))
    told = html.Output(shown(name, value), id=f"{ident}-shown", htmlFor=ident)
    return html.Div(
        [
            html.Div([html.Label(label, htmlFor=ident), what, told], className="row"),
            dcc.Input(
                id=ident,
                type="range",
                min=limits.low,
                max=limits.high,
                step=limits.step,
                value=value,
                debounce=SETTLE_SECONDS,
            ),
        ],
        className="control",
    )


def shown(name: str, value: float) -> str:
    """A setting's value as it stands beside its label."""
    return f"1e{value:g}" if name == "init" else f"{value:g}"


def number(ident: str, label: str, value: float, low: float, high: float, step: float) -> Any:
    """A labelled number field."""
    return html.Div(
        [
            html.Label(label, htmlFor=ident),
            dcc.Input(
                id=ident,
                type="number",
                min=low,
                max=high,
                step=step,
                value=value,
                debounce=SETTLE_SECONDS,
            ),
        ],
        className="field",
    )


def figure(
    ident: str,
    title: str,
    *,
    group: str,
    kind: str,
    config: Any = BARE_GRAPH_CONFIG,
    note: Any = (),
    foot: Any = None,
) -> Any:
    """A place for a plotly figure, with a heading where there is a note under it; a foot below.

    The server draws into the store `ident-drawn`; the browser paints that into the graph.
    """
    graph = dcc.Graph(id=ident, figure=empty_figure(), config=config, responsive=True)
    view = html.Div(graph, className="graph", role="img", **aria(label=title))
    top = [html.Figcaption([html.H2(title), *note])] if note else []
    return html.Figure(
        [*top, marked(ident, view), foot, dcc.Store(id=f"{ident}-drawn", data=empty_figure())],
        className=f"panel {kind} from-{group}",
    )


def marked(ident: str, view: Any) -> Any:
    """Something that is shown, with room for the mark that it is old."""
    return html.Div([old_line(ident), view], className="view")


def aria(**words: str) -> dict[str, Any]:
    """Attributes such as aria-label, whose names are no names in Python."""
    return {f"aria-{name}": word for name, word in words.items()}


def message(ident: str) -> Any:
    """A place for what went wrong; screen readers hear it."""
    return html.Div(id=ident, className="message", role="alert")
