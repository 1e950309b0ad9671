"""The flow of networks with classes, biases or frozen votes against gradient descent, in one run.

Descent is plain PyTorch on all samples, with the largest stable step: 2 over the largest sharpness
(eigenvalue of the Hessian, by the power method, so from below) met at moments along the flow. Some
of its steps are timed at those moments, and their mean is multiplied by flow time over step. The
flow runs whole, at the default tolerance, and is held against a finer one at its earlier moments.
Seconds are the process's own, on one thread.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench._common import markdown_table, seconds_of
from extremal import data, models, train
from extremal.measure import accuracy
from extremal.train.flow.shallow_flow import ShallowFlow
from extremal.train.losses import loss_and_gradient, trainable

SETTINGS: dict[str, Any] = {
    "threads": 1,
    "steps_timed": 3,
    "sharpness_products": 12,
    "init": 1e-6,
    "digits_width": 200,
    "mnist": {"width": 500, "train_points": 10_000},
    "averaging": {"dim": 3072, "positive": 5, "negative": 5, "train_each": 100, "init": 1e-5},
    # The flow times at which both are compared; the last one ends the run.
    "moments": {
        "feature averaging": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0],
        "digits, p = 1": [70.0, 130.0, 600.0, 3000.0, 10_000.0, 100_000.0],
        "digits, p = 3": [5.0, 9.0, 40.0, 200.0, 1000.0, 10_000.0],
        "MNIST, p = 3": [1.0, 2.0, 10.0, 50.0, 200.0],
    },
    # Outputs are compared with those of a flow at a tenth of the tolerance, at this moment: for
    # p = 1 finer flows take a step for each sample that a neuron switches on or off.
    "verified_at": {
        "feature averaging": 100.0,
        "digits, p = 1": 600.0,
        "digits, p = 3": 1000.0,
        "MNIST, p = 3": 1.0,
    },
    "fine_tolerance": 3e-5,
}
# The Hessian is seen by moving the weights by this share of their norm.
_HESSIAN_MOVE = 1e-4


@dataclass(frozen=True, eq=False)
class Problem:
    """A network before training, its data and its loss."""

    net: models.PReLUNet
    points: data.Dataset
    loss: train.Loss


def averaging_problem() -> Problem:
    """Feature averaging: votes frozen at +1 and -1, ReLU with hidden biases, two classes."""
    given, generator = SETTINGS["averaging"], torch.Generator().manual_seed(0)
    clusters = data.OrthogonalClusters(
        given["dim"], given["positive"], given["negative"], 1.0, generator=generator
    )
    points = clusters.sample_each(given["train_each"], generator=generator)
    net = models.PReLUNet(
        given["dim"],
        given["positive"] + given["negative"],
        hidden_bias=True,
        init=models.Blocks(given["init"]),
        generator=generator,
    ).freeze("votes")
    return Problem(net, data.Dataset(points.x, points.y), train.Loss("logistic"))


def digits_problem(p: float) -> Problem:
    """Ten classes of small images from a tiny start."""
    images, _ = data.load("digits")
    generator = torch.Generator().manual_seed(0)
    start, width = models.Gaussian(SETTINGS["init"]), SETTINGS["digits_width"]
    net = models.PReLUNet(images.dim, width, p, 10, init=start, generator=generator)
    return Problem(net, data.Dataset(images.x, images.y), train.Loss("cross-entropy"))


def mnist_problem(p: float) -> Problem:
    """Ten classes of 28 x 28 images from a tiny start."""
    given, generator = SETTINGS["mnist"], torch.Generator().manual_seed(0)
    images = data.load("mnist")[0].subset(given["train_points"], generator=generator)
    start = models.Gaussian(SETTINGS["init"])
    net = models.PReLUNet(images.dim, given["width"], p, 10, init=start, generator=generator)
    return Problem(net, data.Dataset(images.x, images.y), train.Loss("cross-entropy"))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "feature averaging": averaging_problem,
    "digits, p = 1": lambda: digits_problem(1.0),
    "digits, p = 3": lambda: digits_problem(3.0),
    "MNIST, p = 3": lambda: mnist_problem(3.0),
}


def measure_problem(name: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Ratios and figures of one problem, at each of its moments."""
    given, moments = PROBLEMS[name](), SETTINGS["moments"][name]
    begun = time.process_time()
    record = train.Record(
        at=moments[:-1], watch={"seconds": lambda _: time.process_time()}, snapshots=True
    )
    net = copy.deepcopy(given.net)
    run = train.gradient_flow(net, given.points, loss=given.loss, until=moments[-1], record=record)
    # Measures of the run are recorded at its start, at the moments and at its end.
    spent = [float(at) - begun for at in run.values["seconds"]][1:]
    sharpness, step = _descent(given, run)
    ratios, rows = {}, []
    for i, (moment, seconds) in enumerate(zip(moments, spent, strict=True)):
        steps = moment * max(sharpness[: i + 2]) / 2.0
        ratios[f"descent over flow, seconds, {name}, to time {moment:g}"] = steps * step / seconds
        rows.append(
            {
                "time": moment,
                "loss over the first": float(run.values["loss"][i + 1] / run.values["loss"][0]),
                "flow, s": seconds,
                "steps of descent": steps,
            }
        )
    figures: dict[str, Any] = {
        "moments": rows,
        "sharpness": sharpness,
        "step of descent, s": step,
        "accuracy at the end": accuracy(net, given.points),
        "steps": run.info["steps"],
        "right-hand sides": run.info["right_hand_sides"],
    }
    until = SETTINGS["verified_at"][name]
    run.at([0.0, *moments].index(until), net)
    return ratios, {name: figures | _verified(given, net, until)}


def _verified(given: Problem, net: models.PReLUNet, until: float) -> dict[str, float]:
    """By how much outputs and loss at a flow time differ from those of a finer flow."""
    fine = copy.deepcopy(given.net)
    flow = ShallowFlow(fine, given.points, given.loss, SETTINGS["fine_tolerance"])
    while flow.time < until:
        flow.step(until)
    flow.write(fine, until)
    x = given.points.x.double()
    found, wanted = (models.float64_copy(one)(x).detach() for one in (net, fine))
    losses = [float(given.loss.value(out, given.points.y)) for out in (found, wanted)]
    return {
        "verified at": until,
        "outputs off by": float((found - wanted).abs().max() / wanted.abs().max()),
        "loss off by": abs(losses[0] / losses[1] - 1.0),
    }


def _descent(given: Problem, run: train.Trajectory) -> tuple[list[float], float]:
    """The sharpness at each recorded time, and the mean seconds of a step of descent there."""
    net, sharpness, seconds = copy.deepcopy(given.net), [], []
    for index in range(len(run)):
        run.at(index, net)
        sharpness.append(_sharpness(net, given) if index else 0.0)
        step = _descent_step(net, given)
        step()
        seconds.append(statistics.median(seconds_of(step) for _ in range(SETTINGS["steps_timed"])))
    return sharpness, statistics.mean(seconds)


def _descent_step(net: models.PReLUNet, given: Problem) -> Callable[[], None]:
    """A step of full-batch descent in plain PyTorch, so short that the network stays in place."""
    x, y, p = given.points.x, given.points.y, net.p
    parts = {name: part.detach().clone() for name, part in net.named_parameters()}
    for name, part in net.named_parameters():
        parts[name].requires_grad_(part.requires_grad)
    trained = [part for part in parts.values() if part.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=1e-12)

    def step() -> None:
        w = parts["neurons"]
        hidden = torch.relu(nn.functional.linear(x, w, parts.get("hidden_bias")))
        if p != 1.0:
            hidden = hidden**p / w.norm(dim=1) ** (p - 1.0)
        out = hidden @ parts["votes"].T
        optimiser.zero_grad()
        given.loss.value(out.squeeze(1) if len(parts["votes"]) == 1 else out, y).backward()
        optimiser.step()

    return step


def _sharpness(net: models.PReLUNet, given: Problem) -> float:
    """The largest eigenvalue of the Hessian of the loss, by the power method, from below."""
    parts = trainable(net)
    here = {name: part.detach().clone() for name, part in parts.items()}
    move = _HESSIAN_MOVE * math.sqrt(_square(here))
    generator = torch.Generator().manual_seed(1)
    vector = {name: torch.randn(part.shape, generator=generator) for name, part in here.items()}
    best = 0.0
    first = _gradient(net, given, parts, here)
    for _ in range(SETTINGS["sharpness_products"]):
        length = math.sqrt(_square(vector))
        moved = {name: here[name] + (move / length) * vector[name] for name in here}
        change = _gradient(net, given, parts, moved)
        product = {name: (change[name] - first[name]) / move for name in here}
        best = max(best, sum(float((product[k] * vector[k]).sum()) for k in here) / length)
        vector = product
    _gradient(net, given, parts, here)
    return best


def _gradient(
    net: models.PReLUNet, given: Problem, parts: dict[str, nn.Parameter], at: dict[str, Tensor]
) -> dict[str, Tensor]:
    with torch.no_grad():
        for name, part in parts.items():
            part.copy_(at[name])
    return loss_and_gradient(net, given.points.x, given.points.y, given.loss)[1]


def _square(parts: dict[str, Tensor]) -> float:
    return sum(float(part.square().sum()) for part in parts.values())


def measure() -> dict[str, Any]:
    """All problems."""
    torch.set_num_threads(SETTINGS["threads"])
    torch.set_flush_denormal(True)
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for name in PROBLEMS:
        more_ratios, more_figures = measure_problem(name)
        ratios |= more_ratios
        figures |= more_figures
    return {"bench": "shallow_flow", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def table(result: dict[str, Any]) -> str:
    """One row for each problem and moment."""
    rows = []
    for name, found in result["figures"].items():
        for at in found["moments"]:
            ratio = result["ratios"][f"descent over flow, seconds, {name}, to time {at['time']:g}"]
            cells = [f"{at['loss over the first']:.2g}", f"{at['flow, s']:.1f}"]
            cells += [f"{at['steps of descent']:.0f}", f"{ratio:.2g}"]
            rows.append([f"{name}, time {at['time']:g}", *cells])
    head = ["", "loss over the first", "flow, s", "steps of descent", "descent over flow"]
    return markdown_table(head, rows)
