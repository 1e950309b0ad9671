"""Everything that is tried against a certified ball.

`breaks` says which points it broke: random points of the ball and of its surface, projected
gradients by autograd on the network itself (which share no code with `extremal.attack`), and this
package's own attacks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from extremal.attack import Ball, linear_steps, run, shortest
from extremal.certify import radius
from extremal.models import float64_copy, is_shallow, output_margins

ORDER = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}
STARTS = 4  # inside the ball and on its surface, for each point
STEPS = (0.7, 0.5, 0.5, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1, 0.05)  # of ascent, in radii
INSIDE = 1.0 - 1e-12  # of the radius: what is tried is never outside of it by rounding
TOO_FAR = 1.011  # times the smallest attack: 0.992 of it, what is tried first, is broken


def breaks(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    radii: Tensor,
    *,
    norm: str = "l2",
    box=None,
    smallest: bool | Tensor = False,
    generator: torch.Generator,
) -> Tensor:
    """Which points (n,) lose their class within radii (n,); a radius of 0 claims nothing.

    With `smallest` also well inside, and the search for the smallest perturbation, which takes
    longest: its radii (n,) may be given where they are known.
    """
    assert bool((radii.isfinite() & (radii >= 0)).all())
    broken = torch.zeros(len(x), dtype=torch.bool)
    rows = torch.nonzero(radii > 0).squeeze(1)
    if len(rows) == 0:
        return broken
    x, y, radii = x[rows], y[rows], radii[rows]
    found = by_gradients(net, x, y, radii, norm, box, generator)
    if is_shallow(net):
        found |= run(net, x, y, norm=norm, radius=radii, box=box, generator=generator).success
    if smallest is not False:
        found |= linear_steps(net, x, y, ball=Ball(norm, 0.9 * radii, box)).success
        known = isinstance(smallest, Tensor)
        least = smallest[rows] if known else shortest(net, x, y, norm=norm, box=box).radius
        found |= least <= radii
    broken[rows] = found
    return broken


def by_gradients(net, x, y, radii, norm, box, generator) -> Tensor:
    """Samples and ascents from them in float64: whether any point met has no margin, (n,)."""
    net, n = float64_copy(net), len(x)
    x, y = x.double().repeat(2 * STARTS + 1, 1), y.repeat(2 * STARTS + 1)
    rho = INSIDE * radii.repeat(2 * STARTS + 1).unsqueeze(1)
    d = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    d = rho * d / _norms(d, norm)
    d[: STARTS * n] *= torch.rand(STARTS * n, 1, generator=generator, dtype=torch.float64)
    d[-n:] = 0.0
    broken = torch.zeros(len(x), dtype=torch.bool)
    for step in (*STEPS, 0.0):
        d = _inside(d, x, rho, norm, box).requires_grad_(True)
        margins = output_margins(net(x + d), y)
        broken |= margins <= 0
        (gradient,) = torch.autograd.grad(margins.sum(), d)
        d = d.detach() - step * rho * _steepest(gradient, norm)
    return broken.view(-1, n).any(0)


def from_too_far(
    net: nn.Module, x: Tensor, y: Tensor, every: int = 1, near: Tensor | None = None
) -> Tensor:
    """Tight radii (n,) in l2; for one point of `every` they begin beyond the smallest attack.

    There they must be refused. Begun below it, as they are without a hint, a bound that is a
    little too high would hardly be noticed. `near` are the nearest broken points, if known.
    """
    near = shortest(net, x, y).x_adv if near is None else near
    factor = torch.ones(len(x), 1, dtype=x.dtype)
    factor[::every] = TOO_FAR
    return radius(net, x, y, attacked=x + factor * (near - x))


def times(function: Callable[..., Tensor], factor: float) -> Callable[..., Tensor]:
    """A function whose every result is multiplied: what mutations are made of."""
    return lambda *args, **others: factor * function(*args, **others)


def _norms(d: Tensor, norm: str) -> Tensor:
    return torch.linalg.vector_norm(d, ORDER[norm], dim=1, keepdim=True).clamp(min=1e-300)


def _steepest(gradient: Tensor, norm: str) -> Tensor:
    """argmax of <gradient, d> over ||d|| <= 1, (n, dim)."""
    if norm == "l2":
        return gradient / _norms(gradient, norm)
    if norm == "linf":
        return gradient.sign()
    first = gradient.abs().argmax(1, keepdim=True)
    return torch.zeros_like(gradient).scatter(1, first, gradient.gather(1, first).sign())


def _inside(d: Tensor, x: Tensor, rho: Tensor, norm: str, box) -> Tensor:
    """d cut to the ball and the box; x lies in the box, so that its cut shortens d."""
    d = torch.maximum(torch.minimum(d, rho), -rho) if norm == "linf" else d
    d = d * (rho / _norms(d, norm)).clamp(max=1.0)
    if box is None:
        return d
    low, high = (torch.as_tensor(end, dtype=x.dtype) for end in box)
    return torch.minimum(torch.maximum(d, low - x), high - x)
