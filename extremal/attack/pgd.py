"""Projected gradient descent on the margin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack.ball import Ball
from extremal.attack.recheck import BATCH, batches, check_ball, check_points, verified
from extremal.attack.result import AttackResult
from extremal.models import PReLUNet, double, margin, margin_gradient

_SEARCH_TOLERANCE = 1e-7  # about the rounding of a search in float32


def pgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    steps: int,
    step: float | Tensor,
    start: str = "zero",
    generator: torch.Generator | None = None,
    batch: int = BATCH,
) -> AttackResult:
    """Attack by projected gradient descent on the margin m, in the norm of the ball.

    d <- project(d + step * steepest(-grad m(x + d))), `steps` times, from d = 0 or from a random
    point of the ball (`start` is "zero" or "random", which needs a generator); `step` is a length
    in the ball's norm, a number or (n,). Coordinates that the box blocks are left out of the
    gradient. The iterate of least margin is returned, and verified. A point leaves the batch once
    it is broken, or once it stands still, as where the gradient is zero.
    """
    y = check_points(net, x, y)
    check_ball(ball)
    _check.integer("steps", steps, minimum=1)
    _check.choice("start", start, ("zero", "random"))
    _check.integer("batch", batch, minimum=1)
    if start == "random":
        _check.generator("generator", generator)
    lengths = _lengths(step, x)
    twin = search_copy(net, x)
    x_adv = torch.empty_like(x)
    for rows in batches(len(x), batch):
        part, inner = x[rows], ball.take(rows)
        delta = torch.zeros_like(part)
        if start == "random":
            assert generator is not None
            delta = inner.sample(part, generator=generator)
        least = _descend(twin, _Active(part, y[rows], inner, delta, lengths[rows]), steps)
        x_adv[rows] = inner.land(least, part)
    return verified(net, x, y, x_adv, ball, f"pgd-{start}")


def published_pgd(
    net: nn.Module, x: Tensor, y: Tensor, *, radius: float | Tensor, batch: int = BATCH
) -> AttackResult:
    """The attack of Min & Vidal 2024, Figure 2e: l2, no box, 2000 steps of 0.1, start at zero.

    The settings are those of the authors' published code.
    """
    return pgd(net, x, y, ball=Ball("l2", radius), steps=2000, step=0.1, batch=batch)


def search_copy(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy of the network to search with: evaluation mode, the points' dtype.

    Of a shallow network without hidden biases it has the effective neurons only, which are few
    after training from a small start. What the search finds is verified on the network itself.
    """
    if isinstance(net, PReLUNet) and net.hidden_bias is None:
        net = net.effective(_SEARCH_TOLERANCE)
    return double(net).to(x.dtype)


def clearly_broken(start: Tensor) -> Tensor:
    """The margin below which a search may stop, -sqrt(eps) |start|, (n,).

    A margin of zero up to the rounding of the search may turn out positive in float64.
    """
    share: float = torch.finfo(start.dtype).eps ** 0.5
    return -share * start.abs()


@dataclass(frozen=True)
class _Active:
    """The points of a batch that are still being attacked."""

    x: Tensor
    y: Tensor
    ball: Ball
    delta: Tensor
    length: Tensor  # (n, 1)

    def moved(self, delta: Tensor, keep: Tensor) -> _Active:
        if bool(keep.all()):
            return _Active(self.x, self.y, self.ball, delta, self.length)
        ball = self.ball.take(keep)
        return _Active(self.x[keep], self.y[keep], ball, delta[keep], self.length[keep])


def _descend(net: nn.Module, now: _Active, steps: int) -> Tensor:
    """The perturbations (n, dim) of least margin along the descent."""
    best = now.delta.clone()
    lowest = torch.full_like(now.x[:, 0], torch.inf)
    rows = torch.arange(len(best), device=best.device)
    enough = None
    for _ in range(steps):
        value, gradient = margin_gradient(net, now.x + now.delta, now.y)
        enough = clearly_broken(value) if enough is None else enough
        _note(best, lowest, rows, value, now.delta)
        delta = _step(now, gradient)
        keep = (value > enough) & (delta != now.delta).any(1)
        if not bool(keep.any()):
            return best
        now, rows, enough = now.moved(delta, keep), rows[keep], enough[keep]
    with torch.no_grad():
        _note(best, lowest, rows, margin(net, now.x + now.delta, now.y), now.delta)
    return best


def _step(now: _Active, gradient: Tensor) -> Tensor:
    downward = -torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
    open_part = now.ball.unblocked(downward, now.delta, now.x)
    return now.ball.project(now.delta + now.length * now.ball.steepest(open_part), now.x)


def _note(best: Tensor, lowest: Tensor, rows: Tensor, value: Tensor, delta: Tensor) -> None:
    """Keep the perturbations whose margin is less than any before, in place."""
    better = value < lowest[rows]
    lowest[rows[better]] = value[better]
    best[rows[better]] = delta[better]


def _lengths(step: float | Tensor, x: Tensor) -> Tensor:
    if not isinstance(step, Tensor):
        length = _check.number("step", step, minimum=0.0)
        return torch.full_like(x[:, :1], length)
    rule = f"be a number or a tensor of shape ({len(x)},), finite and >= 0"
    shaped = tuple(step.shape) == (len(x),)
    _check.require(shaped, "step", rule, f"shape {tuple(step.shape)}")
    _check.finite("step", step)
    _check.require(bool((step >= 0).all()), "step", rule, f"smallest {float(step.min()):g}")
    return step.to(x).unsqueeze(1)
