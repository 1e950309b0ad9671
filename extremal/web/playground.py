"""The playground's page: controls, the picture that moves, and what its callbacks answer."""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal.web import parts
from extremal.web.charts import draw_curve, draw_plane, draw_time
from extremal.web.guard import guarded
from extremal.web.look import Theme, empty, theme
from extremal.web.pool import Pool, place_of
from extremal.web.probing import regions
from extremal.web.recipe import recipe
from extremal.web.setup import (
    LOSSES,
    REACH,
    Probe,
    Setup,
    read_link,
    read_probe,
    read_setup,
    read_turn,
)
from extremal.web.space import EXACT, PROJECTED, draw_space, grid_times, track
from extremal.web.training import FRAMES, Answer, train_answer
from extremal.web.words import followed, headline, told_regions

SLIDERS = ("positive", "negative", "spread", "init", "width")


class Playground:
    """The callbacks of the playground; each takes what a browser sent, whatever that is."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def answers(self, setup: Setup, asker: object, turn: int) -> list[Answer]:
        """The trained networks of a set-up: one, or two to compare."""
        found = []
        for place, one in enumerate(setup.problems()):
            work = functools.partial(train_answer, one)
            who = place_of(asker, f"answer {place}")
            found.append(self._pool.ask(one, work, asker=who, turn=turn))
        return found

    def show(self, values: Any, look: Any, asker: Any) -> tuple[Any, ...]:
        """Everything that follows from the set-up."""
        chosen, setup, turn = theme(look), read_setup(values), read_turn(values)
        found = self.answers(setup, asker, turn)
        # Drawing costs as much as a small training: it, too, waits for a thread, and is kept.
        drawn: tuple[Any, ...] = self._pool.ask(
            ("drawn", setup, look),
            lambda _: _drawn(setup, found, chosen),
            asker=place_of(asker, "drawn"),
            turn=turn,
        )
        return drawn

    def probe(self, values: Any, point: Any, look: Any, asker: Any) -> tuple[Any, ...]:
        """The plane of two centres for each network, and what is said of the point."""
        chosen, setup = theme(look), read_setup(values)
        probe = read_probe(point, setup)
        found = []
        turn = max(read_turn(values), read_turn(point))
        for place, answer in enumerate(self.answers(setup, asker, read_turn(values))):
            work = functools.partial(regions, answer, probe)
            who = place_of(asker, f"plane {place}")
            key = (answer.setup, probe)
            found.append(self._pool.ask(key, work, asker=who, turn=turn))
        powers = [each.p for each in setup.problems()]
        figures = [draw_plane(one, p, chosen) for one, p in zip(found, powers, strict=True)]
        told = [html.P(told_regions(one, p)) for one, p in zip(found, powers, strict=True)]
        return figures[0], figures[1] if len(figures) > 1 else empty(""), told, ""


def _drawn(setup: Setup, found: list[Answer], look: Theme) -> tuple[Any, ...]:
    """What `Playground.show` puts on the page."""
    several = len(found) > 1
    spaces = [draw_space(answer, look) for answer in found]
    last = max(_last(answer) for answer in found)
    return (
        spaces[0],
        spaces[1] if several else empty(""),
        "stage two" if several else "stage",
        draw_time(found, look),
        draw_curve(found, look),
        [_table(answer) for answer in found],
        [html.P(headline(answer)) for answer in found],
        recipe(setup),
        "",
        [track(answer) for answer in found],
        last,
        last,
        EXACT if setup.dim == 3 else PROJECTED.format(dim=setup.dim),
    )


def page(search: str | None) -> Any:
    """The page for a link; where the link can't be read, the usual set-up and what was wrong."""
    wrong = ""
    try:
        setup, probe = read_link(search)
    except ValueError as error:
        setup, probe, wrong = Setup(), Probe(), f"This link can't be followed as it is: {error}."
    return html.Div(
        [
            html.H1("Turn p, and watch what the neurons learn", className="unseen"),
            html.Div(wrong, className="message", role="alert", id="wrong-link"),
            _controls(setup),
            html.Div([_told(), _stage(probe, setup)], className="found"),
            dcc.Store(id="setup"),
            dcc.Store(id="probe"),
            dcc.Store(id="tracks"),
            dcc.Store(id="beside-on", data=setup.beside is not None),
            dcc.Store(id="usual", data={**asdict(Setup()), **asdict(Probe())}),
            dcc.Store(id="grid", data=grid_times()),
            dcc.Interval(id="tick", interval=80, disabled=True),
        ],
        className="playground",
    )


def _controls(setup: Setup) -> Any:
    beside = 3.0 if setup.beside is None else setup.beside
    compared = setup.beside is not None
    return html.Section(
        [
            html.H2("Settings", className="unseen"),
            parts.slider("p", setup.p),
            html.Div(
                parts.slider("p", beside, control="c-beside"),
                id="beside-place",
                hidden=not compared,
            ),
            html.Button(
                "p = 1 beside p = 3",
                id="compare",
                type="button",
                **parts.aria(pressed=str(compared).lower()),
            ),
            *(parts.slider(name, getattr(setup, name)) for name in SLIDERS),
            html.Div(
                [
                    parts.number("c-seed", "Seed", setup.seed, 0, 9999, 1),
                    html.Fieldset(
                        [
                            html.Legend("Loss"),
                            dcc.RadioItems(
                                id="c-loss", options=list(LOSSES), value=setup.loss, inline=True
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
        **parts.aria(label="Settings"),
    )


def _told() -> Any:
    """The headline, and what is wrong, if something is."""
    return html.Div(
        [
            html.Div("training …", id="busy", className="busy", role="status", hidden=True),
            parts.message("message"),
            html.Div(id="headline", className="headline", **parts.aria(live="polite")),
        ],
        className="told",
    )


def _stage(probe: Probe, setup: Setup) -> Any:
    first = html.P(id="view", className="soft")
    return html.Div(
        [
            parts.figure(
                "space-0", "Neurons, data and centres", config=parts.SOLID, kind="space", note=first
            ),
            parts.figure(
                "space-1", "The same for the second p", config=parts.SOLID, kind="space second"
            ),
            _clock(),
            parts.figure("curve", "How many test points survive", kind="curve"),
            parts.figure("over-time", "Training, in two phases", kind="time"),
            parts.figure(
                "plane-0",
                "Decision regions between two centres",
                kind="plane",
                note=_probe(probe, setup),
            ),
            parts.figure("plane-1", "Decision regions, second p", kind="plane second"),
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
            dcc.Input(id="moment", type="range", min=0, max=FRAMES - 1, step=1, value=FRAMES - 1),
            html.Output(id="clock", htmlFor="moment"),
        ],
        className="clock",
        role="group",
        **parts.aria(label="Time of training"),
    )


def _probe(probe: Probe, setup: Setup) -> Any:
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
                    parts.number("c-first", "Centre", probe.first, 1, setup.count, 1),
                    parts.number("c-second", "and centre", probe.second, 1, setup.count, 1),
                    parts.number(
                        "c-across", "Point, along the first", probe.across, -REACH, REACH, 0.01
                    ),
                    parts.number("c-up", "along the second", probe.up, -REACH, REACH, 0.01),
                ],
                className="fields",
            ),
            parts.message("message-plane"),
            html.Div(id="told-plane", **parts.aria(live="polite")),
        ]
    )


def _table(answer: Answer) -> Any:
    rows = followed(answer)
    top = [html.Th(name, scope="col") for name in ("Direction", "Neurons", "Share", "Least cosine")]
    body = [
        html.Tr(
            [
                html.Th(row.name, scope="row"),
                html.Td(str(row.neurons)),
                html.Td(f"{100.0 * row.share:.0f} %"),
                html.Td(f"{row.lowest:.3f}"),
            ]
        )
        for row in rows
    ]
    about = f"p = {answer.setup.p:g}: the neurons that carry 99 % of the network"
    return html.Table([html.Caption(about), html.Thead(html.Tr(top)), html.Tbody(body)])


def _last(answer: Answer) -> int:
    """The first moment of the time control at which a flow has ended."""
    end = float(answer.run.times[-1])
    return next((k for k, time in enumerate(grid_times()) if time >= end), FRAMES - 1)


def add_callbacks(app: Dash, playground: Playground) -> None:
    """Connect the page with its answers."""
    shown = [
        Output("space-0", "figure"),
        Output("space-1", "figure"),
        Output("stage", "className"),
        Output("over-time", "figure"),
        Output("curve", "figure"),
        Output("followed", "children"),
        Output("headline", "children"),
        Output("code", "children"),
        Output("message", "children"),
        Output("tracks", "data"),
        Output("moment", "max"),
        Output("moment", "value"),
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
