"""The pages of stored runs: the table of all of them, and the page of one with its files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal import _check
from extremal.report.html_page import report_html
from extremal.web import controls
from extremal.web.answer_pool import AnswerPool
from extremal.web.callback_errors import errors_as_text
from extremal.web.playground_settings import read_query
from extremal.web.stored_runs import (
    FILE_KINDS,
    RunRow,
    changed,
    detail,
    drawn_file,
    file_name,
    listing,
    made_file,
)

# Columns of the table of runs, and their headings.
TABLE_COLUMNS = {
    "name": "Experiment",
    "title": "What it shows",
    "scale": "Scale",
    "status": "Status",
    "done": "Trials",
    "agree": "Agree with the source",
}
# Milliseconds between two looks at what runs.
WATCH_MILLISECONDS = 5000
# Characters of a filter that count.
FILTER_CHARACTERS = 200


def runs_table_page() -> Any:
    """The page with an empty table; its rows come by a callback."""
    top = [
        html.Th(
            html.Button(label, id=f"sort-{name}", type="button", className="sort"),
            scope="col",
            id=f"head-{name}",
            **controls.aria(sort="ascending" if name == "name" else "none"),
        )
        for name, label in TABLE_COLUMNS.items()
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
                    dcc.Input(
                        id="filter", type="search", maxLength=FILTER_CHARACTERS, debounce=0.2
                    ),
                    html.Span(id="counted", role="status", className="soft"),
                ],
                className="filter field",
            ),
            controls.message("message-runs"),
            html.Div(
                html.Table([html.Thead(html.Tr(top)), html.Tbody(id="rows")], className="runs"),
                className="wide",
            ),
            dcc.Store(id="order", data={"by": "name", "down": False}),
            dcc.Interval(id="watch", interval=WATCH_MILLISECONDS),
        ],
        className="plain",
    )


def chosen(rows: Sequence[RunRow], words: object, order: object) -> list[RunRow]:
    """Rows that hold all words of a filter, in the order asked for."""
    wanted = str(words or "")[:FILTER_CHARACTERS].lower().split()
    kept = [row for row in rows if all(word in _text(row) for word in wanted)]
    return sorted(kept, key=_key(order), reverse=_reversed(order))


def _text(row: RunRow) -> str:
    return f"{row.name} {row.title} {row.scale} {status(row)}".lower()


def status(row: RunRow) -> str:
    """How a run stands: whether one that is quiet for long has stopped can't be known."""
    if row.status != "begun":
        return row.status
    return f"last trial {_ago(row.quiet)} ago" if row.done else "no trial done yet"


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _key(order: object) -> Any:
    by = order.get("by") if isinstance(order, Mapping) else None
    field = by if isinstance(by, str) and by in TABLE_COLUMNS else "name"

    def key(row: RunRow) -> tuple[Any, ...]:
        if field == "agree":
            return (row.agree is None, (row.agree or 0) / max(row.claims or 1, 1), row.name)
        if field == "done":
            return (row.done / max(row.total, 1), row.total, row.name)
        return (getattr(row, str(field)), row.name, row.scale)

    return key


def _reversed(order: object) -> bool:
    return isinstance(order, Mapping) and order.get("down") is True


def line(row: RunRow) -> Any:
    """A row of the table."""
    href = "/runs?" + urlencode({"name": row.name, "scale": row.scale})
    share = "–" if not row.claims else f"{row.agree} of {row.claims}"
    full = bool(row.claims) and row.agree == row.claims
    return html.Tr(
        [
            html.Th(dcc.Link(row.name, href=href), scope="row"),
            html.Td(row.title),
            html.Td(row.scale),
            html.Td(status(row), className=f"status {row.status}"),
            html.Td(f"{row.done} of {row.total}"),
            html.Td(share, className="agrees" if full else ""),
        ]
    )


# What changes on the page while a run goes on: the name in `progress`, and its place.
CHANGING_PLACES = {
    "report": ("run-report", "src"),
    "which": ("which", "data"),
    "still": ("watch-run", "disabled"),
}


def run_page(summary: Mapping[str, Any]) -> Any:
    """The page of one run: its files, and its report in a frame that can reach nothing else."""
    name, scale = summary["experiment"], summary["scale"]
    now = progress(summary)
    files = [
        html.A(
            words,
            href="/download?" + urlencode({"name": name, "scale": scale, "kind": kind}),
            className="button",
            download=file_name(name, scale, kind),
        )
        for kind, (_, words) in FILE_KINDS.items()
    ]
    return html.Div(
        [
            html.H1(summary["title"], className="unseen"),
            html.P(dcc.Link("All runs", href="/runs")),
            html.Div(files, className="pair files"),
            html.Iframe(
                id="run-report",
                src=now["report"],
                title=f"Report of {name}, {scale} scale",
                sandbox="allow-scripts allow-downloads",
            ),
            dcc.Store(id="which", data=now["which"]),
            dcc.Interval(id="watch-run", interval=WATCH_MILLISECONDS, disabled=now["still"]),
        ],
        className="plain run",
    )


def progress(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What changes while a run goes on, by the names of CHANGING_PLACES."""
    counts = summary["trials"]
    ended = counts["done"] + counts["failed"]
    which = {"name": summary["experiment"], "scale": summary["scale"], "ended": ended}
    return {
        "report": "/report?" + urlencode(which),
        "which": which,
        "still": ended >= counts["total"],
    }


# Seconds for which what is stored is not looked at anew.
FRESH_SECONDS = 3.0


class RunPages:
    """The callbacks of the pages."""

    def __init__(self, pool: AnswerPool, out: Path) -> None:
        self._pool, self._out = pool, out

    def rows(self, words: Any, order: Any, ticks: Any) -> tuple[Any, str, str]:
        """The table's body: rows that hold all words of the filter, in the order asked for."""
        del ticks
        found = self._pool.ask("runs", lambda _: listing(self._out), age=FRESH_SECONDS)
        kept = chosen(found, words, order)
        return [line(row) for row in kept], f"{len(kept)} of {len(found)} runs", ""

    def summary(self, name: object, scale: object) -> dict[str, Any]:
        """One run, as far as it has come; made anew after a few seconds."""
        made: dict[str, Any] = self._pool.ask(
            ("run", *_short(name, scale)),
            lambda _: detail(name, scale, self._out),
            age=FRESH_SECONDS,
        )
        return made

    def refresh(self, ticks: Any, which: Any) -> tuple[Any, ...]:
        """What has changed on the page of a run that goes on; nothing until a trial has ended."""
        del ticks
        summary = self.summary(*_which(which))
        now = progress(summary)
        if now["which"] == which:
            return (no_update,) * len(now)
        return tuple(now.values())

    def file(self, name: object, scale: object, kind: object) -> Path | bytes:
        """A file of a run: one that was drawn, or its bytes, made anew.

        Figures cost seconds: they wait for a thread and are kept. When the run was written is read
        before the run is, so that nothing old is kept as new.
        """
        _check.choice("kind", kind, FILE_KINDS)
        written = changed(name, scale, self._out)
        if (drawn := drawn_file(str(name), str(scale), str(kind), self._out)) is not None:
            return drawn
        made: bytes = self._pool.ask(
            ("file", *_short(name, scale, kind), written),
            lambda _: made_file(detail(name, scale, self._out), str(kind)),
        )
        return made

    def report(self, name: object, scale: object) -> Path | bytes:
        """The report of a run as one page: the file of one that has ended, or made anew.

        A page has megabytes, of which the figure is what costs time: only that is kept.
        """
        summary = self.summary(name, scale)
        if (drawn := drawn_file(str(name), str(scale), "html", self._out)) is not None:
            return drawn
        picture = self.file(name, scale, "png")
        png = picture.read_bytes() if isinstance(picture, Path) else picture
        made: bytes = self._pool.ask(
            ("report", *_short(name, scale), summary["trials"]["done"]),
            lambda _: report_html(summary, picture=png).encode(),
            size=lambda _: sys.maxsize,
        )
        return made

    def page(self, search: str | None) -> Any:
        """The table, or the run that the link names."""
        try:
            asked = read_query(search, {"name", "scale"})
            if not asked:
                return runs_table_page()
            return run_page(self.summary(asked.get("name"), asked.get("scale")))
        except ValueError as error:
            back = html.P(dcc.Link("All runs", href="/runs"))
            return html.Div(
                [html.H1("Runs"), html.P(str(error), className="message", role="alert"), back],
                className="plain",
            )


def _which(which: object) -> tuple[object, object]:
    return (which.get("name"), which.get("scale")) if isinstance(which, Mapping) else (None, None)


def _short(*words: object) -> tuple[str, ...]:
    """What a browser sent, as part of a key."""
    return tuple(str(word)[:FILTER_CHARACTERS] for word in words)


def add_callbacks(app: Dash, runs: RunPages) -> None:
    """Connect the pages with their answers."""
    app.callback(
        Output("rows", "children"),
        Output("counted", "children"),
        Output("message-runs", "children"),
        Input("filter", "value"),
        Input("order", "data"),
        Input("watch", "n_intervals"),
    )(errors_as_text(lambda words: (no_update, no_update, words))(runs.rows))
    app.callback(
        *(Output(ident, part) for ident, part in CHANGING_PLACES.values()),
        Input("watch-run", "n_intervals"),
        State("which", "data"),
        prevent_initial_call=True,
    )(errors_as_text(lambda _: (no_update,) * len(CHANGING_PLACES))(runs.refresh))
    app.clientside_callback(
        ClientsideFunction("explorer", "order"),
        Output("order", "data"),
        *(Output(f"head-{name}", "aria-sort") for name in TABLE_COLUMNS),
        *(Input(f"sort-{name}", "n_clicks") for name in TABLE_COLUMNS),
        State("order", "data"),
        prevent_initial_call=True,
    )
