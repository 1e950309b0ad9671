"""The playground's page: controls, places for the drawings, and what the browser keeps.

Its callbacks connect it with its answers, of the server and of the browser itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from extremal.web import controls
from extremal.web.freshness import Group, add_answer, add_marks, add_paint, badge, group_stores
from extremal.web.pages.playground_answers import FLOW_PLACES, Playground
from extremal.web.playground_settings import (
    LOSS_NAMES,
    PLANE_REACH,
    PlanePoint,
    PlaygroundSettings,
    read_link,
)
from extremal.web.playground_space import grid_times
from extremal.web.playground_training import FRAME_COUNT
from extremal.web.terms import term

# The panels that are answered together, in the order in which they are.
GROUPS = {
    "flow": Group(("setup",), "training …"),
    "radii": Group(("setup",), "attacking the test points …"),
    "plane": Group(("setup", "probe"), "attacking the point …"),
}
# The graphs of the page, which the browser paints.
GRAPHS = ("space-0", "space-1", "curve", "over-time", "plane-0", "plane-1")
# Where the parts of each group's answer go that are neither drawn nor words on an old panel.
ANSWER_PLACES = {
    "flow": {
        "stage": ("stage", "className"),
        "tracks": ("tracks", "data"),
        **{name: (name, "children") for name in ("headline-0", "headline-1", "followed", "code")},
        **{name: (name, "children") for name in ("view", "settings", "legend-time")},
    },
    "radii": {name: (name, "children") for name in ("broken", "legend-curve")},
    "plane": {"told": ("told-plane", "children")},
}
# The panels of each group.
PANELS = {"flow": FLOW_PLACES, "radii": ("curve",), "plane": ("plane-0", "plane-1")}


def add_callbacks(app: Dash, playground: Playground) -> None:
    """Connect the page with its answers."""
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "flow": playground.show,
        "radii": playground.attack_and_certify,
        "plane": playground.probe,
    }
    for group, callback in answers.items():
        outputs = {name: Output(*place) for name, place in ANSWER_PLACES[group].items()}
        for panel in PANELS[group]:
            outputs[f"of-{panel}"] = Output(f"of-{panel}", "children")
            if panel in GRAPHS:
                outputs[panel] = Output(f"{panel}-drawn", "data")
        inputs = [Input(store, "data") for store in GROUPS[group].asked]
        add_answer(app, group, callback, outputs, inputs)
    add_marks(app, "playground", GROUPS)
    _add_clientside(app)


def _add_clientside(app: Dash) -> None:
    """What the browser does by itself: assets/explorer.js."""

    def add(function: str, *wires: Any, **more: Any) -> None:
        app.clientside_callback(ClientsideFunction("explorer", function), *wires, **more)

    for graph in GRAPHS:
        add_paint(app, graph)
    add("unfold", Output("intro", "open"), Output("more", "open"), Input("intro", "id"))
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
            html.Div(wrong, className="message", role="alert", id="wrong-link"),
            _introduction(),
            _controls(setup),
            html.Div([_told(), _stage(probe, setup)], className="found"),
            *group_stores(GROUPS),
            dcc.Store(id="setup"),
            dcc.Store(id="probe"),
            dcc.Store(id="tracks"),
            dcc.Store(id="second-p-on", data=setup.second_p is not None),
            dcc.Store(id="usual", data={**asdict(PlaygroundSettings()), **asdict(PlanePoint())}),
            dcc.Store(id="grid", data=grid_times()),
            dcc.Interval(id="tick", interval=80, disabled=True),
        ],
        id="playground",
        className="playground",
    )


def _introduction() -> Any:
    """What you see, what to turn, what to look for; it can be folded away."""
    steps = (
        (
            "What you see: ",
            "the neurons of a small network that learns to tell class + (blue) from class − "
            "(orange). Each class has several clusters, its ",
            (term("subclass", "subclasses"), "."),
        ),
        (
            "What to turn: ",
            "Power p, from 1 (ReLU) to 3; or see both side by side, by one click. Play shows the "
            "training from its first moment.",
            (),
        ),
        (
            "What to look for: ",
            "with p = 1 neurons go to the ",
            (
                term("class averages"),
                ", with p = 3 to the ",
                term("subclass centres"),
                ". Then points survive ",
                term("attack", "attacks"),
                " of a larger radius: the curve moves to the right.",
            ),
        ),
    )
    return html.Details(
        [
            html.Summary(html.H1("Turn p, and watch what the neurons learn")),
            html.Ol([html.Li([html.B(name), first, *rest]) for name, first, rest in steps]),
        ],
        id="intro",
        className="intro",
        open=True,
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
            html.Div(
                [
                    html.Button(
                        "p = 1 beside p = 3",
                        id="compare",
                        type="button",
                        **controls.aria(pressed=str(compared).lower()),
                    ),
                    html.Details(
                        [html.Summary("More settings"), _other_settings(setup)], id="more"
                    ),
                ],
                className="pair",
            ),
        ],
        className="controls",
        **controls.aria(label="Settings"),
    )


def _other_settings(setup: PlaygroundSettings) -> Any:
    """All settings but p, and what can be copied."""
    losses = dcc.RadioItems(
        id="c-loss", options=list(LOSS_NAMES), value=setup.loss, inline=True, className="losses"
    )
    return html.Div(
        [
            *(controls.slider(name, getattr(setup, name)) for name in SLIDER_SETTINGS),
            html.Div(
                [
                    controls.number("c-seed", "Seed", setup.seed, 0, 9999, 1),
                    html.Fieldset([html.Legend("Loss"), losses], className="field"),
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
        className="rest",
    )


def _told() -> Any:
    """Of which settings the page is, what is computed, and what is wrong, if something is."""
    return html.Div(
        [
            html.P(
                [
                    html.B("Shown: ", className="now"),
                    html.B("Old: ", className="then"),
                    html.Span(id="settings"),
                ],
                className="settings soft",
            ),
            badge("playground"),
            controls.message("message-flow"),
        ],
        className="told from-flow",
    )


def _stage(probe: PlanePoint, setup: PlaygroundSettings) -> Any:
    return html.Div(
        [
            _clock(),
            *_spaces(),
            controls.figure(
                "curve",
                "How many test points survive",
                group="radii",
                kind="curve",
                note=[
                    controls.message("message-radii"),
                    html.Div(id="broken", className="headline", **controls.aria(live="polite")),
                    _terms(
                        *(term("robust accuracy", "Robust accuracy"), " by ", term("l2 radius")),
                        *(", from ", term("attack"), " and ", term("certificate"), "; "),
                        *(term("1/√K", "1/\u2060√K"), ", ", term("√2/2")),
                    ),
                    html.Div(id="legend-curve", className="legend"),
                ],
            ),
            controls.figure(
                "over-time",
                "Training, in two phases",
                group="flow",
                kind="time",
                note=[
                    _terms(
                        *(term("alignment", "Alignment"), ", then ", term("fitting"), ", over "),
                        *(term("flow time"), ". Loss, ", term("cosine"), " and length "),
                        *(term("‖w‖"), " of the ", term("neurons that matter"), "."),
                    ),
                    html.Div(id="legend-time", className="legend"),
                ],
            ),
            _probe(probe, setup),
            *(
                controls.figure(
                    f"plane-{k}", f"Decision regions{which}", group="plane", kind=f"plane{kind}"
                )
                for k, which, kind in ((0, "", ""), (1, ", second p", " second"))
            ),
            html.Section(
                [
                    html.H2("What the neurons follow"),
                    controls.marked("followed", html.Div(id="followed", className="tables")),
                ],
                className="panel follows from-flow",
            ),
            html.Details(
                [
                    html.Summary("As Python"),
                    controls.marked("code", html.Pre(html.Code(id="code"), tabIndex="0")),
                ],
                className="panel code from-flow",
                open=True,
            ),
        ],
        id="stage",
        className="stage",
    )


def _terms(*words: Any) -> Any:
    """A line under a heading, with words that are explained."""
    return html.P(list(words), className="soft")


def _spaces() -> list[Any]:
    """The scenes of the first p and of the second, each under what its neurons follow."""

    def scene(k: int, title: str, kind: str, *words: Any) -> Any:
        told = html.Div(id=f"headline-{k}", className="headline", **controls.aria(live="polite"))
        return controls.figure(
            f"space-{k}",
            title,
            group="flow",
            kind=kind,
            config=controls.SPACE_GRAPH_CONFIG,
            note=[told],
            foot=_terms(*words),
        )

    first = (term("neurons", "Neurons"), ", ", term("class averages"), ", ")
    more = (term("subclass centres"), ". ", html.Span(id="view"))
    again = ("Drag a drawing to turn it.",)
    return [
        scene(0, "Neurons, data and centres", "space", *first, *more),
        scene(1, "The same for the second p", "space second", *again),
    ]


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
        className="clock from-flow",
        role="group",
        **controls.aria(label="Time of training"),
    )


def _probe(probe: PlanePoint, setup: PlaygroundSettings) -> Any:
    """Which plane and which point: fields, and a click in the drawing does the same."""
    reach = (-PLANE_REACH, PLANE_REACH, 0.01)
    return html.Section(
        [
            html.H2("Decision regions between two centres"),
            _terms(
                *("Click a point of the ", term("decision regions"), ", or set it here. Filled: "),
                *("the ", term("certified ball"), ". Cross: where the smallest ", term("attack")),
                *(" lands, seen in this plane. Hatched: ", term("undecided"), "."),
            ),
            html.Div(
                [
                    controls.number("c-first", "Centre", probe.first, 1, setup.count, 1),
                    controls.number("c-second", "and centre", probe.second, 1, setup.count, 1),
                    controls.number("c-across", "Along the first", probe.across, *reach),
                    controls.number("c-up", "and the second", probe.up, *reach),
                ],
                className="fields",
            ),
            controls.message("message-plane"),
            html.Div(id="told-plane", className="headline", **controls.aria(live="polite")),
        ],
        className="panel probe from-plane",
    )
