"""Bad input is a ValueError that names the parameter, before any work is done."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import (
    Ball,
    accuracy_curve,
    center_directions,
    mixture_attack,
    pgd,
    ray_attack,
    run,
    verified,
    worst,
)
from extremal.data import Dataset, OrthonormalMixture
from tests.attack.networks import linear

NET = linear([1.0, 1.0], 0.0)
X = torch.ones(3, 2, dtype=torch.float64)
Y = torch.ones(3, dtype=torch.int64)
MIX = OrthonormalMixture(2, 1, 1, 0.0)
BALL = Ball("l2", 1.0)
BOXED = Ball("l2", 1.0, (0.0, 0.5))
GROUP = torch.zeros(3, dtype=torch.int64)
DATA = Dataset(X, Y)
SEED = torch.Generator()
NAN = torch.tensor([[torch.nan, 0.0]] * 3, dtype=torch.float64)
LOW, HIGH = torch.zeros(2), torch.ones(2)

TABLE = {
    "norm": lambda: Ball("l3", 1.0),
    "radius must be a finite number >= 0, got -1": lambda: Ball("l2", -1.0),
    "radius must be a finite number >= 0, got nan": lambda: Ball("l2", float("nan")),
    "radius must be a finite number >= 0, got 'big'": lambda: Ball("l2", "big"),
    "radius must be a number or a floating": lambda: Ball("l2", torch.ones(2, 1)),
    "radius must be finite": lambda: Ball("l2", torch.tensor([1.0, torch.inf])),
    "radius .* smallest -1": lambda: Ball("l2", torch.tensor([1.0, -1.0])),
    "radius must have one entry": lambda: Ball("l2", torch.ones(2)).project(X, X),
    "box must have low < high": lambda: Ball("l2", 1.0, (1.0, 1.0)),
    "box must have low <= high": lambda: Ball("l2", 1.0, (HIGH, LOW)),
    "box must be a pair": lambda: Ball("l2", 1.0, (0.0, 1.0, 2.0)),
    "box must be a pair .*, got 1": lambda: Ball("l2", 1.0, 1.0),
    "box must be a pair .*tensor": lambda: Ball("l2", 1.0, (0.0, HIGH)),
    "box must be a finite number": lambda: Ball("l2", 1.0, (0.0, float("inf"))),
    "box must be finite": lambda: Ball("l2", 1.0, (LOW, HIGH / 0)),
    "box must have one entry": lambda: Ball("l2", 1.0, (LOW, HIGH)).project(X[:, :1], X[:, :1]),
    "x must lie in the box": lambda: BOXED.project(X, X),
    "x must lie in the box, got": lambda: BOXED.sample(X, generator=SEED),
    "x must lie in the box, got coord": lambda: BOXED.linear_maximum(X, X),
    "delta must be a floating.*shape": lambda: BALL.project(X[:2], X),
    "delta must be a floating.*float32": lambda: BALL.project(X.float(), X),
    "delta must be finite": lambda: BALL.project(NAN, X),
    "gradient must be finite": lambda: BALL.linear_maximum(NAN, X),
    "generator must be a torch.Gen": lambda: BALL.sample(X, generator=0),
    "x_adv must be like x": lambda: verified(NET, X, Y, X[:1], BALL, "a"),
    "x_adv must be like x, ": lambda: verified(NET, X, Y, X.float(), BALL, "a"),
    "x must be finite": lambda: verified(NET, NAN, Y, X, BALL, "a"),
    "x must be a floating": lambda: verified(NET, X[0], Y, X[0], BALL, "a"),
    "y must have shape": lambda: verified(NET, X, Y[:2], X, BALL, "a"),
    "y must be -1 or": lambda: verified(NET, X, 3 * Y, X, BALL, "a"),
    "results must hold": lambda: worst([]),
    "results must be of the same points": lambda: worst(
        [verified(NET, X[:n], Y[:n], X[:n], BALL, "a") for n in (1, 2)]
    ),
    "net must be a torch.nn.Module, got int": lambda: run(3, X, Y, radius=1.0, generator=SEED),
    "net must be a torch.nn.Module, got str": lambda: pgd("a", X, Y, ball=BALL, steps=1, step=0.1),
    "net must be a torch.nn.Module, got f": lambda: ray_attack(NET.forward.__func__, X, Y, X, BALL),
    "net must be a torch.nn.Module, got N": lambda: verified(None, X, Y, X, BALL, "a"),
    "net must be a torch.nn.Module, got t": lambda: mixture_attack((), X, Y, MIX, GROUP, BALL),
    "net must be a torch.nn.Module": lambda: accuracy_curve(3, DATA, [1.0], generator=SEED),
    "data must be a Dataset, got Tensor": lambda: accuracy_curve(NET, X, [1.0], generator=SEED),
    "radii must be a sequence": lambda: accuracy_curve(NET, DATA, 1.0, generator=SEED),
    "ball must be a Ball, got float": lambda: pgd(NET, X, Y, ball=1.0, steps=1, step=0.1),
    "ball must be a Ball, got str": lambda: ray_attack(NET, X, Y, X, "l2"),
    "ball must be a Ball, got int": lambda: verified(NET, X, Y, X, 1, "a"),
    "x must be a floating.*list": lambda: run(NET, [[1.0, 1.0]], Y, radius=1.0, generator=SEED),
    "fractions must be a sequence": lambda: ray_attack(NET, X, Y, X, BALL, fractions=1.0),
    "directions must be a tensor": lambda: ray_attack(NET, X, Y, 3, BALL),
    "mixture must be GaussianClusters.* int": lambda: mixture_attack(NET, X, Y, 3, None, BALL),
    "mixture must be GaussianClusters.* str": lambda: center_directions("mix", GROUP),
    "group must have one .* 3": lambda: run(
        NET, X, Y, radius=1.0, mixture=MIX, group=3, generator=SEED
    ),
    "steps must be an integer >= 1": lambda: pgd(NET, X, Y, ball=BALL, steps=0, step=0.1),
    "step must be a finite": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=-0.1),
    "step must be a number": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=torch.ones(2)),
    "step .* smallest": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=-torch.ones(3)),
    "start must be one of": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=0.1, start="far"),
    "generator must": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=0.1, start="random"),
    "batch must be": lambda: pgd(NET, X, Y, ball=BALL, steps=1, step=0.1, batch=0),
    "directions must be floating.*shape": lambda: ray_attack(NET, X, Y, torch.ones(3), BALL),
    "directions must be finite": lambda: ray_attack(NET, X, Y, [NAN], BALL),
    "directions .* int": lambda: ray_attack(NET, X, Y, [1], BALL),
    "fractions must be": lambda: ray_attack(NET, X, Y, X, BALL, fractions=(1.5,)),
    "fractions must hold": lambda: ray_attack(NET, X, Y, X, BALL, fractions=()),
    "group must be an integer": lambda: center_directions(MIX, torch.tensor([2])),
    "group must be an integer .*float": lambda: center_directions(MIX, torch.tensor([1.0])),
    "group must hold each point": lambda: mixture_attack(NET, X, Y, MIX, GROUP + 1, BALL),
    "group must hold each": lambda: mixture_attack(NET, X, Y, MIX, GROUP[:2], BALL),
    "y must be -1 or .1 with a mixture": lambda: mixture_attack(NET, X, 2 * Y, MIX, GROUP, BALL),
    "generator must be": lambda: run(NET, X, Y, radius=1.0, generator=None),
    "mixture must be": lambda: run(NET, X, Y, radius=1.0, mixture=3, generator=SEED),
    "group must come": lambda: run(NET, X, Y, radius=1.0, group=GROUP, generator=SEED),
    "group must have one": lambda: run(
        NET, X, Y, radius=1.0, mixture=MIX, group=GROUP[:1], generator=SEED
    ),
    "x must lie in the": lambda: run(NET, X, Y, radius=1.0, box=(0.0, 0.5), generator=SEED),
    "radii must be": lambda: accuracy_curve(NET, Dataset(X, Y), [-1.0], generator=SEED),
    "radii must hold": lambda: accuracy_curve(NET, Dataset(X, Y), [], generator=SEED),
    "norm must be one": lambda: accuracy_curve(
        NET, Dataset(X, Y), [1.0], norm="l0", generator=SEED
    ),
}


@pytest.mark.parametrize("said", TABLE)
def test_bad_input_is_named(said):
    with pytest.raises(ValueError, match=said):
        TABLE[said]()


def test_no_points_at_all_are_in_every_box():
    """As when none is left of a batch; the largest entry of nothing was an error once."""
    low, high = Ball("l2", 0.5, (0.0, 1.0)).bounds(torch.zeros(0, 3))
    assert low.shape == high.shape == (0, 3)
