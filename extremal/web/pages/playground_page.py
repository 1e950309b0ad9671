"""The playground's page: controls, places for the drawings, and what the browser keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dash import dcc, html

from extremal.web import controls
from extremal.web.playground_settings import LOSSES, REACH, Probe, Setup, read_link
from extremal.web.playground_space import grid_times
from extremal.web.playground_training import FRAMES

SLIDERS = ("positive", "negative", "spread", "init", "width")


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
            controls.slider("p", setup.p),
            html.Div(
                controls.slider("p", beside, control="c-beside"),
                id="beside-place",
                hidden=not compared,
            ),
            html.Button(
                "p = 1 beside p = 3",
                id="compare",
                type="button",
                **controls.aria(pressed=str(compared).lower()),
            ),
            *(controls.slider(name, getattr(setup, name)) for name in SLIDERS),
            html.Div(
                [
                    controls.number("c-seed", "Seed", setup.seed, 0, 9999, 1),
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


def _stage(probe: Probe, setup: Setup) -> Any:
    view = html.P(id="view", className="soft")
    return html.Div(
        [
            controls.figure(
                "space-0",
                "Neurons, data and centres",
                config=controls.SOLID,
                kind="space",
                note=view,
            ),
            controls.figure(
                "space-1", "The same for the second p", config=controls.SOLID, kind="space second"
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
            dcc.Input(id="moment", type="range", min=0, max=FRAMES - 1, step=1, value=FRAMES - 1),
            html.Output(id="clock", htmlFor="moment", **controls.aria(live="polite")),
        ],
        className="clock",
        role="group",
        **controls.aria(label="Time of training"),
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
                    controls.number("c-first", "Centre", probe.first, 1, setup.count, 1),
                    controls.number("c-second", "and centre", probe.second, 1, setup.count, 1),
                    controls.number(
                        "c-across", "Point, along the first", probe.across, -REACH, REACH, 0.01
                    ),
                    controls.number("c-up", "along the second", probe.up, -REACH, REACH, 0.01),
                ],
                className="fields",
            ),
            controls.message("message-plane"),
            html.Div(id="told-plane", **controls.aria(live="polite")),
        ]
    )
