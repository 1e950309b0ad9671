"""The page of stored runs: the table of all, and one of them with figure, claims and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from flask import Response, request

from extremal.report.describe import describe
from extremal.report.interactive import figures
from extremal.report.style import headings, panels_of
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
from extremal.web import parts
from extremal.web.guard import guarded
from extremal.web.look import theme, themed
from extremal.web.pool import Pool
from extremal.web.results import KINDS, Row, detail, download, listing
from extremal.web.setup import read_query

COLUMNS = {
    "name": "Experiment",
    "title": "What it shows",
    "scale": "Scale",
    "status": "Status",
    "done": "Trials",
    "agree": "Agree with the source",
}
EVERY = 5000  # milliseconds between two looks at what runs
FRESH = 3.0  # seconds for which the table is not made anew
LONGEST = 200  # characters of a filter


class Runs:
    """The callbacks of the page."""

    def __init__(self, pool: Pool, out: Path) -> None:
        self._pool, self._out = pool, out

    def rows(self, words: Any, order: Any, ticks: Any) -> tuple[Any, str]:
        """The table's body: rows that hold all words of the filter, in the order asked for."""
        del ticks
        found = self._pool.ask("runs", lambda _: listing(self._out), age=FRESH)
        wanted = str(words or "")[:LONGEST].lower().split()
        kept = [row for row in found if all(word in _text(row) for word in wanted)]
        ordered = sorted(kept, key=_key(order), reverse=_reversed(order))
        told = f"{len(kept)} of {len(found)} runs"
        return [_line(row) for row in ordered], told

    def summary(self, name: object, scale: object) -> dict[str, Any]:
        """One run, as far as it has come; made anew after a few seconds."""
        key = ("run", str(name)[:LONGEST], str(scale)[:LONGEST])
        made: dict[str, Any] = self._pool.ask(
            key, lambda _: detail(name, scale, self._out), age=FRESH
        )
        return made

    def draw(self, which: Any, look: Any) -> tuple[Any, str]:
        """The figure of a run, interactive, each panel with its words."""
        chosen = theme(look)
        name, scale = _which(which)
        summary = self.summary(name, scale)
        panels = panels_of(summary)
        made = zip(panels, headings(panels), figures(summary), strict=True)
        return [_panel(panel, title, themed(one, chosen)) for panel, title, one in made], ""

    def page(self, search: str | None) -> Any:
        """The table, or the run that the link names."""
        try:
            asked = read_query(search, {"name", "scale"})
            if not asked:
                return _overview()
            return _detail(self.summary(asked.get("name"), asked.get("scale")))
        except ValueError as error:
            back = html.P(dcc.Link("All runs", href="/runs"))
            return html.Div(
                [html.H1("Runs"), html.P(str(error), className="message", role="alert"), back],
                className="plain",
            )


def _which(which: object) -> tuple[object, object]:
    return (which.get("name"), which.get("scale")) if isinstance(which, Mapping) else (None, None)


def _text(row: Row) -> str:
    return f"{row.name} {row.title} {row.scale} {row.status}".lower()


def _key(order: object) -> Any:
    by = order.get("by") if isinstance(order, Mapping) else None
    field = by if isinstance(by, str) and by in COLUMNS else "name"

    def key(row: Row) -> tuple[Any, ...]:
        if field == "agree":
            return (row.agree is None, (row.agree or 0) / max(row.claims or 1, 1), row.name)
        if field == "done":
            return (row.done / max(row.total, 1), row.total, row.name)
        return (getattr(row, str(field)), row.name, row.scale)

    return key


def _reversed(order: object) -> bool:
    return isinstance(order, Mapping) and order.get("down") is True


def _line(row: Row) -> Any:
    href = "/runs?" + urlencode({"name": row.name, "scale": row.scale})
    share = "–" if not row.claims else f"{row.agree} of {row.claims}"
    full = bool(row.claims) and row.agree == row.claims
    return html.Tr(
        [
            html.Th(dcc.Link(row.name, href=href), scope="row"),
            html.Td(row.title),
            html.Td(row.scale),
            html.Td(row.status, className=f"status {row.status}"),
            html.Td(f"{row.done} of {row.total}"),
            html.Td(share, className="agrees" if full else ""),
        ]
    )


def _overview() -> Any:
    top = [
        html.Th(
            html.Button(label, id=f"sort-{name}", type="button", className="sort"),
            scope="col",
            id=f"head-{name}",
            **parts.aria(sort="ascending" if name == "name" else "none"),
        )
        for name, label in COLUMNS.items()
    ]
    return html.Div(
        [
            html.H1("Runs"),
            html.P(
                "Everything that is stored: your run folder, and the results that come with the "
                "repo where you have not run something yourself.",
                className="soft",
            ),
            html.Div(
                [
                    html.Label("Filter", htmlFor="filter"),
                    dcc.Input(id="filter", type="search", maxLength=LONGEST, debounce=0.2),
                    html.Span(id="counted", role="status", className="soft"),
                ],
                className="filter field",
            ),
            parts.message("message-runs"),
            html.Div(
                html.Table([html.Thead(html.Tr(top)), html.Tbody(id="rows")], className="runs"),
                className="wide",
            ),
            dcc.Store(id="order", data={"by": "name", "down": False}),
            dcc.Interval(id="watch", interval=EVERY),
        ],
        className="plain",
    )


def _detail(summary: Mapping[str, Any]) -> Any:
    which = {"name": summary["experiment"], "scale": summary["scale"]}
    files = [
        html.A(
            _WORDS[kind],
            href="/download?" + urlencode({**which, "kind": kind}),
            className="button",
            download=_file(summary, kind),
        )
        for kind in KINDS
    ]
    counts = summary["trials"]
    told = (
        f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed; "
        f"{duration(summary['seconds'])} of computing."
    )
    return html.Div(
        [
            html.P(dcc.Link("All runs", href="/runs")),
            html.P(f"{summary['experiment']}, {summary['scale']} scale", className="soft"),
            html.H1(summary["title"]),
            html.P(f"Source: {summary['source']}", className="soft"),
            html.P(tally(summary), className="verdict"),
            html.P(summary["notes"]) if summary["notes"] else None,
            html.Div(files, className="pair files"),
            parts.message("message-run"),
            html.Div(id="run-figures", className="panels"),
            html.H2("Ours against published"),
            _claims(summary),
            html.H2("Settings"),
            _settings(summary),
            html.H2("Trials"),
            html.P([told, " Made by: ", html.Code(command(summary))]),
            _failures(summary),
            dcc.Store(id="which", data=which),
        ],
        className="plain run",
    )


_WORDS = {
    "csv": "Claims, CSV",
    "figure.csv": "Curves, CSV",
    "json": "Summary, JSON",
    "png": "Figure, PNG",
    "pdf": "Figure, PDF",
}


def _file(summary: Mapping[str, Any], kind: str) -> str:
    return f"{summary['experiment'].replace('/', '-')}-{summary['scale']}.{kind}"


def _panel(panel: Mapping[str, Any], title: str, drawn: dict[str, Any]) -> Any:
    config = parts.SOLID if "scene" in drawn["layout"] else parts.FLAT
    return html.Figure(
        [
            html.Figcaption(html.H3(title or "Figure")),
            html.P(describe(panel), className="unseen"),
            html.Div(dcc.Graph(figure=drawn, config=config, responsive=True), className="graph"),
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


def add_callbacks(app: Dash, runs: Runs) -> None:
    """Connect the page with its answers, and serve its files."""
    app.callback(
        Output("rows", "children"),
        Output("counted", "children"),
        Output("message-runs", "children"),
        Input("filter", "value"),
        Input("order", "data"),
        Input("watch", "n_intervals"),
    )(guarded(lambda words: (no_update, no_update, words))(lambda *asked: (*runs.rows(*asked), "")))
    app.callback(
        Output("run-figures", "children"),
        Output("message-run", "children"),
        Input("which", "data"),
        Input("theme", "data"),
    )(guarded(lambda words: (no_update, words))(runs.draw))
    app.clientside_callback(
        ClientsideFunction("explorer", "order"),
        Output("order", "data"),
        *(Output(f"head-{name}", "aria-sort") for name in COLUMNS),
        *(Input(f"sort-{name}", "n_clicks") for name in COLUMNS),
        State("order", "data"),
        prevent_initial_call=True,
    )

    def send() -> Response:
        asked = (request.args.get(name) for name in ("name", "scale", "kind"))
        return _answer(runs, *asked)

    app.server.add_url_rule("/download", "download", send)


def _answer(runs: Runs, name: str | None, scale: str | None, kind: str | None) -> Response:
    """A file, or a sentence where there is none."""

    def failed(words: str) -> Response:
        return Response(words + "\n", status=404, mimetype="text/plain")

    def made() -> Response:
        summary = runs.summary(name, scale)
        content = download(summary, kind)
        response = Response(content, mimetype=KINDS[str(kind)])
        named = f"attachment; filename={_file(summary, str(kind))}"
        response.headers["Content-Disposition"] = named
        return response

    answer: Response = guarded(failed)(made)()
    return answer
