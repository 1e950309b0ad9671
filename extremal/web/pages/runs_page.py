"""The pages of stored runs: what their callbacks answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal.report.panel_style import headings, panels_of
from extremal.report.plotly_panels import figures
from extremal.web import overview, run_page
from extremal.web.answer_pool import Pool
from extremal.web.callback_errors import guarded
from extremal.web.playground_settings import read_query
from extremal.web.stored_runs import changed, detail, download, listing
from extremal.web.theme import theme, themed

FRESH = 3.0  # seconds for which what is stored is not looked at anew


class Runs:
    """The callbacks of the pages."""

    def __init__(self, pool: Pool, out: Path) -> None:
        self._pool, self._out = pool, out

    def rows(self, words: Any, order: Any, ticks: Any) -> tuple[Any, str, str]:
        """The table's body: rows that hold all words of the filter, in the order asked for."""
        del ticks
        found = self._pool.ask("runs", lambda _: listing(self._out), age=FRESH)
        kept = overview.chosen(found, words, order)
        return [overview.line(row) for row in kept], f"{len(kept)} of {len(found)} runs", ""

    def summary(self, name: object, scale: object) -> dict[str, Any]:
        """One run, as far as it has come; made anew after a few seconds."""
        made: dict[str, Any] = self._pool.ask(
            ("run", *_short(name, scale)), lambda _: detail(name, scale, self._out), age=FRESH
        )
        return made

    def draw(self, which: Any, look: Any) -> tuple[Any, str]:
        """The figure of a run, interactive, each panel with its words."""
        chosen = theme(look)
        summary = self.summary(*_which(which))
        panels = panels_of(summary)
        made = zip(panels, headings(panels), figures(summary), strict=True)
        drawn = [run_page.panel(one, title, themed(flat, chosen)) for one, title, flat in made]
        return drawn, ""

    def refresh(self, ticks: Any, which: Any) -> tuple[Any, ...]:
        """What has changed on the page of a run that goes on; nothing until a trial has ended."""
        del ticks
        summary = self.summary(*_which(which))
        now = run_page.progress(summary)
        if now["which"] == which:
            return (no_update,) * len(now)
        return tuple(now.values())

    def file(self, name: object, scale: object, kind: object) -> bytes:
        """A file of a run. Figures cost seconds: they wait for a thread and are kept.

        When it was written is read before the run is, so that nothing old is kept as new.
        """
        key = ("file", *_short(name, scale, kind), changed(name, scale, self._out))
        made: bytes = self._pool.ask(key, lambda _: download(detail(name, scale, self._out), kind))
        return made

    def page(self, search: str | None) -> Any:
        """The table, or the run that the link names."""
        try:
            asked = read_query(search, {"name", "scale"})
            if not asked:
                return overview.page()
            return run_page.page(self.summary(asked.get("name"), asked.get("scale")))
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
    return tuple(str(word)[: overview.LONGEST] for word in words)


def add_callbacks(app: Dash, runs: Runs) -> None:
    """Connect the pages with their answers."""
    app.callback(
        Output("rows", "children"),
        Output("counted", "children"),
        Output("message-runs", "children"),
        Input("filter", "value"),
        Input("order", "data"),
        Input("watch", "n_intervals"),
    )(guarded(lambda words: (no_update, no_update, words))(runs.rows))
    app.callback(
        Output("run-figures", "children"),
        Output("message-run", "children"),
        Input("which", "data"),
        Input("theme", "data"),
    )(guarded(lambda words: (no_update, words))(runs.draw))
    app.callback(
        *(Output(ident, part) for ident, part in run_page.CHANGING.values()),
        Input("watch-run", "n_intervals"),
        State("which", "data"),
        prevent_initial_call=True,
    )(guarded(lambda _: (no_update,) * len(run_page.CHANGING))(runs.refresh))
    app.clientside_callback(
        ClientsideFunction("explorer", "order"),
        Output("order", "data"),
        *(Output(f"head-{name}", "aria-sort") for name in overview.COLUMNS),
        *(Input(f"sort-{name}", "n_clicks") for name in overview.COLUMNS),
        State("order", "data"),
        prevent_initial_call=True,
    )
