"""Alignment: directions first, then norms; and what a nudge toward the centres changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, theory, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments import Claim, Experiment, Line, Setting, Settings, VerticalLine
from extremal.experiments.papers.shared.claim_rows import claims
from extremal.experiments.papers.shared.mixture_training import mixture_of, small_network
from extremal.experiments.trial import Outcome

_KINDS = ("none", "direction", "literal")
_PHASES_SOURCE = "poster, 'Crucial role of implicit bias': direction first, then norm"
_RUN_SOURCE = "about 600 iterations, read off the full paper's figure"
_LEARNED_SOURCE = "poster: for p > 2 neurons learn cluster centres"
_THEORY_SOURCE = "log(1/||w||) K / step at a centre, to leading order: theory.onset_time"
_END_OF_DESCENT = VerticalLine(lambda s: s["steps"], "end of GD")
_RECORDED_ITERATIONS = [*range(20, 600, 20), *range(600, 2000, 50), *range(2000, 8001, 200)]


def _growth_iterations(settings: Settings) -> float:
    """Iterations that an aligned neuron of the initial norm takes to norm 1."""
    counts = (settings["positive"], settings["negative"])
    rate = theory.growth_rate(max(counts), sum(counts), settings["p"], "center", "exp")
    length = settings["init_std"] * settings["dim"] ** 0.5
    return theory.onset_time(length, rate) / settings["lr"]


def _line(title: str, y: str, ylabel: str, log: Literal["x", "xy"] = "x") -> Line:
    labels = {
        "none": "no nudge",
        "direction": "nudge of the direction",
        "literal": "nudge of w itself",
    }
    axes = ("iteration", (y,), "iteration", ylabel)
    return Line(title, *axes, by="nudge", labels=labels, vertical_lines=(_END_OF_DESCENT,), log=log)


def _claims(kind: str) -> tuple[Claim, ...]:
    """For the literal nudge, which starts aligned, nothing is said of what comes first."""
    at, name = {"nudge": kind}, f"{kind}: "
    order = Claim(
        name + "share that aligns, then grows",
        "aligned_first",
        1.0,
        0.01,
        _PHASES_SOURCE,
        at,
        against="published",
    )
    return (
        *((order,) if kind != "literal" else ()),
        Claim(
            name + "loss after GD", "loss_descent", 0.0, 0.1, _RUN_SOURCE, at, against="published"
        ),
        Claim(
            name + "centres missed in the end",
            "missed",
            0.0,
            0.0,
            _LEARNED_SOURCE,
            at,
            against="published",
        ),
    )


alignment = Experiment(
    name="min-vidal-2025/alignment",
    title="Two phases: directions first, then norms",
    source="Min & Vidal 2025, poster; the run's numbers are from the full paper",
    study="extremal.experiments.studies.phases:phases",
    settings={
        "dim": Setting(1000, "O", "D, from the full paper"),
        "positive": Setting(5, "O", "K1, from the full paper"),
        "negative": Setting(5, "O", "K2, from the full paper"),
        "spread": Setting(0.1, "O", "alpha, from the full paper"),
        "p": Setting(3.0, "O", "from the full paper"),
        "init_std": Setting(1e-7, "O", "from the full paper, read as a standard deviation"),
        "lr": Setting(0.2, "O", "GD's step, from the full paper"),
        "steps": Setting(600, "O", "iterations of GD, from the full paper"),
        "train_points": Setting(5000, "O", "n, from the full paper"),
        "nudge": Setting(list(_KINDS), "O", "the paper's can be read in two ways: see the notes"),
        "nudge_size": Setting(0.05, "O", "from the full paper"),
        "width": Setting(200, "O", "not known for this run; the poster's networks have 200"),
        "loss": Setting("exp", "S", "exponential or logistic, poster; here its mean"),
        "recorded": Setting(
            _RECORDED_ITERATIONS, "O", "iterations; after GD's last the flow goes on"
        ),
        "seeds": Setting(5, "O"),
    },
    quick={
        "dim": 200,
        "train_points": 1000,
        "width": 100,
        "recorded": [*range(50, 600, 50), *range(600, 6001, 200)],
        "seeds": 1,
    },
    smoke={
        "dim": 30,
        "positive": 2,
        "negative": 2,
        "init_std": 1e-4,
        "steps": 40,
        "train_points": 100,
        "width": 20,
        "recorded": [*range(10, 40, 10), *range(40, 1001, 40)],
        "seeds": 1,
    },
    axes=("nudge",),
    version=3,
    columns=3,
    panels=(
        _line("Directions", "mean_cosine", "mean cosine of what ends dominant"),
        _line("Norms", "largest_norm", "largest ‖w‖", "xy"),
        _line("Loss", "losses", "training loss"),
    ),
    claims=(
        *(claim for kind in _KINDS for claim in _claims(kind)),
        *claims(
            _PHASES_SOURCE,
            {"nudge": "none"},
            ("none: norm at alignment, as a share of the last", "norm_when_aligned", 0.0, 0.01),
            against="published",
        ),
        *claims(
            _THEORY_SOURCE,
            {"nudge": "none"},
            (
                "none: iterations from alignment to growth",
                "growth_iterations",
                _growth_iterations,
                130.0,
            ),
            scales=("paper",),
            against="theory",
        ),
    ),
    notes=(
        "The nudge w += 0.05 (mu - w) toward a random centre is read in two ways: of w itself, "
        "which at a scale of 1e-7 leaves ||w|| = 0.05 and cosines of 1, so that nothing is left to "
        "align; and of the direction w/||w|| with the norm kept, so that the start stays small and "
        "only a little less random. With the mean loss 600 iterations are a flow time of 120. A "
        "neuron that is aligned from the start takes 633 to grow from 3e-6 to 1, and alignment "
        "from random directions comes before that: only the first reading is fitted by then. A "
        "summed loss makes steps 5000 times as long: it jumps to zero loss in 6 of them, with 6 of "
        "10 centres missed. Mean cosines are with the centre that each neuron ends at, weighted by "
        "what it contributes in the end; neurons have aligned at 0.9, and have grown at half their "
        "last norm. After the iterations of GD, times of its flow are given in steps."
    ),
)


NUDGE_KINDS = ("none", "direction", "literal")
# A neuron is aligned from this cosine with its last centre on.
_ALIGNED_COSINE = 0.9
# A neuron has grown at this share of its last norm.
_GROWN_SHARE = 0.5
# The data are fitted at this loss.
_FITTED_LOSS = 0.1


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """`steps` of gradient descent, then its flow: cosines, norms and loss at each iteration kept.

    An iteration of the flow is a time of `lr`. Neurons that end up dominant are followed from the
    start: each with the centre that it ends at, weighted by its last contribution. It is aligned
    from a cosine of 0.9 on, and has grown at half of its last norm. One seed gives the same data
    and the same initial weights to all nudges.
    """
    mixture = mixture_of(params)
    data = mixture.sample(params["train_points"], generator=generator)
    net = small_network(mixture.dim, params, generator)
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
            "fitted_iteration": _first(values["loss"] <= _FITTED_LOSS, iterations),
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
    _check.choice("nudge", kind, NUDGE_KINDS)
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
    aligned, grown = own >= _ALIGNED_COSINE, norms >= _GROWN_SHARE * norms[-1]
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
