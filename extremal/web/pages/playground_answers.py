"""What the playground answers: drawings and sentences for a set-up, and for a point of a plane.

Sentences are for the headline, for tables and for screen readers. A set-up is also written as
Python: the lines that compute what the page shows.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dash import html

from extremal.theory import OPTIMAL_RADIUS, average_radius
from extremal.web.answer_pool import AnswerPool, place_of
from extremal.web.curve_legend import legend
from extremal.web.playground_charts import draw_curve, draw_time
from extremal.web.playground_plane import DecisionRegions, decision_regions, draw_plane
from extremal.web.playground_settings import (
    PlaygroundSettings,
    described,
    read_plane_point,
    read_settings,
    read_turn,
)
from extremal.web.playground_space import draw_space, track
from extremal.web.playground_training import (
    FIRST_TIME,
    FRAME_COUNT,
    LAST_TIME,
    LOSS_GOAL,
    TEST_POINTS,
    TRAIN_POINTS,
    RadiusBrackets,
    TrainedNetwork,
    attack_and_certify,
    directions,
    train_flow,
)
from extremal.web.terms import term
from extremal.web.theme import empty_figure, subscript

# Places of the page that follow from the training alone.
FLOW_PLACES = ("space-0", "space-1", "over-time", "followed", "code")
# What is said of a drawing in three dimensions.
EXACT_VIEW = "Three dimensions, as they are."
# What a neuron follows, by the first word of a direction's name.
DIRECTION_KINDS = {
    "average": "a class average",
    "centre": "a subclass centre",
    "only": "the only centre of a class, which is its average too",
    "none": "neither",
}


@dataclass(frozen=True)
class Followed:
    """A direction, how many dominant neurons follow it, and their share of all contributions."""

    name: str
    neurons: int
    share: float
    lowest: float  # cosine


def followed(trained: TrainedNetwork) -> list[Followed]:
    """What the dominant neurons follow, by falling share; those below the threshold come last."""
    found, names = trained.follows, directions(trained.mixture)[0]
    total = float(found.contribution.sum())
    rows: dict[str, list[tuple[float, float]]] = {}
    for index, cosine, mass in zip(
        found.direction.tolist(), found.cosine.tolist(), found.contribution.tolist(), strict=True
    ):
        name = names[index] if cosine >= found.threshold else "none of these"
        rows.setdefault(name, []).append((mass, cosine))
    made = [
        Followed(name, len(own), sum(m for m, _ in own) / total, min(c for _, c in own))
        for name, own in rows.items()
    ]
    return sorted(made, key=lambda row: (row.name == "none of these", -row.share))


def headline(trained: TrainedNetwork) -> str:
    """Who follows what, in a sentence or two."""
    kinds: Counter[str] = Counter()
    for row in followed(trained):
        kinds[row.name.split(" ")[0]] += row.neurons
    parts = [f"{count} {_verb(count)} {DIRECTION_KINDS[kind]}" for kind, count in kinds.items()]
    total = len(trained.follows.neurons)
    text = f"p = {trained.setup.p:g}: of {_neurons(total)} that matter, {_and(parts)}."
    if not trained.fitted:
        text += f" The loss has not come down to its goal by flow time {LAST_TIME:g}."
    return text


def broken(answer: RadiusBrackets) -> str:
    """Where half of the test points break, in a sentence."""
    setup, text = answer.trained.setup, f"p = {answer.trained.setup.p:g}: "
    middle, sure = float(answer.attacked.median()), float(answer.certified.median())
    if middle == 0.0:
        return text + "more than half of the test points are misclassified."
    average = average_radius(setup.positive, setup.negative)
    near = f"1/√{setup.count} = {average:.3f}, √2/2 = {OPTIMAL_RADIUS:.3f}"
    text += f"half of the test points break by radius {middle:.3f} ({near})"
    return f"{text}, half certainly hold to {sure:.3f}."


def told_regions(found: DecisionRegions, p: float) -> str:
    """The point, its smallest attack and its certified radius in words."""
    at = f"({found.probe.across:.2f}, {found.probe.up:.2f})"
    if found.sign == 0:
        return f"p = {p:g}: at {at} the network is undecided, f = 0."
    text = f"p = {p:g}: at {at} the network says {'+' if found.sign > 0 else '−'}. "
    if math.isinf(found.radius):
        return f"{text}No attack was found. Certified to {found.certified:.3f}."
    text += f"The smallest attack found has length {found.radius:.3f}"
    text += f" and leaves the plane by {found.aside:.3f}" if found.aside > 5e-4 else ""
    return f"{text}; none is shorter than {found.certified:.3f}."


def _neurons(count: int) -> str:
    return f"{count} neuron" + ("" if count == 1 else "s")


def _verb(count: int) -> str:
    return "follows" if count == 1 else "follow"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# A set-up as Python, for one p.
RECIPE_LINES = """\
g = torch.Generator().manual_seed({seed})
mix = ex.data.OrthonormalMixture(dim={dim}, positive={positive}, negative={negative}, \
spread={spread!r})
train, test = mix.sample({train}, generator=g), mix.sample({test}, generator=g)
net = ex.models.PReLUNet({dim}, {width}, p={p}, init=ex.models.Gaussian(1e{init}), generator=g)
record = ex.train.Record.log_spaced({start!r}, {end:.0f}, {frames}, snapshots=True, phases=True)
run = ex.train.gradient_flow(net, train, loss="{loss}", \
until=ex.train.Until({end:.0f}, {goal!r}), record=record)
attacked = ex.attack.minimal(net, test.x, test.y, generator=g).radius
certified = ex.certify.radius(net, test.x, test.y, effort="fast")
print(f"p = {{net.p:g}}: half break by {{attacked.median():.4f}}, half hold to \
{{certified.median():.4f}}")
"""


def recipe(setup: PlaygroundSettings) -> str:
    """Ten lines; eleven where two values of p are compared, which is a loop around them."""
    values = {
        **{name: getattr(setup, name) for name in ("seed", "dim", "positive", "negative")},
        **{name: getattr(setup, name) for name in ("spread", "width", "init", "loss")},
        **{
            "train": TRAIN_POINTS,
            "test": TEST_POINTS,
            "start": FIRST_TIME,
            "end": LAST_TIME,
            "frames": FRAME_COUNT,
        },
        "goal": LOSS_GOAL,
    }
    top = "import torch, extremal as ex\n"
    if setup.second_p is None:
        return top + RECIPE_LINES.format(p=setup.p, **values)
    lines = RECIPE_LINES.format(p="p", **values).splitlines(keepends=True)
    return top + f"for p in {(setup.p, setup.second_p)}:\n" + "".join("    " + one for one in lines)


class Playground:
    """The callbacks of the playground; each takes what a browser sent, whatever that is."""

    def __init__(self, pool: AnswerPool) -> None:
        self._pool = pool

    def trained(self, setup: PlaygroundSettings, asker: object, turn: int) -> list[TrainedNetwork]:
        """The trained networks of a set-up: one, or two to compare."""
        found = []
        for place, one in enumerate(setup.problems()):
            who = place_of(asker, f"flow {place}")
            work = functools.partial(train_flow, one)
            found.append(self._pool.ask(one, work, asker=who, turn=turn))
        return found

    def show(self, values: Any, asker: Any) -> dict[str, Any]:
        """Everything that follows from the training alone."""
        setup, turn = read_settings(values), read_turn(values)
        found = self.trained(setup, asker, turn)
        # Drawing costs as much as a small training: it, too, waits for a thread, and is kept.
        drawn: dict[str, Any] = self._pool.ask(
            ("drawn", setup),
            lambda _: _drawn(setup, found),
            asker=place_of(asker, "drawn"),
            turn=turn,
        )
        return drawn

    def attack_and_certify(self, values: Any, asker: Any) -> dict[str, Any]:
        """How far the test points hold: it comes after the training."""
        setup, turn = read_settings(values), read_turn(values)
        found = []
        for place, trained in enumerate(self.trained(setup, asker, turn)):
            work = functools.partial(attack_and_certify, trained)
            who = place_of(asker, f"radii {place}")
            key = ("radii", trained.setup)
            found.append(self._pool.ask(key, work, asker=who, turn=turn))
        curve = draw_curve(found)
        return {
            "curve": curve,
            "legend-curve": legend(curve),
            "broken": [html.P(broken(answer)) for answer in found],
            "of-curve": described(setup),
        }

    def probe(self, values: Any, point: Any, asker: Any) -> dict[str, Any]:
        """The plane of two centres for each network, and what is said of the point."""
        setup = read_settings(values)
        probe = read_plane_point(point, setup)
        turn = max(read_turn(values), read_turn(point))
        found = []
        for place, trained in enumerate(self.trained(setup, asker, read_turn(values))):
            work = functools.partial(decision_regions, trained, probe)
            who = place_of(asker, f"plane {place}")
            found.append(self._pool.ask((trained.setup, probe), work, asker=who, turn=turn))
        powers = [each.p for each in setup.problems()]
        both = list(zip(found, powers, strict=True))
        figures = [draw_plane(one, p) for one, p in both]
        names = f"μ{subscript(probe.first)}, μ{subscript(probe.second)}"
        words = f"({probe.across:g}, {probe.up:g}) in the plane of {names} · {described(setup)}"
        return {
            "plane-0": figures[0],
            "plane-1": figures[-1] if len(figures) > 1 else empty_figure(),
            "told": [html.P(told_regions(one, p)) for one, p in both],
            **{f"of-plane-{place}": words for place in (0, 1)},
        }


def _drawn(setup: PlaygroundSettings, found: list[TrainedNetwork]) -> dict[str, Any]:
    """What `Playground.show` puts on the page."""
    several, words = len(found) > 1, described(setup)
    spaces = [draw_space(trained) for trained in found]
    told = [html.P(headline(trained)) for trained in found]
    exact, time = setup.dim == 3, draw_time(found)
    view = EXACT_VIEW if exact else term("projection", f"{setup.dim} dimensions, projected.")
    return {
        "space-0": spaces[0],
        "space-1": spaces[-1] if several else empty_figure(),
        "headline-0": told[0],
        "headline-1": told[-1] if several else "",
        "stage": "stage two" if several else "stage",
        "over-time": time,
        "legend-time": legend(time),
        "followed": [_table(trained) for trained in found],
        "code": recipe(setup),
        "tracks": [track(trained) for trained in found],
        "view": view,
        "settings": words,
        **{f"of-{place}": words for place in FLOW_PLACES},
    }


def _table(trained: TrainedNetwork) -> Any:
    rows = followed(trained)
    names = ("Direction", "Neurons", term("share", "Share"), term("least cosine", "Least cosine"))
    top = [html.Th(name, scope="col") for name in names]
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
    about = f"p = {trained.setup.p:g}: the neurons that carry 99 % of the network"
    return html.Table([html.Caption(about), html.Thead(html.Tr(top)), html.Tbody(body)])
