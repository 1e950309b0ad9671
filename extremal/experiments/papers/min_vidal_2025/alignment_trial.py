"""Directions first, then norms: one training followed neuron by neuron, with and without a nudge.

The study behind `min-vidal-2025/alignment`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, theory, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments.trial import Outcome

NUDGES = ("none", "direction", "literal")
_ALIGNED, _GROWN, _FITTED = 0.9, 0.5, 0.1  # cosine, share of the last norm, loss


def phases(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """`steps` of gradient descent, then its flow: cosines, norms and loss at each iteration kept.

    An iteration of the flow is a time of `lr`. Neurons that end up dominant are followed from the
    start: each with the centre that it ends at, weighted by its last contribution. It is aligned
    from a cosine of 0.9 on, and has grown at half of its last norm. One seed gives the same data
    and the same initial weights to all nudges.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    data = mixture.sample(params["train_points"], generator=generator)
    init = models.Gaussian(params["init_std"])
    net = models.PReLUNet(mixture.dim, params["width"], params["p"], init=init, generator=generator)
    nudge(net, mixture, params["nudge"], params["nudge_size"], generator)
    path = train.gd(
        net,
        data,
        loss=params["loss"],
        lr=params["lr"],
        steps=params["steps"],
        record=_record(mixture, params, 0, params["steps"]),
    )
    after = measure.following(net, mixture.centers)
    rest = _continued(net, data, mixture, params)
    last = measure.following(net, mixture.centers)
    values = {name: torch.cat([path.values[name], rest.values[name][1:]]) for name in path.values}
    seconds = [*path.times.tolist(), *(path.times[-1] + rest.times[1:]).tolist()]
    iterations = [round(time / params["lr"]) for time in seconds]
    own = values["cosines"][:, last.neurons, last.direction]  # (times, m)
    norms = values["norms"][:, last.neurons]
    weight = last.contribution / last.contribution.sum()
    return Outcome(
        {
            "iteration": iterations,
            "mean_cosine": (own @ weight).tolist(),
            "largest_norm": values["norms"].amax(1).tolist(),
            "losses": values["loss"].tolist(),
            **_order(torch.tensor(iterations), own, norms, weight),
            **_growth(params),
            "loss_descent": float(path.values["loss"][-1]),
            "missed_descent": len(after.unfollowed),
            "loss": float(rest.values["loss"][-1]),
            "missed": len(last.unfollowed),
            "dominant": len(last.neurons),
            "fitted_iteration": _first(values["loss"] <= _FITTED, iterations),
        }
    )


def nudge(
    net: models.PReLUNet,
    mixture: OrthonormalMixture,
    kind: str,
    size: float,
    generator: torch.Generator,
) -> None:
    """Move each neuron toward a random centre mu, in place.

    "literal": w += size (mu - w), which leaves a small w with norm `size` and direction mu.
    "direction": the same for u = w/||w||, with ||w|| kept. "none" changes nothing, but draws the
    same centres.
    """
    _check.choice("nudge", kind, NUDGES)
    target = torch.randint(mixture.count, (net.width,), generator=generator)
    toward = mixture.centers[target]
    with torch.no_grad():
        w = net.neurons.double()
        norm = torch.linalg.vector_norm(w, dim=1, keepdim=True)
        if kind == "literal":
            w = w + size * (toward - w)
        elif kind == "direction":
            moved = w / norm + size * (toward - w / norm)
            w = norm * moved / torch.linalg.vector_norm(moved, dim=1, keepdim=True)
        net.neurons.copy_(w)


def _record(
    mixture: OrthonormalMixture, params: Mapping[str, Any], first: int, last: int
) -> train.Record:
    """What to keep at the iterations `recorded` after `first`, as times from there."""

    def cosines(net: nn.Module) -> Tensor:
        assert isinstance(net, models.PReLUNet)
        return measure.cosines(net.neurons, mixture.centers)

    def norms(net: nn.Module) -> Tensor:
        assert isinstance(net, models.PReLUNet)
        return torch.linalg.vector_norm(net.neurons.double(), dim=1)

    at = [params["lr"] * (i - first) for i in params["recorded"] if first < i <= last]
    return train.Record(at=at, watch={"cosines": cosines, "norms": norms})


def _continued(
    net: models.PReLUNet, data: Dataset, mixture: OrthonormalMixture, params: Mapping[str, Any]
) -> train.Trajectory:
    """The samples' flow from where descent stopped to the last of the iterations `recorded`."""
    last = max(params["recorded"])
    return train.gradient_flow(
        net,
        data,
        loss=params["loss"],
        until=params["lr"] * (last - params["steps"]),
        method="general",
        record=_record(mixture, params, params["steps"], last),
    )


def _order(iterations: Tensor, own: Tensor, norms: Tensor, weight: Tensor) -> dict[str, float]:
    """When neurons align and when they grow, and what comes first.

    `own` (times, m) are cosines with the centre in the end, `norms` (times, m), `weight` (m,).
    """
    aligned, grown = own >= _ALIGNED, norms >= _GROWN * norms[-1]
    turned, long = aligned.int().argmax(0), grown.int().argmax(0)  # the first of each, (m,)
    came = aligned.any(0)  # all have grown by the end
    size = norms.gather(0, turned.unsqueeze(0)).squeeze(0) / norms[-1]
    share = float(weight[came].sum())

    def mean(values: Tensor) -> float:
        return float((weight * values)[came].sum()) / share if share > 0 else math.nan

    return {
        "aligned_share": share,
        "aligned_iteration": mean(iterations[turned]),
        "grown_iteration": mean(iterations[long]),
        "growth_iterations": mean(iterations[long] - iterations[turned]),
        "aligned_first": float(weight[came & (turned < long)].sum()),
        "norm_when_aligned": mean(size),
    }


def _growth(params: Mapping[str, Any]) -> dict[str, float]:
    """Iterations that an aligned neuron of the initial norm takes to norm 1, by theory."""
    counts = (params["positive"], params["negative"])
    rate = theory.growth_rate(max(counts), sum(counts), params["p"], "center", params["loss"])
    length = params["init_std"] * params["dim"] ** 0.5
    return {"growth_predicted": theory.onset_time(length, rate) / params["lr"]}


def _first(true: Tensor, iterations: list[int]) -> float:
    """The first iteration at which something is true; infinite if it never is."""
    return float(iterations[int(true.int().argmax())]) if bool(true.any()) else float("inf")
