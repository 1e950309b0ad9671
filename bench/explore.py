"""The playground's default answer against plain SGD on the same problem, in one run.

An answer is the flow, which moves the picture, and then the smallest attack on each test point and
certificates. Plain SGD is a PyTorch loop with autograd on the same points from the same first
weights, batches of 100, step 0.2, as in the papers' synthetic study. It is timed twice: for the
papers' own 80,200 steps, of which some are run and multiplied, against the whole answer; and only
until the loss on all points is as small as where the flow ends, against the flow alone. The loss on
all points is looked at every few steps, outside of the time. SGD trains alone, and neither attacks
nor certifies. Times are the process's own seconds of computing, since other work on the machine
must not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench._common import seconds_of
from extremal import data, models
from extremal.web.answer_pool import Deadline
from extremal.web.playground_settings import PlaygroundSettings
from extremal.web.playground_training import (
    LOSS_GOAL,
    TRAIN_POINTS,
    RadiusBrackets,
    attack_and_certify,
    train_flow,
)

SETTINGS: dict[str, Any] = {
    "setup": "the default of `extremal explore`: dim 4, 2 + 2 subclasses, 60 neurons",
    "powers": [1.0, 3.0],
    "batch": 100,
    "lr": 0.2,
    "recipe_steps": 80_200,
    "recipe_steps_timed": 2000,
    "look_every": 10,
    "repeats": 3,
    "threads": 1,
}


def measure() -> dict[str, Any]:
    """Both p of the one-click comparison."""
    torch.set_num_threads(SETTINGS["threads"])
    torch.set_flush_denormal(True)
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for p in SETTINGS["powers"]:
        setup = PlaygroundSettings(p=p)
        answers, flows, steps, reached = [], [], [], []
        _answer(setup)  # what is imported and allocated once
        for _ in range(SETTINGS["repeats"]):  # in turns
            answers.append(seconds_of(partial(_answer, setup)))
            flows.append(seconds_of(partial(train_flow, setup, Deadline(1e6))))
            steps.append(_step_seconds(setup))
            reached.append(_until_fitted(setup))
        answer, flow, one = map(statistics.median, (answers, flows, steps))
        fitted = statistics.median(seconds for seconds, _ in reached)
        name = f"p = {p:g}"
        ratios[f"recipe over answer, {name}"] = SETTINGS["recipe_steps"] * one / answer
        ratios[f"recipe over flow, {name}"] = SETTINGS["recipe_steps"] * one / flow
        ratios[f"SGD to the same loss over flow, {name}"] = fitted / flow
        figures[name] = {
            "answer, s": answer,
            "flow, s": flow,
            "SGD step, ms": 1e3 * one,
            "SGD to the same loss, s": fitted,
            "SGD steps to the same loss": reached[0][1],
        }
    return {"bench": "explore", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _stepper(setup: PlaygroundSettings) -> tuple[Callable[[], None], Callable[[], float]]:
    """A step of plain SGD from the first weights on, and the loss on all points as it is then."""
    generator = torch.Generator().manual_seed(setup.seed)
    mixture = data.OrthonormalMixture(setup.dim, setup.positive, setup.negative, setup.spread)
    points = mixture.sample(TRAIN_POINTS, generator=generator)
    start = models.Gaussian(float(f"1e{setup.init}"))
    net = models.PReLUNet(setup.dim, setup.width, setup.p, init=start, generator=generator)
    w, v = (part.detach().clone().requires_grad_() for part in (net.neurons, net.votes))
    optimiser = torch.optim.SGD([w, v], lr=SETTINGS["lr"])
    labels = points.y.float()

    def loss(rows: Any) -> torch.Tensor:
        hidden = torch.relu(points.x[rows] @ w.T) ** setup.p / w.norm(dim=1) ** (setup.p - 1)
        return torch.exp(-labels[rows] * (hidden @ v.T).squeeze(1)).mean()

    def step() -> None:
        rows = torch.randint(TRAIN_POINTS, (SETTINGS["batch"],), generator=generator)
        optimiser.zero_grad()
        loss(rows).backward()
        optimiser.step()

    def full() -> float:
        with torch.no_grad():
            return float(loss(slice(None)))

    return step, full


def _answer(setup: PlaygroundSettings) -> RadiusBrackets:
    """Both parts of an answer of the playground."""
    deadline = Deadline(1e6)
    return attack_and_certify(train_flow(setup, deadline), deadline)


def _step_seconds(setup: PlaygroundSettings) -> float:
    """The mean time of the first steps, which cost what all others do."""
    (step, _), count = _stepper(setup), SETTINGS["recipe_steps_timed"]
    return seconds_of(lambda: [step() for _ in range(count)]) / count


def _until_fitted(setup: PlaygroundSettings) -> tuple[float, int]:
    """Seconds and steps of SGD until the loss on all points is as small as where the flow ends."""
    (step, full), seconds, count = _stepper(setup), 0.0, 0
    few = SETTINGS["look_every"]
    while full() > LOSS_GOAL:
        seconds += seconds_of(lambda: [step() for _ in range(few)])
        count += few
    return seconds, count
