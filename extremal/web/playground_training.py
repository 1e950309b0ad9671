"""One answer of the playground: a network trained by gradient flow, then attacked and certified.

It is what `recipe` writes down as Python, and nothing else: a test runs those lines and compares.
It comes in two parts, so that the picture can move before the attacks are done.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import attack, certify, measure, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import Gaussian, PReLUNet
from extremal.train import Record, Trajectory, Until
from extremal.web.answer_pool import Deadline
from extremal.web.playground_settings import PlaygroundSettings

# Points that a network is trained on.
TRAIN_POINTS = 300
# Points that it is attacked and certified at.
TEST_POINTS = 100
# The flow ends where the loss is this small.
LOSS_GOAL = 0.01
# The flow ends at this time at the latest.
LAST_TIME = 1e4
# The first time that is recorded.
FIRST_TIME = 0.2
# Recorded times up to the last one, 20 a decade.
FRAME_COUNT = 95
# Steps of the solver, after which it gives up.
MOST_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A trained network, how it came about, and the points to test it with."""

    setup: PlaygroundSettings
    mixture: OrthonormalMixture
    points: Dataset  # the training points
    test: Dataset
    net: PReLUNet
    run: Trajectory
    follows: measure.Following  # which of `directions` each dominant neuron follows

    @property
    def fitted(self) -> bool:
        """Whether the loss reached its goal."""
        return self.run.info["ended_by"] == "loss"


@dataclass(frozen=True, eq=False)
class RadiusBrackets:
    """A trained network, and how far its test points hold."""

    trained: TrainedNetwork
    attacked: Tensor  # (TEST_POINTS,) the smallest radius found at which each test point breaks
    certified: Tensor  # (TEST_POINTS,) no attack below it


def directions(mixture: OrthonormalMixture) -> tuple[list[str], Tensor]:
    """Names and rows (m, dim) of what a neuron may follow: class averages, then centres.

    The average of a class with one subclass is that subclass's centre, and is named so.
    """
    names, rows = [], []
    for sign, count in ((1, mixture.positive), (-1, mixture.negative)):
        if count > 1:
            names.append(f"average of class {'+' if sign > 0 else '−'}")
            rows.append(mixture.average(sign))
    for index in range(mixture.count):
        plus = index < mixture.positive
        alone = (mixture.positive if plus else mixture.negative) == 1
        name = f"centre {index + 1} (class {'+' if plus else '−'})"
        names.append(f"only {name}" if alone else name)
        rows.append(mixture.centers[index])
    return names, torch.stack(rows)


def train_flow(setup: PlaygroundSettings, deadline: Deadline) -> TrainedNetwork:
    """The first part: train; `setup.second_p` is not looked at."""
    generator = torch.Generator().manual_seed(setup.seed)
    mixture = OrthonormalMixture(setup.dim, setup.positive, setup.negative, setup.spread)
    points = mixture.sample(TRAIN_POINTS, generator=generator)
    test = mixture.sample(TEST_POINTS, generator=generator)
    start = Gaussian(float(f"1e{setup.init}"))
    net = PReLUNet(setup.dim, setup.width, setup.p, init=start, generator=generator)
    run = train.gradient_flow(
        net,
        points,
        loss=setup.loss,  # type: ignore[arg-type]  # the set-up checked it
        until=Until(time=LAST_TIME, loss=LOSS_GOAL),
        record=Record.log_spaced(FIRST_TIME, LAST_TIME, FRAME_COUNT, snapshots=True, phases=True),
        max_steps=MOST_STEPS,
        progress=deadline.check,
    )
    follows = measure.following(net, directions(mixture)[1])
    return TrainedNetwork(setup, mixture, points, test, net, run, follows)


def attack_and_certify(trained: TrainedNetwork, deadline: Deadline) -> RadiusBrackets:
    """The second part: attack and certify each test point."""
    net, test = trained.net, trained.test
    generator = torch.Generator().manual_seed(trained.setup.seed)
    found = attack.minimal(net, test.x, test.y, generator=generator, progress=deadline.check)
    certified = certify.radius(net, test.x, test.y, effort="fast", progress=deadline.check)
    return RadiusBrackets(trained, found.radius, certified)
