"""Neurons in three dimensions at the start, after alignment and at the end (Figure 1)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extremal import measure, models, train
from extremal.data import OrthonormalMixture
from extremal.experiments.trial import Outcome


def stages(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One gradient flow from a small balanced start, with its neurons at the three stages.

    "positive_neurons_moving" and its negative twin (frames, m, dim) hold the neurons of one sign of
    vote at all recorded "times".

    One seed gives the same data and the same initial neurons for every p. "Aligned" is the last
    recorded time at which the loss still has `aligned_share` of its first value: neurons have
    turned, and are still small.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
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
    expected = (
        torch.stack([mixture.average(1), mixture.average(-1)])
        if params["p"] < 2
        else mixture.centers
    )
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
