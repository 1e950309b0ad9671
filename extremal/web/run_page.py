"""The page of one stored run: figure, ours against published, settings, files to take along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html

from extremal.report.panel_description import describe
from extremal.report.words import (
    command,
    duration,
    interval,
    number,
    published,
    setting,
    tally,
    tolerance,
    verdict,
)
from extremal.web import controls
from extremal.web.overview import EVERY
from extremal.web.stored_runs import KINDS, file_name

_WORDS = {
    "csv": "Claims, CSV",
    "figure.csv": "Curves, CSV",
    "json": "Summary, JSON",
    "png": "Figure, PNG",
    "pdf": "Figure, PDF",
}
# What changes on the page while a run goes on: the name in `progress`, and its place.
CHANGING = {
    "verdict": ("run-verdict", "children"),
    "claims": ("run-claims", "children"),
    "trials": ("run-trials", "children"),
    "which": ("which", "data"),
    "still": ("watch-run", "disabled"),
}


def page(summary: Mapping[str, Any]) -> Any:
    """The page; its figures come by a callback."""
    name, scale = summary["experiment"], summary["scale"]
    now = progress(summary)
    files = [
        html.A(
            _WORDS[kind],
            href="/download?" + urlencode({"name": name, "scale": scale, "kind": kind}),
            className="button",
            download=file_name(name, scale, kind),
        )
        for kind in KINDS
    ]
    return html.Div(
        [
            html.P(dcc.Link("All runs", href="/runs")),
            html.P(f"{name}, {scale} scale", className="soft"),
            html.H1(summary["title"]),
            html.P(f"Source: {summary['source']}", className="soft"),
            html.P(now["verdict"], id="run-verdict", className="verdict"),
            html.P(summary["notes"]) if summary["notes"] else None,
            html.Div(files, className="pair files"),
            controls.message("message-run"),
            html.Div(id="run-figures", className="panels"),
            html.H2("Ours against published"),
            html.Div(now["claims"], id="run-claims"),
            html.H2("Settings"),
            _settings(summary),
            html.H2("Trials"),
            html.Div(now["trials"], id="run-trials"),
            dcc.Store(id="which", data=now["which"]),
            dcc.Interval(id="watch-run", interval=EVERY, disabled=now["still"]),
        ],
        className="plain run",
    )


def progress(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What changes while a run goes on, by the names of CHANGING."""
    counts = summary["trials"]
    ended = counts["done"] + counts["failed"]
    told = (
        f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed; "
        f"{duration(summary['seconds'])} of computing."
    )
    made_by = html.P([told, " Made by: ", html.Code(command(summary))])
    named = {"name": summary["experiment"], "scale": summary["scale"]}
    return {
        "verdict": tally(summary),
        "claims": _claims(summary),
        "trials": [made_by, _failures(summary)],
        "which": {**named, "ended": ended},
        "still": ended >= counts["total"],
    }


def panel(shown: Mapping[str, Any], title: str, drawn: dict[str, Any]) -> Any:
    """A panel of the run's figure, with its words."""
    config = controls.SOLID if "scene" in drawn["layout"] else controls.FLAT
    return html.Figure(
        [
            html.Figcaption(html.H3(title or "Figure")),
            html.P(describe(shown), className="unseen"),
            html.Div(
                dcc.Graph(figure=drawn, config=config, responsive=True),
                className="graph",
                role="img",
                **controls.aria(label=title or "Figure"),
            ),
        ],
        className="panel",
    )


def _claims(summary: Mapping[str, Any]) -> Any:
    if not summary["rows"]:
        return html.P("There is nothing published to compare with at this scale.")
    names = ("Quantity", "Published", "Ours", "Range", "Tolerance", "Verdict", "Trials", "Source")
    body = [
        [
            row["quantity"],
            published(row),
            number(row["ours"]),
            interval(row),
            tolerance(row),
            verdict(row),
            str(row["n"]),
            row["source"],
        ]
        for row in summary["rows"]
    ]
    return _table(names, body, marked=5)


def _settings(summary: Mapping[str, Any]) -> Any:
    body = [
        [row["name"], setting(row["value"]), row["mark"], row["note"]]
        for row in summary["settings"]
    ]
    legend = [html.Li(f"{mark}: {meaning}") for mark, meaning in summary["marks"].items()]
    return html.Div([_table(("Setting", "Value", "From", "Note"), body), html.Ul(legend)])


def _failures(summary: Mapping[str, Any]) -> Any:
    body = [
        [
            str(one["seed"]),
            ", ".join(f"{k} = {setting(v)}" for k, v in one["params"].items()),
            one["reason"],
        ]
        for one in summary["failures"]
    ]
    return _table(("Seed", "Parameters", "Why it failed"), body) if body else None


def _table(names: Any, body: Any, marked: int | None = None) -> Any:
    """A table; the first cell of a row is its heading, and one column may be verdicts."""
    lines = [
        html.Tr(
            [
                html.Th(first, scope="row"),
                *(
                    html.Td(cell, className=cell.replace(" ", "-") if index == marked else "")
                    for index, cell in enumerate(cells, 1)
                ),
            ]
        )
        for first, *cells in body
    ]
    top = html.Tr([html.Th(name, scope="col") for name in names])
    return html.Div(html.Table([html.Thead(top), html.Tbody(lines)]), className="wide")
