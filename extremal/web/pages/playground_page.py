"""The playground's page: controls, places for the drawings, and what the browser keeps.

Its callbacks connect it with its answers, of the server and of the browser itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal.web import controls
from extremal.web.callback_errors import errors_as_text
from extremal.web.pages.playground_answers import Playground
from extremal.web.playground_settings import (
    LOSS_NAMES,
    PLANE_REACH,
    PlanePoint,
    PlaygroundSettings,
    read_link,
)
from extremal.web.playground_space import grid_times
from extremal.web.playground_training import FRAME_COUNT
from extremal.web.theme import empty_figure


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
        errors_as_text(not_shown)(playground.show)
    )
    app.callback(
        Output("curve", "figure"),
        Output("broken", "children"),
        Output("message-curve", "children"),
        Input("setup", "data"),
        *known,
        running=[(Output("broken", "className"), "headline stale", "headline")],
        prevent_initial_call=True,
    )(errors_as_text(lambda words: (empty_figure(""), "", words))(playground.attack_and_certify))
    app.callback(
        Output("plane-0", "figure"),
        Output("plane-1", "figure"),
        Output("told-plane", "children"),
        Output("message-plane", "children"),
        Input("setup", "data"),
        Input("probe", "data"),
        *known,
        prevent_initial_call=True,
    )(
        errors_as_text(lambda words: (empty_figure(""), empty_figure(""), "", words))(
            playground.probe
        )
    )
    _add_clientside(app)


def _add_clientside(app: Dash) -> None:
    """What the browser does by itself: assets/explorer.js."""

    def add(function: str, *wires: Any, **more: Any) -> None:
        app.clientside_callback(ClientsideFunction("explorer", function), *wires, **more)

    _add_settings(add)
    _add_time(add)


def _add_settings(add: Callable[..., None]) -> None:
    """What is asked: settings, the second p, the point of the plane, and the link to them."""
    names = ("p", "second_p", *SLIDER_SETTINGS, "seed", "loss")
    add(
        "collect",
        Output("setup", "data"),
        *(Output(f"c-{name}-shown", "children") for name in names[:-2]),
        *(Output(f"c-{name}", part) for part in ("value", "max") for name in ("first", "second")),
        *(Input(f"c-{name}", "value") for name in names),
        Input("second-p-on", "data"),
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
        Output("second-p-on", "data"),
        Output("c-p", "value"),
        Output("c-second_p", "value"),
        Output("second-p-place", "hidden"),
        Output("compare", "aria-pressed"),
        Output("compare", "children"),
        Input("compare", "n_clicks"),
        State("second-p-on", "data"),
    )
    add(
        "click",
        Output("c-across", "value"),
        Output("c-up", "value"),
        Input("plane-0", "clickData"),
        Input("plane-1", "clickData"),
        prevent_initial_call=True,
    )


def _add_time(add: Callable[..., None]) -> None:
    """The moment of training that is shown, and what is copied."""
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


# Settings with a slider below those of p, in their order.
SLIDER_SETTINGS = ("positive", "negative", "spread", "init", "width")


def page(search: str | None) -> Any:
    """The page for a link; where the link can't be read, the usual set-up and what was wrong."""
    wrong = ""
    try:
        setup, probe = read_link(search)
    except ValueError as error:
        setup, probe, wrong = (
            PlaygroundSettings(),
            PlanePoint(),
            f"This link can't be followed as it is: {error}.",
        )
    return html.Div(
        [
            html.H1("Turn p, and watch what the neurons learn", className="unseen"),
            html.Div(wrong, className="message", role="alert", id="wrong-link"),
            _controls(setup),
            html.Div([_told(), _stage(probe, setup)], className="found"),
            dcc.Store(id="setup"),
            dcc.Store(id="probe"),
            dcc.Store(id="tracks"),
            dcc.Store(id="second-p-on", data=setup.second_p is not None),
            dcc.Store(id="usual", data={**asdict(PlaygroundSettings()), **asdict(PlanePoint())}),
            dcc.Store(id="grid", data=grid_times()),
            dcc.Interval(id="tick", interval=80, disabled=True),
        ],
        className="playground",
    )


def _controls(setup: PlaygroundSettings) -> Any:
    second_p = 3.0 if setup.second_p is None else setup.second_p
    compared = setup.second_p is not None
    return html.Section(
        [
            html.H2("Settings", className="unseen"),
            controls.slider("p", setup.p),
            html.Div(
                controls.slider("p", second_p, control="c-second_p"),
                id="second-p-place",
                hidden=not compared,
            ),
            html.Button(
                "p = 1 beside p = 3",
                id="compare",
                type="button",
                **controls.aria(pressed=str(compared).lower()),
            ),
            *(controls.slider(name, getattr(setup, name)) for name in SLIDER_SETTINGS),
            html.Div(
                [
                    controls.number("c-seed", "Seed", setup.seed, 0, 9999, 1),
                    html.Fieldset(
                        [
                            html.Legend("Loss"),
                            dcc.RadioItems(
                                id="c-loss", options=list(LOSS_NAMES), value=setup.loss, inline=True
                            ),
                        ],
                        className="field",
                    ),
                ],
                className="pair",
            ),
            html.Div(
                [
                    html.Button("Copy as Python", id="copy", type="button"),
                    html.Button("Copy the link", id="share", type="button"),
                ],
                className="pair",
            ),
            html.Div(id="copied", className="soft", role="status"),
        ],
        className="controls",
        **controls.aria(label="Settings"),
    )


def _told() -> Any:
    """The headline, and what is wrong, if something is."""
    return html.Div(
        [
            html.Div("training …", id="busy", className="busy", role="status", hidden=True),
            controls.message("message"),
            html.Div(id="headline", className="headline", **controls.aria(live="polite")),
            html.Div(id="broken", className="headline", **controls.aria(live="polite")),
        ],
        className="told",
    )


def _stage(probe: PlanePoint, setup: PlaygroundSettings) -> Any:
    view = html.P(id="view", className="soft")
    return html.Div(
        [
            controls.figure(
                "space-0",
                "Neurons, data and centres",
                config=controls.SPACE_GRAPH_CONFIG,
                kind="space",
                note=view,
            ),
            controls.figure(
                "space-1",
                "The same for the second p",
                config=controls.SPACE_GRAPH_CONFIG,
                kind="space second",
            ),
            _clock(),
            controls.figure(
                "curve",
                "How many test points survive",
                kind="curve",
                note=controls.message("message-curve"),
            ),
            controls.figure("over-time", "Training, in two phases", kind="time"),
            controls.figure(
                "plane-0",
                "Decision regions between two centres",
                kind="plane",
                note=_probe(probe, setup),
            ),
            controls.figure("plane-1", "Decision regions, second p", kind="plane second"),
            html.Section(
                [html.H2("What the neurons follow"), html.Div(id="followed", className="tables")],
                className="panel follows",
            ),
            html.Details(
                [html.Summary("As Python"), html.Pre(html.Code(id="code"), tabIndex="0")],
                className="panel code",
                open=True,
            ),
        ],
        id="stage",
        className="stage",
    )


def _clock() -> Any:
    """Play, pause and scrub."""
    return html.Div(
        [
            html.Button("Play", id="play", type="button"),
            html.Label("Time", htmlFor="moment"),
            dcc.Input(
                id="moment", type="range", min=0, max=FRAME_COUNT - 1, step=1, value=FRAME_COUNT - 1
            ),
            html.Output(id="clock", htmlFor="moment", **controls.aria(live="polite")),
        ],
        className="clock",
        role="group",
        **controls.aria(label="Time of training"),
    )


def _probe(probe: PlanePoint, setup: PlaygroundSettings) -> Any:
    """Which plane and which point: fields, and a click in the drawing does the same."""
    return html.Div(
        [
            html.P(
                "Click a point, or set it here. Filled: the certified ball. Cross: where the "
                "smallest attack lands, seen in this plane.",
                className="soft",
            ),
            html.Div(
                [
                    controls.number("c-first", "Centre", probe.first, 1, setup.count, 1),
                    controls.number("c-second", "and centre", probe.second, 1, setup.count, 1),
                    controls.number(
                        "c-across",
                        "Point, along the first",
                        probe.across,
                        -PLANE_REACH,
                        PLANE_REACH,
                        0.01,
                    ),
                    controls.number(
                        "c-up", "along the second", probe.up, -PLANE_REACH, PLANE_REACH, 0.01
                    ),
                ],
                className="fields",
            ),
            controls.message("message-plane"),
            html.Div(id="told-plane", **controls.aria(live="polite")),
        ]
    )
