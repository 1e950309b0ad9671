"""Words that are explained where they stand: by a pointer, a tap or the keyboard."""

from __future__ import annotations

from typing import Any

from dash import html

# What each word means on these pages, in a sentence or two.
EXPLANATIONS = {
    "subclass": "A cluster of points. A class is made of several, each around a centre of its own; "
    "the network is told the class alone, never the subclass.",
    "subclass centres": "The middles of the clusters, μ₁, μ₂, …: orthogonal to each other, of "
    "length 1. A network whose neurons follow them is as robust as any can be.",
    "class averages": "The sum of a class's centres, scaled to length 1. Neurons that follow it "
    "mix the subclasses, and small changes of a point suffice to fool them.",
    "neurons": "Each has a direction w and a vote v. It is drawn along w, the farther out the "
    "longer w is (by its logarithm), in the colour of the class it votes for.",
    "neurons that matter": "The fewest neurons that carry 99 % of the network, by |v| ‖w‖. One "
    "follows a direction if the cosine of the angle between them is at least 0.9.",
    "projection": "Upright is the difference of the class averages; around it stand the centres of "
    "each class on a ring. Lengths in the drawing are at most the true ones.",
    "attack": "A change of a point that makes the network say the other class. The smallest one "
    "found is shown: a smaller one may exist, but not below the certificate.",
    "margin": "The output for the image's own class minus the largest other one: below zero the "
    "network says another class.",
    "norm": "How a change is measured: l2 is √(sum of squares), linf the largest change of any "
    "pixel, l1 the sum of all.",
    "votes": "What a neuron adds to the output of the class at this image; blue is where it wants "
    "ink, orange where it wants none.",
    "certificate": "A radius below which there is provably no attack at all.",
    "robust accuracy": "The share of test points that are classified correctly and stay so when "
    "each may be changed by the radius.",
    "l2 radius": "The length of the change, √(sum of squares). Centres are √2 apart, so that no "
    "classifier holds beyond half of that.",
    "1/√K": "Where theory sees a network break whose neurons follow the class averages; K is the "
    "number of subclasses of both classes.",
    "√2/2": "Half of the distance between two centres, 0.707: the best that is possible.",
    "flow time": "Time of gradient flow, which is gradient descent with steps as small as can be.",
    "alignment": "The first phase: neurons are still tiny and only turn, each for itself, toward a "
    "direction of the data. The loss hardly moves.",
    "fitting": "The last phase: neurons that have turned grow, and the loss falls.",
    "cosine": "Of the angle between a neuron and the nearest class average or centre: 1 is the "
    "same direction. Drawn is the median of the neurons that matter.",
    "‖w‖": "The length of a neuron: of the longest of those that matter, and their median.",
    "decision regions": "Where the network says + and where −, on the plane through the origin and "
    "two centres.",
    "certified ball": "No point of it is given the other class. It is certified in all dimensions; "
    "the plane shows a cut.",
    "undecided": "f = 0: no neuron is active there, so that the network says neither + nor −.",
    "share": "How much of the network the neurons of this direction carry, by |v| ‖w‖.",
    "least cosine": "Of the neuron among them that is farthest from the direction; 1 is along it.",
}


def term(name: str, words: str | None = None) -> Any:
    """A word of EXPLANATIONS, or other words for it, that shows what it means."""
    return explained(words or name, EXPLANATIONS[name])


def explained(words: str, explanation: str, **more: Any) -> Any:
    """Words that show an explanation; assets/terms.js opens it.

    They are part of their line and wrap with it, which a button does not.
    """
    classes = f"term {more.pop('className', '')}".strip()
    data: dict[str, Any] = {"data-explained": explanation, **more}
    return html.Span(words, role="button", tabIndex="0", className=classes, **data)
