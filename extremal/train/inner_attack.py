"""The attack inside adversarial training, and the losses that use what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack import Ball
from extremal.data import Box
from extremal.models import HasInputGradient
from extremal.train.losses import Loss

# Where no step is given, all steps together are so many radii long.
_PATH_RADII = 2.5

Slope = Callable[[Tensor], Tensor]  # of outputs: the derivative of what is to rise


@dataclass(frozen=True)
class InnerAttack:
    """An attack of a few gradient steps, which each batch meets before it is learned from.

    d <- project(d + step g) onto the ball (and the box), `steps` times. With `ascent` "steepest" g
    is the direction of length 1 in the norm that the loss rises fastest along (the sign of its
    gradient in linf), and `step` its length; with "plain" g is the gradient of the sample's own
    loss as it is, and a step must be given.
    """

    norm: Literal["l1", "l2", "linf"]  # of perturbations
    radius: float  # of the ball in that norm, at least 0
    steps: int = 10  # how many steps are taken
    step: float | None = None  # the length of a step; None for 2.5 radius / steps
    ascent: Literal["steepest", "plain"] = "steepest"  # what a step goes along, see above
    start: Literal["zero", "random"] = "zero"  # 0, or a random point of the ball
    box: Box | None = None  # (low, high) that points stay in; None for none

    def __post_init__(self) -> None:
        _check.choice("norm", self.norm, ("l1", "l2", "linf"))
        _check.number("radius", self.radius, minimum=0.0)
        _check.integer("steps", self.steps, minimum=1)
        _check.choice("ascent", self.ascent, ("steepest", "plain"))
        _check.choice("start", self.start, ("zero", "random"))
        if self.step is not None:
            _check.number("step", self.step, above=0.0)
        Ball(self.norm, self.radius, self.box)  # refuses a bad box
        given = self.step is not None or self.ascent == "steepest"
        _check.require(given, "step", "be given for plain ascent", self.step)

    def perturbed(
        self,
        net: nn.Module,
        x: Tensor,
        slope: Slope,
        *,
        share: float = 1.0,
        start_radius_share: float = 0.0,
        generator: torch.Generator,
    ) -> Tensor:
        """x + d after the steps, for a function's slope in f(x).

        Arguments:

        - `net`: the network that is attacked.
        - `x`: points (n, dim) to perturb.
        - `slope`: the derivative of what is raised in the outputs f(x), as a function of these.
        - `share`: of the radius that the ball has, 1 by default; a warm-up uses less.
        - `start_radius_share`: of that radius within which a start at zero is drawn at random
          instead; 0 by default.
        - `generator`: a `torch.Generator`, the source of all random draws.
        """
        ball = Ball(self.norm, share * self.radius, self.box)
        length = self.step or _PATH_RADII * self.radius / self.steps
        delta = torch.zeros_like(x)
        first = 1.0 if self.start == "random" else start_radius_share
        if first > 0:
            near = Ball(self.norm, first * share * self.radius, self.box)
            delta = near.sample(x, generator=generator)
        for _ in range(self.steps):
            gradient = input_gradient(net, x + delta, slope)
            if self.ascent == "steepest":
                gradient = ball.steepest(ball.without_blocked(gradient, delta, x))
                gradient = gradient * share
            delta = ball.project(delta + length * gradient, x)
        return x + delta


def input_gradient(net: nn.Module, x: Tensor, slope: Slope) -> Tensor:
    """The gradient (n, dim) in x of a function of f(x), given its slope in the outputs.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `x`: points (n, dim), in the network's own dtype.
    - `slope`: a function of the outputs that returns the slope there, of their shape.
    """
    if isinstance(net, HasInputGradient):
        return net.input_gradient(x, slope)[1]
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        out = net(point)
        (gradient,) = torch.autograd.grad(out, point, slope(out.detach()))
    return gradient


def loss_slope(loss: Loss, y: Tensor) -> Slope:
    """The slope of each sample's own loss, whatever the reduction, as a function of the outputs.

    Arguments:

    - `loss`: a `Loss`; a name alone is not taken.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    """
    summed = Loss(loss.name, "sum", loss.function)
    return lambda out: summed.slope(out, y)


def divergence(clean: Tensor, moved: Tensor) -> Tensor:
    """KL(p(clean) || p(moved)) of each sample, (n,), p the softmax, or the logistic of one output.

    The second term of TRADES (Zhang et al. 2019).
    """
    if clean.ndim == 1:
        clean, moved = (torch.stack([-out, out], 1) * 0.5 for out in (clean, moved))
    first, second = clean.log_softmax(1), moved.log_softmax(1)
    return (first.exp() * (first - second)).sum(1)


def divergence_slope(clean: Tensor) -> Slope:
    """The slope of the divergence in the moved points' outputs."""

    def slope(out: Tensor) -> Tensor:
        with torch.enable_grad():
            point = out.detach().requires_grad_(True)
            (found,) = torch.autograd.grad(divergence(clean, point).sum(), point)
        return found

    return slope
