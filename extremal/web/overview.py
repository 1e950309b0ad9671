"""The table of all stored runs: its heading, its rows, their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html

from extremal.web import controls
from extremal.web.stored_runs import Row

COLUMNS = {
    "name": "Experiment",
    "title": "What it shows",
    "scale": "Scale",
    "status": "Status",
    "done": "Trials",
    "agree": "Agree with the source",
}
EVERY = 5000  # milliseconds between two looks at what runs
LONGEST = 200  # characters of a filter


def page() -> Any:
    """The page with an empty table; its rows come by a callback."""
    top = [
        html.Th(
            html.Button(label, id=f"sort-{name}", type="button", className="sort"),
            scope="col",
            id=f"head-{name}",
            **controls.aria(sort="ascending" if name == "name" else "none"),
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
            controls.message("message-runs"),
            html.Div(
                html.Table([html.Thead(html.Tr(top)), html.Tbody(id="rows")], className="runs"),
                className="wide",
            ),
            dcc.Store(id="order", data={"by": "name", "down": False}),
            dcc.Interval(id="watch", interval=EVERY),
        ],
        className="plain",
    )


def chosen(rows: Sequence[Row], words: object, order: object) -> list[Row]:
    """Rows that hold all words of a filter, in the order asked for."""
    wanted = str(words or "")[:LONGEST].lower().split()
    kept = [row for row in rows if all(word in _text(row) for word in wanted)]
    return sorted(kept, key=_key(order), reverse=_reversed(order))


def _text(row: Row) -> str:
    return f"{row.name} {row.title} {row.scale} {status(row)}".lower()


def status(row: Row) -> str:
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


def line(row: Row) -> Any:
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
