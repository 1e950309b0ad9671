"""APGD: exact on linear networks, its published rules, and never behind PGD."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from extremal.attack import Ball, pgd
from extremal.attack.adapters.autoattack import auto_attack
from extremal.attack.auto_pgd import (
    AscentProblem,
    AscentState,
    Momentum,
    MomentumState,
    Sparse,
    SparseState,
    apgd,
)
from extremal.attack.objectives import OBJECTIVES, ObjectiveValues
from extremal.models import Kaiming, PReLUNet, Preparation
from tests.attack.balls import NORMS
from tests.attack.networks import Several, linear

DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}
RADII = {"l1": 0.9, "l2": 0.35, "linf": 0.08}


def separated(generator, count=20, dim=12):
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.rand(count, dim, generator=generator, dtype=torch.float64)
    net = linear(w, -0.45 * float(w.sum()))
    f = net(x).detach()
    return net, w, x, torch.where(f > 0, 1, -1), f.abs()


def classes(generator, count=60, dim=16, outputs=4, power=3.0):
    """Points with the labels that a random network gives them, in the unit box."""
    middle = Preparation(center=torch.full((dim,), 0.5))
    net = PReLUNet(dim, 40, power, outputs, preparation=middle, init=Kaiming(), generator=generator)
    x = torch.rand(count, dim, generator=generator)
    return net, x, net(x).detach().argmax(1)


@pytest.mark.parametrize("start", ["zero", "random"])
@pytest.mark.parametrize("norm", NORMS)
def test_linear_network_breaks_at_its_distance(norm, start, generator):
    net, w, x, y, size = separated(generator)
    distance = size / torch.linalg.vector_norm(w, DUAL[norm])
    for factor, broken in ((0.999, False), (1.001, True)):
        ball = Ball(norm, factor * distance)
        result = apgd(net, x, y, ball=ball, start=start, generator=generator)
        assert result.success.tolist() == [broken] * len(x)
    assert set(result.name) == {"apgd-margin"}


@pytest.mark.parametrize("norm", NORMS)
def test_linear_network_in_a_box_comes_to_the_linear_maximum(norm, generator):
    net, w, x, y, _ = separated(generator)
    x = x.where(torch.arange(12) % 3 > 0, x.round())
    y = torch.where(net(x).detach() > 0, 1, -1)
    ball = Ball(norm, 0.6 * RADII[norm], (0.0, 1.0))
    lowest = y * net(x + ball.linear_maximum(-y[:, None] * w, x)).detach()
    result = apgd(net, x, y, ball=ball, objective="margin", generator=generator)
    standing = ~result.success
    assert 3 <= int(standing.sum()) <= 17
    assert torch.equal(standing, lowest > 0)
    torch.testing.assert_close(result.margin[standing], lowest[standing], rtol=0, atol=2e-3)


def test_checkpoints_are_the_published_ones():
    assert Momentum().checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert Momentum().checkpoints(10) == [3, 5, 6, 7, 8, 9, 10, 10]
    assert Sparse(fresh=True).checkpoints(100) == list(range(4, 101, 4))
    assert Sparse(fresh=True).checkpoints(3) == [1, 2, 3]


def climb(memory, value, top):
    """Four points in two dimensions, at (1, 1), their best at (2, 0)."""
    ones = torch.ones(4, 2, dtype=torch.float64)
    best = torch.tensor([[2.0, 0.0]] * 4, dtype=torch.float64)
    task = AscentProblem(ones, torch.ones(4), Ball("l2", 3.0), None, "margin")
    now = ObjectiveValues(torch.tensor(value).double(), ones, ones[:, 0])
    high = ObjectiveValues(torch.tensor(top).double(), 2 * ones, -ones[:, 0])
    return AscentState(task, torch.arange(4), ones, 0.5 * ones, now, best, high, memory)


def test_momentum_halves_the_step_where_it_should():
    """Few rises; nothing new since a checkpoint that kept the step; the same after one that did
    not; and all well."""
    pace = MomentumState(
        step=torch.full((4, 1), 8.0, dtype=torch.float64),
        rises=torch.tensor([7.0, 8.0, 8.0, 8.0], dtype=torch.float64),  # 75 % of ten steps: 7.5
        mark=torch.tensor([1.0, 5.0, 5.0, 1.0], dtype=torch.float64),
        halved=torch.tensor([False, False, True, False]),
    )
    after = Momentum().review(climb(pace, [4.0] * 4, [5.0] * 4), 10)
    assert after.memory.step.squeeze(1).tolist() == [4.0, 4.0, 8.0, 8.0]
    assert after.memory.halved.tolist() == [True, True, False, False]
    assert after.memory.mark.tolist() == [5.0] * 4
    assert not after.memory.rises.any()
    assert after.delta.tolist() == [[2.0, 0.0]] * 2 + [[1.0, 1.0]] * 2
    assert after.now.value.tolist() == [5.0, 5.0, 4.0, 4.0]
    assert after.now.gradient[:, 0].tolist() == [2.0, 2.0, 1.0, 1.0]
    assert after.move[:, 0].tolist() == [0.0, 0.0, 0.5, 0.5]


def test_sparse_steps_restart_where_the_best_point_has_become_sparser():
    """The best points have one coordinate of two: half of 2, the same as 1."""
    one = torch.ones(4, 1, dtype=torch.float64)
    thrift = SparseState(
        step=one * torch.tensor([[1.5], [1.5], [0.31], [3.0]], dtype=torch.float64),
        most=3.0 * one,
        count=torch.ones(4, dtype=torch.int64),
        support=torch.tensor([2, 1, 1, 1]),
    )
    after = Sparse(fresh=False).review(climb(thrift, [4.0] * 4, [5.0] * 4), 4)
    assert after.memory.step.squeeze(1).tolist() == pytest.approx([3.0, 1.0, 0.3, 2.0])
    assert after.memory.support.tolist() == [1] * 4
    assert after.memory.count.tolist() == [1] * 4
    assert after.delta.tolist() == [[2.0, 0.0]] + [[1.0, 1.0]] * 3


def test_steps_shrink_into_a_valley(generator):
    """Least at 0.37 with margin 0.01: steps of 2 radii jump over it, smaller ones come to it."""

    class Valley(nn.Module):
        def forward(self, x):
            return (x[:, 0] - 0.37).abs() + 0.01

    x, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([1])
    result = apgd(Valley(), x, y, ball=Ball("l2", 1.0), generator=generator)
    assert float(result.margin) < 0.02
    assert float(result.x_adv) == pytest.approx(0.37, abs=0.01)


def test_a_broken_point_leaves_and_a_misclassified_one_is_not_attacked(generator):
    seen = []

    class Counts(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x[:, 0]

    x = torch.tensor([[0.5], [3.0], [-1.0]], dtype=torch.float64)
    ball = Ball("l2", 1.0)
    result = apgd(Counts(), x, torch.ones(3), ball=ball, steps=6, generator=generator)
    assert seen[:9] == [3, 2, 2, 1, 1, 1, 1, 1, 3]  # all; both; both; the one that stands; verified
    assert result.name == ("apgd-margin", "", "clean")


def test_targets_reach_classes_that_the_runner_up_hides(generator):
    """The runner-up is flat, and its gradient leads nowhere; the third class is within reach."""
    w = torch.tensor([[0.0], [0.0], [10.0]], dtype=torch.float64)
    net = Several(w, torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64))
    x, y = torch.zeros(3, 1, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    settings = {"ball": Ball("linf", 0.3), "objective": "margin"}
    assert apgd(net, x, y, generator=generator, **settings).accuracy == 1.0
    result = apgd(net, x, y, targets=2, generator=generator, **settings)
    assert set(result.name) == {"apgd-margin-targeted"}
    assert apgd(net, x, y, targets=1, generator=generator, **settings).accuracy == 1.0


def test_later_restarts_are_random(generator):
    class Bump(nn.Module):
        """Flat around the origin: from zero there is nothing to climb."""

        def forward(self, x):
            return 1.0 - 3.0 * torch.relu(x[:, 0].abs() - 0.3)

    x, y = torch.zeros(20, 1, dtype=torch.float64), torch.ones(20)
    settings = {"ball": Ball("l2", 1.0), "generator": generator}
    assert apgd(Bump(), x, y, **settings).accuracy == 1.0
    assert apgd(Bump(), x, y, restarts=6, **settings).accuracy == 0.0


@pytest.mark.parametrize(
    ("norm", "box"),
    [("l1", None), ("l2", None), ("l1", (0.0, 1.0)), ("linf", (0.0, 1.0))],
)
def test_never_behind_pgd_at_the_same_budget(norm, box):
    """Over three networks, and all that PGD breaks is broken by APGD toward each class."""
    ours = theirs = 0
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        net, x, y = classes(generator, count=40, power=(1.0, 2.0, 3.0)[seed])
        ball = Ball(norm, 0.5 * RADII[norm], box)
        plain = pgd(net, x, y, ball=ball, steps=25, step=float(ball.radius) / 5)
        result = apgd(net, x, y, ball=ball, steps=25, generator=generator)
        thorough = apgd(
            net, x, y, ball=ball, steps=50, objective="dlr", targets=3, generator=generator
        )
        ours, theirs = ours + int(result.success.sum()), theirs + int(plain.success.sum())
        assert bool((thorough.success | ~plain.success).all())
        assert bool((thorough.success | ~result.success).all())
        assert 4 <= int(thorough.success.sum()) <= 38
    assert ours >= theirs


@pytest.mark.parametrize("norm", NORMS)
def test_as_strong_as_that_of_autoattack(norm, generator):
    net, x, y = classes(generator, count=40)
    settings = {"norm": norm, "radius": 0.5 * RADII[norm], "box": (0.0, 1.0)}
    theirs = auto_attack(net, x, y, version="apgd-t", generator=generator, **settings)
    ball = Ball(norm, 0.5 * RADII[norm], (0.0, 1.0))
    ours = apgd(net, x, y, ball=ball, objective="dlr", targets=3, generator=generator)
    assert 0.1 < theirs.accuracy < 0.9
    assert ours.accuracy <= theirs.accuracy


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_scaling_the_network_changes_nothing(objective, generator):
    """A hundredfold network saturates the cross-entropy in float32, but not its log-odds."""
    net, x, y = classes(generator, power=1.0)
    big = copy.deepcopy(net)
    with torch.no_grad():
        big.votes.mul_(128.0)
    settings = {"ball": Ball("l2", 0.15), "objective": objective, "steps": 30}
    small = apgd(net, x, y, generator=generator, **settings)
    large = apgd(big, x, y, generator=generator, **settings)
    assert 0.05 < small.accuracy < 0.95
    if objective != "cross-entropy":
        assert torch.equal(small.success, large.success)
    assert large.accuracy <= small.accuracy + 0.05
