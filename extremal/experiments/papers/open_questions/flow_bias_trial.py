"""What gradient flow on the mixture learns: directions, radii, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from extremal import measure, models, theory, train
from extremal.data import OrthonormalMixture
from extremal.evaluate import bracket
from extremal.experiments.papers.shared.mixture_training import (
    class_averages,
    mean_cosine,
    mixture_of,
    small_network,
)
from extremal.experiments.papers.shared.robust_numbers import robust_numbers
from extremal.experiments.trial import Outcome

# Neurons are aligned with so much of a direction's length within the span of the centres.
_ALIGNED_LENGTH = 0.9
# The loss has started to fall where this share of the first one is left.
_ONSET_LOSS_SHARE = 0.9
# Training has stalled where this share of the first loss, or more, is left in the end.
_STALLED_LOSS_SHARE = 0.1


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One gradient flow: directions, missed centres, radii from both sides, accuracy, times.

    One seed gives the same data, the same test points and the same initial weights, up to their
    scale, for every p and every scale. A time that did not come is given as `flow_time`. Training
    stalls if `flow_time` leaves a tenth of the first loss or more.
    """
    mixture = mixture_of(params)
    data = mixture.sample(params["train_points"], generator=generator)
    test = mixture.sample(params["test_points"], generator=generator)
    net = small_network(mixture.dim, params, generator)
    until = params["flow_time"]
    flow = train.gradient_flow(
        net,
        data,
        loss=params["loss"],
        until=until,
        method=params["method"],
        record=train.Record.log_spaced(
            1.0, until, params["recorded"], watch={"inside": lambda now: _inside(now, mixture)}
        ),
    )
    losses = flow.values["loss"]
    few = test.take(slice(params["attacked_points"]))
    certified = params["certified_points"]
    both = bracket(net, few, mixture=mixture, certified=certified, generator=generator)
    found = robust_numbers(both, [0.0], certified)
    return Outcome(
        {
            **_directions(net, mixture),
            **_times(net, flow, until),
            **_predicted(params),
            "half_radius": found["half_radius"],
            "half_radius_few": float(both.upper[:certified].median()),
            "half_radius_certified": found["half_radius_certified"],
            "bracket_gap": found["bracket_gap"],
            "test_accuracy": measure.accuracy(net, test),
            "train_accuracy": float(flow.values["accuracy"][-1]),
            "loss": float(losses[-1]),
            "stalled": float(losses[-1] >= _STALLED_LOSS_SHARE * losses[0]),
        }
    )


def _inside(net: torch.nn.Module, mixture: OrthonormalMixture) -> Tensor:
    """The length (width,) that each neuron's direction has within the span of the centres."""
    assert isinstance(net, models.PReLUNet)
    return measure.cosines(net.neurons, mixture.centers).norm(dim=1)


def _directions(net: models.PReLUNet, mixture: OrthonormalMixture) -> dict[str, Any]:
    """How near the dominant neurons are to averages and to centres, and which nobody follows.

    Cosines are with the nearest one, weighted by contribution.
    """
    numbers: dict[str, Any] = {}
    for name, directions in (("averages", class_averages(mixture)), ("centers", mixture.centers)):
        found = measure.following(net, directions)
        numbers |= {
            f"cosine_{name}": mean_cosine(found),
            f"missed_{name}": len(found.unfollowed),
            "dominant": len(found.neurons),
        }
    return numbers


def _times(net: models.PReLUNet, flow: train.Trajectory, until: float) -> dict[str, float]:
    """When the neurons that end up dominant have aligned, and when the loss starts to fall."""
    weight = measure.contributions(net)
    inside = flow.values["inside"] @ (weight / weight.sum())
    losses = flow.values["loss"]
    return {
        "aligned_time": _first(flow.times, inside >= _ALIGNED_LENGTH, until),
        "onset_time": _first(flow.times, losses <= _ONSET_LOSS_SHARE * losses[0], until),
        "inside": float(inside[-1]),
    }


def _first(times: Tensor, true: Tensor, otherwise: float) -> float:
    """The first of the times at which something is true."""
    return float(times[true][0]) if bool(true.any()) else otherwise


def _predicted(params: Mapping[str, Any]) -> dict[str, float]:
    """The theory's radius, of which it has none at p = 2, and its time of growth once aligned."""
    p, counts = params["p"], (params["positive"], params["negative"])
    numbers = {}
    if p != 2:
        optimum = theory.OPTIMAL_RADIUS
        numbers["predicted_radius"] = theory.average_radius(*counts) if p < 2 else optimum
    length = params["init_std"] * math.sqrt(params["dim"])
    if length < 1:
        kind: Literal["average", "center"] = "average" if p < 2 else "center"
        rate = theory.growth_rate(max(counts), sum(counts), p, kind, params["loss"])
        numbers["predicted_onset"] = theory.onset_time(length, rate)
    return numbers
