"""The playground's page connected with its answers, of the server and of the browser itself."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, no_update

from extremal.web.callback_errors import guarded
from extremal.web.pages.playground_answers import Playground
from extremal.web.pages.playground_page import SLIDERS
from extremal.web.theme import empty


def add_callbacks(app: Dash, playground: Playground) -> None:
    """Connect the page with its answers."""
    shown = [
        Output("space-0", "figure"),
        Output("space-1", "figure"),
        Output("stage", "className"),
        Output("over-time", "figure"),
        Output("followed", "children"),
        Output("headline", "children"),
        Output("code", "children"),
        Output("message", "children"),
        Output("tracks", "data"),
        Output("view", "children"),
    ]
    busy = [(Output("busy", "hidden"), False, True)]
    known = [Input("theme", "data"), State("session", "data")]

    def not_shown(words: str) -> tuple[Any, ...]:
        place = shown.index(Output("message", "children"))
        return tuple(words if k == place else no_update for k in range(len(shown)))

    app.callback(shown, Input("setup", "data"), *known, running=busy, prevent_initial_call=True)(
        guarded(not_shown)(playground.show)
    )
    app.callback(
        Output("curve", "figure"),
        Output("broken", "children"),
        Output("message-curve", "children"),
        Input("setup", "data"),
        *known,
        running=[(Output("broken", "className"), "headline stale", "headline")],
        prevent_initial_call=True,
    )(guarded(lambda words: (empty(""), "", words))(playground.survive))
    app.callback(
        Output("plane-0", "figure"),
        Output("plane-1", "figure"),
        Output("told-plane", "children"),
        Output("message-plane", "children"),
        Input("setup", "data"),
        Input("probe", "data"),
        *known,
        prevent_initial_call=True,
    )(guarded(lambda words: (empty(""), empty(""), "", words))(playground.probe))
    _add_clientside(app)


def _add_clientside(app: Dash) -> None:
    """What the browser does by itself: assets/explorer.js."""

    def add(function: str, *wires: Any, **more: Any) -> None:
        app.clientside_callback(ClientsideFunction("explorer", function), *wires, **more)

    names = ("p", "beside", *SLIDERS, "seed", "loss")
    add(
        "collect",
        Output("setup", "data"),
        *(Output(f"c-{name}-shown", "children") for name in names[:-2]),
        *(Output(f"c-{name}", part) for part in ("value", "max") for name in ("first", "second")),
        *(Input(f"c-{name}", "value") for name in names),
        Input("beside-on", "data"),
        Input("theme", "data"),
        Input("typed", "data"),
        State("c-first", "value"),
        State("c-second", "value"),
        State("setup", "data"),
    )
    add(
        "aim",
        Output("probe", "data"),
        *(Input(f"c-{name}", "value") for name in ("first", "second", "across", "up")),
        Input("typed", "data"),
    )
    add(
        "link",
        Output("copied", "title"),
        Input("setup", "data"),
        Input("probe", "data"),
        State("usual", "data"),
    )
    add(
        "compare",
        Output("beside-on", "data"),
        Output("c-p", "value"),
        Output("c-beside", "value"),
        Output("beside-place", "hidden"),
        Output("compare", "aria-pressed"),
        Output("compare", "children"),
        Input("compare", "n_clicks"),
        State("beside-on", "data"),
    )
    add(
        "click",
        Output("c-across", "value"),
        Output("c-up", "value"),
        Input("plane-0", "clickData"),
        Input("plane-1", "clickData"),
        prevent_initial_call=True,
    )
    add(
        "arrive",
        Output("moment", "max"),
        Output("moment", "value"),
        Input("tracks", "data"),
        State("moment", "value"),
        prevent_initial_call=True,
    )
    add(
        "move",
        Output("clock", "children"),
        Input("moment", "value"),
        Input("tracks", "data"),
        State("grid", "data"),
    )
    add(
        "play",
        Output("tick", "disabled"),
        Output("play", "children"),
        Output("moment", "value", allow_duplicate=True),
        Output("clock", "aria-live"),
        Input("play", "n_clicks"),
        Input("tick", "n_intervals"),
        State("tick", "disabled"),
        State("moment", "value"),
        State("moment", "max"),
        prevent_initial_call=True,
    )
    add(
        "copy",
        Output("copied", "children"),
        Input("copy", "n_clicks"),
        Input("share", "n_clicks"),
        State("code", "children"),
        prevent_initial_call=True,
    )
