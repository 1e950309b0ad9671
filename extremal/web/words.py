"""What the playground found, in sentences: for the headline, for tables, for screen readers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from extremal.theory import OPTIMAL_RADIUS, average_radius
from extremal.web.playground_training import END, Answer, Trained, directions
from extremal.web.probing import Regions

_KINDS = {
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


def followed(trained: Trained) -> list[Followed]:
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


def headline(trained: Trained) -> str:
    """Who follows what, in a sentence or two."""
    kinds: Counter[str] = Counter()
    for row in followed(trained):
        kinds[row.name.split(" ")[0]] += row.neurons
    parts = [f"{count} {_verb(count)} {_KINDS[kind]}" for kind, count in kinds.items()]
    total = len(trained.follows.neurons)
    text = f"p = {trained.setup.p:g}: of {_neurons(total)} that matter, {_and(parts)}."
    if not trained.fitted:
        text += f" The loss has not come down to its goal by flow time {END:g}."
    return text


def broken(answer: Answer) -> str:
    """Where half of the test points break, in a sentence."""
    setup, text = answer.trained.setup, f"p = {answer.trained.setup.p:g}: "
    middle, sure = float(answer.attacked.median()), float(answer.certified.median())
    if middle == 0.0:
        return text + "more than half of the test points are misclassified."
    average = average_radius(setup.positive, setup.negative)
    near = f"1/√{setup.count} = {average:.3f}, √2/2 = {OPTIMAL_RADIUS:.3f}"
    text += f"half of the test points break by radius {middle:.3f} ({near})"
    return f"{text}, half certainly hold to {sure:.3f}."


def told_regions(found: Regions, p: float) -> str:
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
