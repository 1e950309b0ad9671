"""One answer of the playground: a network trained by gradient flow, then attacked and certified.

It is what `recipe` writes down as Python, and nothing else: a test runs those lines and compares.
It comes in two parts, so that the picture can move before the attacks are done. Beside it stands
the plane of two centres: what the network says on it, and how near a point is to the edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import attack, certify, measure, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import Gaussian, PReLUNet, float64_copy
from extremal.train import Record, Trajectory, Until
from extremal.web.answer_pool import Deadline
from extremal.web.playground_settings import PLANE_REACH, PlanePoint, PlaygroundSettings

# Points of the plane's grid along an axis.
GRID_SIDE = 61


@dataclass(frozen=True, eq=False)
class DecisionRegions:
    """The network's values on the plane and what was found around a point of it.

    `values` (GRID_SIDE, GRID_SIDE) has `up` along its rows. The attack need not stay in the
    plane: `landed` is where it ends as seen in it, `aside` how far from it.
    """

    probe: PlanePoint
    axis: Tensor  # (GRID_SIDE,)
    values: Tensor  # (GRID_SIDE, GRID_SIDE)
    sign: int  # the class of the point, by the network; 0 where it is undecided
    radius: float  # of the smallest attack that was found; inf where none was
    landed: tuple[float, float] | None
    aside: float
    certified: float


def decision_regions(
    trained: TrainedNetwork, probe: PlanePoint, deadline: Deadline
) -> DecisionRegions:
    """The grid, the smallest attack on the point, and its certified radius ("tight")."""
    probe.check(trained.setup)
    rows = trained.mixture.centers[[probe.first - 1, probe.second - 1]]  # (2, dim) float64
    axis = torch.linspace(-PLANE_REACH, PLANE_REACH, GRID_SIDE, dtype=torch.float64)
    up, across = torch.meshgrid(axis, axis, indexing="ij")
    twin = float64_copy(trained.net)
    with torch.no_grad():
        values = twin(torch.stack([across, up], -1).reshape(-1, 2) @ rows).reshape(
            GRID_SIDE, GRID_SIDE
        )
        point = torch.tensor([[probe.across, probe.up]], dtype=torch.float64) @ rows
        sign = int(twin(point).sign())
    if sign == 0:
        return DecisionRegions(probe, axis, values, 0, 0.0, None, 0.0, 0.0)
    deadline.check()
    label = torch.tensor([sign])
    generator = torch.Generator().manual_seed(trained.setup.seed)
    found = attack.minimal(twin, point, label, generator=generator, progress=deadline.check)
    certified = certify.radius(twin, point, label, attacked=found.x_adv, progress=deadline.check)
    landed, aside = None, 0.0
    if bool(found.success):
        inside = rows @ found.x_adv[0]
        landed = (float(inside[0]), float(inside[1]))
        aside = float(torch.linalg.vector_norm(found.x_adv[0] - inside @ rows))
    radius = float(found.radius) if landed else math.inf
    return DecisionRegions(probe, axis, values, sign, radius, landed, aside, float(certified))


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
