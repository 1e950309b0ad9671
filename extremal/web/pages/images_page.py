"""The page of images: one image, four networks, and what it takes to fool each of them."""

from __future__ import annotations

import functools
import math
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal import models
from extremal.attack import NORMS
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.web import controls
from extremal.web.answer_pool import AnswerPool, Deadline, place_of
from extremal.web.callback_errors import errors_as_text
from extremal.web.freshness import Group, add_answer, add_marks, badge, group_stores
from extremal.web.image_attacks import (
    CHOOSABLE_IMAGES,
    CLASS_NAMES,
    FILE_BYTES,
    IMAGE_DATA_SETS,
    LARGEST_RADII,
    SHIPPED_POWERS,
    USUAL_RADII,
    ImageQuestion,
    NetworkAnswer,
    UploadedNetworks,
    described,
    grey_png,
    load_images,
    network_answer,
    read_question,
    read_question_link,
    signed_png,
)
from extremal.web.playground_settings import read_turn
from extremal.web.terms import term

# What is answered at once: the image and all networks.
GROUPS = {"image": Group(("shot",), "attacking …")}


class Images:
    """The callbacks of the page."""

    def __init__(self, pool: AnswerPool) -> None:
        self._pool, self._own = pool, UploadedNetworks()

    def show(self, values: Any, asker: Any) -> dict[str, Any]:
        """The image and, for each network, the worst image near it."""
        shot, own = read_question(values), values.get("own")
        images = self._images(shot.data)
        shipped = [f"{shot.data}-p{p}" for p in SHIPPED_POWERS]
        asked = [(name, name, self._shipped(name)) for name in shipped]
        if own:
            asked.append(("your file", str(own), self._own.get(own)))
        seen = []
        for place, (name, key, net) in enumerate(asked):
            work = functools.partial(network_answer, name, net, images, shot)
            who = place_of(asker, f"image {place}")
            question = ("seen", name, key, shot)
            seen.append(self._pool.ask(question, work, asker=who, turn=read_turn(values)))
        return {"seen": _shown(shot, images, seen), "of-seen": described(shot)}

    def upload(self, contents: Any, name: Any) -> tuple[Any, str, str]:
        """Keep a model file of one's own: its key, its name, and no message."""
        if contents is None:
            return no_update, "", ""
        key = self._own.add(contents)
        return key, f"{str(name)[:60]} is shown as the last network.", ""

    def _images(self, name: str) -> Dataset:
        found: Dataset = self._pool.ask(("images", name), lambda _: load_images(name))
        return found

    def _shipped(self, name: str) -> PReLUNet:
        def work(_: Deadline) -> PReLUNet:
            net = models.load(name)
            assert isinstance(net, PReLUNet)
            return net

        found: PReLUNet = self._pool.ask(("network", name), work)
        return found


def page(search: str | None) -> Any:
    """The page for a link; where the link can't be read, the usual image and what was wrong."""
    wrong = ""
    try:
        shot = read_question_link(search)
    except ValueError as error:
        shot, wrong = ImageQuestion(), f"This link can't be followed as it is: {error}."
    return html.Div(
        [
            html.H1("What it takes to fool a network"),
            html.P(
                "Shallow networks of 500 neurons that differ in p alone, none trained against "
                "attacks. An attack may change any pixel within [0, 1], as far as the radius says.",
                className="soft",
            ),
            html.Div(wrong, className="message", role="alert"),
            _controls(shot),
            badge("images"),
            controls.message("message-image"),
            html.Div(
                controls.marked("seen", html.Div(id="seen", **controls.aria(live="polite"))),
                className="from-image",
            ),
            *group_stores(GROUPS),
            dcc.Store(id="shot"),
            dcc.Store(id="own"),
            dcc.Store(id="usual-radii", data={"usual": USUAL_RADII, "largest": LARGEST_RADII}),
        ],
        id="images",
        className="plain images",
    )


def _controls(shot: ImageQuestion) -> Any:
    def radios(ident: str, words: Any, options: Any, value: str) -> Any:
        chosen = dcc.RadioItems(id=ident, options=list(options), value=value, inline=True)
        return html.Fieldset([html.Legend(words), chosen], className="field")

    return html.Section(
        [
            radios("i-data", "Images", IMAGE_DATA_SETS, shot.data),
            controls.number(
                "i-index",
                f"Image, 0 to {CHOOSABLE_IMAGES - 1}",
                shot.index,
                0,
                CHOOSABLE_IMAGES - 1,
                1,
            ),
            radios("i-norm", term("norm", "Norm"), NORMS, shot.norm),
            controls.number("i-radius", "Radius", shot.radius, 0, LARGEST_RADII[shot.norm], 0.01),
            html.Div(
                [
                    dcc.Upload(
                        html.Button("Add a model file of yours", type="button"),
                        id="upload",
                        max_size=FILE_BYTES,
                        accept=".safetensors",
                    ),
                    html.Small(
                        'net.save("net.safetensors"), 784 inputs, 10 outputs', id="upload-told"
                    ),
                ],
                className="field",
            ),
        ],
        className="bar",
        **controls.aria(label="Settings"),
    )


def _shown(shot: ImageQuestion, images: Dataset, seen: list[NetworkAnswer]) -> Any:
    x, label = images.x[shot.index], CLASS_NAMES[shot.data][int(images.y[shot.index])]
    original = html.Div(
        [
            html.H2("The image"),
            html.Img(src=grey_png(x), alt=f"Image {shot.index}: {label}", className="pixels"),
            html.P(f"Its class: {label}"),
        ],
        className="network",
    )
    return html.Div([original, *(_network(one, shot, x) for one in seen)], className="networks")


def _network(seen: NetworkAnswer, shot: ImageQuestion, x: Any) -> Any:
    names = CLASS_NAMES[shot.data]
    title = f"p = {seen.p:g}" + (", your file" if seen.name == "your file" else "")
    verdict = (
        f"Fooled: says {names[seen.said_adv]}"
        if seen.broken
        else f"Holds: says {names[seen.said_adv]}"
    )
    found = "The worst image found" if seen.worst else "The smallest attack, which is"
    about = f"{found} within radius {shot.radius:g}"
    smallest = "none found" if math.isinf(seen.smallest) else f"{seen.smallest:.3f}"
    margin = f"{names[seen.said]}, margin {seen.margin:.2f}"
    facts = (
        (("Says of the image",), margin),
        ((term("margin", "Margin"), " after the attack"), f"{seen.margin_adv:.2f}"),
        ((term("attack", "Smallest attack"),), f"{smallest} in {shot.norm}"),
        ((term("certificate", "No attack below"),), f"{seen.certified:.3f}"),
    )
    return html.Div(
        [
            html.H2(title),
            html.Div(
                [
                    html.Img(
                        src=grey_png(seen.x_adv), alt=f"{about}; {verdict}", className="pixels"
                    ),
                    html.Img(
                        src=signed_png(seen.x_adv - x),
                        alt="What the attack changed",
                        className="pixels half",
                    ),
                ],
                className="couple",
            ),
            html.Small(f"{about}, and what it changed"),
            html.P(verdict, className="differs" if seen.broken else "agrees"),
            html.Dl([part for k, v in facts for part in (html.Dt(list(k)), html.Dd(v))]),
            html.H3(["Neurons that ", term("votes", "vote"), f" most for {names[seen.said]}"]),
            html.Div(
                [
                    html.Figure(
                        [
                            html.Img(
                                src=signed_png(one),
                                alt=f"Neuron that gives {vote:.2f}",
                                className="pixels",
                            ),
                            html.Figcaption(f"{vote:+.2f}"),
                        ]
                    )
                    for one, vote in zip(seen.neurons, seen.votes, strict=True)
                ],
                className="voters",
            ),
        ],
        className="network",
    )


def add_callbacks(app: Dash, images: Images) -> None:
    """Connect the page with its answers."""
    places = {name: Output(name, "children") for name in ("seen", "of-seen")}
    add_answer(app, "image", images.show, places, [Input("shot", "data")])
    add_marks(app, "images", GROUPS)
    app.callback(
        Output("own", "data"),
        Output("upload-told", "children"),
        Output("message-image", "children", allow_duplicate=True),
        Input("upload", "contents"),
        State("upload", "filename"),
        prevent_initial_call=True,
    )(errors_as_text(lambda words: (no_update, no_update, words))(images.upload))
    app.clientside_callback(
        ClientsideFunction("explorer", "shoot"),
        Output("shot", "data"),
        Output("i-radius", "value"),
        Output("i-radius", "max"),
        Input("i-data", "value"),
        Input("i-index", "value"),
        Input("i-norm", "value"),
        Input("i-radius", "value"),
        Input("own", "data"),
        Input("typed", "data"),
        State("usual-radii", "data"),
        State("shot", "data"),
    )
