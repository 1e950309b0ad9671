"""Figure 1: neurons in space at the start, after alignment and at the end, for p = 1 and 3."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extremal import measure, models, train
from extremal.experiments import Experiment, Movie, PointSet, Scene, Setting
from extremal.experiments.papers.shared.claim_rows import claims
from extremal.experiments.papers.shared.mixture_training import mixture_of, predicted_directions
from extremal.experiments.trial import Outcome

_DATA_POINTS = (
    PointSet("positive_data", "positive data", colour="positive"),
    PointSet("negative_data", "negative data", colour="negative"),
)
_CENTER_RAYS = PointSet("centers", "subclass centres", "rays", colour="accent")


def _rays(name: str, label: str) -> tuple[PointSet, PointSet]:
    return (
        PointSet(f"positive_{name}", f"{label}, v > 0", "rays", colour="positive"),
        PointSet(f"negative_{name}", f"{label}, v < 0", "rays", colour="negative"),
    )


def _scene(title: str, p: float, stage: str) -> Scene:
    neurons = PointSet(f"neurons_{stage}", "neurons", colour="neutral")
    sets = (*_DATA_POINTS, *_rays(f"directions_{stage}", "directions"), neurons, _CENTER_RAYS)
    return Scene(title, sets, {"p": p})


def _moving(p: float) -> Scene:
    return Scene(
        f"p = {p:g}", (*_DATA_POINTS, *_rays("neurons_moving", "neurons"), _CENTER_RAYS), {"p": p}
    )


figure_1 = Experiment(
    name="min-vidal-2024/figure-1",
    title="Figure 1: training a pReLU network from a small initialisation, seen in space",
    source="Min & Vidal 2024, Figure 1 and Section 4.1",
    study="extremal.experiments.studies.stages:stages",
    settings={
        "dim": Setting(3, "S", "Figure 1"),
        "positive": Setting(2, "S", "two positive subclasses"),
        "negative": Setting(1, "S", "three subclasses in all"),
        "p": Setting([1.0, 3.0], "S", "Figure 1"),
        "seeds": Setting(5, "O", "the first is drawn"),
        "spread": Setting(0.15, "O", "alpha"),
        "train_points": Setting(90, "O"),
        "width": Setting(60, "O"),
        "init_scale": Setting(1e-4, "O", "epsilon of eq. 4, balanced"),
        "flow_time": Setting(2000.0, "O", "mean exponential loss"),
        "frames": Setting(80, "O", "recorded times, evenly spaced in their logarithm"),
        "aligned_share": Setting(0.98, "O", "share of the first loss left when aligned"),
        "tolerance": Setting(1e-4, "O", "relative error of a step"),
    },
    quick={"seeds": 2},
    smoke={
        "seeds": 1,
        "width": 12,
        "train_points": 12,
        "flow_time": 100.0,
        "frames": 16,
        "tolerance": 1e-2,
    },
    version=3,
    axes=("p",),
    columns=3,
    movie=Movie(
        "Neurons first turn, then grow",
        (_moving(1.0), _moving(3.0)),
        times="times",
        loss="losses",
        alignment_ends="aligned_time",
        phases=("turning", "growing"),
        compress=0.1,
    ),
    panels=(
        _scene("At initialisation", 1.0, "initial"),
        _scene("p = 1, aligned", 1.0, "aligned"),
        _scene("p = 1, at the end", 1.0, "final"),
        _scene("p = 3, aligned", 3.0, "aligned"),
        _scene("p = 3, at the end", 3.0, "final"),
    ),
    claims=(
        *claims(
            "the paper's panel b; weighted by contribution",
            {"p": 1.0},
            ("p = 1: mean cosine with averages, aligned", "aligned_cosine", 1.0, 0.05),
            against="published",
        ),
        *claims(
            "the paper's panel d; weighted by contribution",
            {"p": 3.0},
            ("p = 3: mean cosine with centres, aligned", "aligned_cosine", 1.0, 0.05),
            against="published",
        ),
        *claims(
            "the paper's panel c; dominant neurons",
            {"p": 1.0},
            ("p = 1: lowest cosine with an average", "lowest_cosine", 1.0, 0.03),
            against="published",
        ),
        *claims(
            "the paper's panel e; dominant neurons",
            {"p": 3.0},
            ("p = 3: lowest cosine with a centre", "lowest_cosine", 1.0, 0.03),
            against="published",
        ),
        *claims(
            "the paper's panel c",
            {"p": 1.0},
            ("p = 1: averages nobody follows", "unfollowed", 0.0, 0.0),
            against="published",
        ),
        *claims(
            "the paper's panel e",
            {"p": 3.0},
            ("p = 3: centres nobody follows", "unfollowed", 0.0, 0.0),
            against="published",
        ),
    ),
    notes=(
        "One seed gives the same data and the same initial neurons for both p. Neurons that no "
        "data point activates keep their direction and stay small."
    ),
)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One gradient flow from a small balanced start, with its neurons at the three stages.

    "positive_neurons_moving" and its negative twin (frames, m, dim) hold the neurons of one sign of
    vote at all recorded "times".

    One seed gives the same data and the same initial neurons for every p. "Aligned" is the last
    recorded time at which the loss still has `aligned_share` of its first value: neurons have
    turned, and are still small.
    """
    mixture = mixture_of(params)
    data = mixture.sample(params["train_points"], generator=generator, dtype=torch.float64)
    net = models.PReLUNet(
        mixture.dim,
        params["width"],
        params["p"],
        init=models.Balanced(params["init_scale"]),
        dtype=torch.float64,
        generator=generator,
    )
    record = train.Record.log_spaced(0.1, params["flow_time"], params["frames"], snapshots=True)
    # The flow of these few points themselves, not of their clusters.
    settings = {"until": params["flow_time"], "tolerance": params["tolerance"], "record": record}
    flow = train.gradient_flow(net, data, method="general", **settings)
    losses = flow.values["loss"]
    aligned = int((losses >= params["aligned_share"] * losses[0]).nonzero().max())
    expected = predicted_directions(mixture, params["p"])
    at_end = measure.following(net, expected)
    # The same network at the earlier stage, to be measured there: neurons have turned, not grown.
    earlier = measure.following(flow.at(aligned, copy.deepcopy(net)), expected)  # type: ignore[arg-type]
    arrays = {
        "centers": mixture.centers,
        "positive_data": data.x[data.y > 0],
        "negative_data": data.x[data.y < 0],
    }
    for name, index in (("initial", 0), ("aligned", aligned), ("final", -1)):
        arrays |= _stage(name, flow.snapshots["neurons"][index], net.votes[0])
    for sign, which in (("positive", net.votes[0] > 0), ("negative", net.votes[0] < 0)):
        arrays[f"{sign}_neurons_moving"] = flow.snapshots["neurons"][:, which]
    numbers = {
        "loss": float(losses[-1]),
        "times": flow.times.tolist(),
        "losses": losses.tolist(),
        "aligned_time": float(flow.times[aligned]),
        "largest_norm_aligned": float(flow.snapshots["neurons"][aligned].norm(dim=1).max()),
        "aligned_cosine": float((earlier.cosine * earlier.contribution).sum())
        / float(earlier.contribution.sum()),
        "lowest_cosine": at_end.lowest,
        "unfollowed": len(at_end.unfollowed),
        "accuracy": measure.accuracy(net, data),
    }
    return Outcome(numbers, {name: value.float().contiguous() for name, value in arrays.items()})


def _stage(name: str, neurons: Tensor, votes: Tensor) -> dict[str, Tensor]:
    """The neurons, and their directions by the sign of their vote."""
    unit = neurons / neurons.norm(dim=1, keepdim=True)
    chosen = {"positive": votes.detach() > 0, "negative": votes.detach() < 0}
    parts = {f"{sign}_directions_{name}": unit[which] for sign, which in chosen.items()}
    return {f"neurons_{name}": neurons, **parts}
