"""Pictures of what a representation keeps of a point: other points that it cannot tell from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Box, checked_box
from extremal.models import float64_copy, gap_gradient, input_dim, representations

# Adam's decay of the mean of gradients, which are divided by their norm before.
_MEAN_DECAY = 0.9
# Adam's decay of the mean of their squares.
_SQUARE_DECAY = 0.999
# What Adam adds to the root of that mean.
_ADAM_EPS = 1e-12
# How many gaps are kept on the way.
_RECORDED_GAPS = 20


@dataclass(frozen=True, eq=False)
class Inversion:
    """Points x' that a representation G hardly tells from given points x, and how nearly.

    Gaps are ||G(x') - G(x)|| / ||G(x)|| in float64 (not divided where G(x) = 0), `start` that of
    the noise begun with. A point has `converged` where its gap is at most `tolerance`: where it is
    not, x' shows what the search found and not what G keeps.
    """

    x: Tensor  # (n, dim), of least gap among those met
    gap: Tensor  # (n,)
    start: Tensor  # (n,)
    steps: Tensor  # (records,): after which the gaps of `path` were
    path: Tensor  # (records, n)
    tolerance: float

    @property
    def converged(self) -> Tensor:
        """(n,) bool."""
        return self.gap <= self.tolerance

    def report(self) -> str:
        """The convergence in one line."""
        share = float(self.converged.double().mean())
        return (
            f"{share:.0%} of {len(self.gap)} points within {self.tolerance:g} after "
            f"{int(self.steps[-1])} steps; gaps fell from {float(self.start.median()):.3g} to "
            f"{float(self.gap.median()):.3g} (median), {float(self.gap.max()):.3g} (largest)"
        )


def invert(
    represent: nn.Module,
    x: Tensor,
    *,
    steps: int = 500,
    lr: float = 0.05,
    box: Box | None = None,
    tolerance: float = 0.05,
    generator: torch.Generator,
) -> Inversion:
    """Minimise ||G(x') - G(x)||_2 over x' from noise, for each point of x (n, dim) on its own.

    Li & Li 2025, after Ilyas et al. 2019: with G the `models.Representation` of a network trained
    as usual x' shows the non-robust features of x, of one trained adversarially the robust ones.
    The steps are Adam's on gradients of length 1, with sizes that fall evenly to zero, each
    followed by a projection onto the box; noise is uniform in the box, or N(0, 1) where there is
    none. The choices of start, steps and tolerance are ours.

    Arguments:

    - `represent`: G, any `nn.Module` from points (n, dim) to representations (n, width).
    - `x`: points (n, dim), in the network's own dtype.
    - `steps`: how many steps of Adam are taken, at least 1.
    - `lr`: the size of the first step, 0.05 by default.
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `tolerance`: the largest relative gap that counts as converged; it does not change the search.
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    _check.matrix("x", x, columns=input_dim(represent))
    if box is not None:
        box = checked_box(box, x)
    total = _check.integer("steps", steps, minimum=1)
    rate = _check.number("lr", lr, above=0.0)
    _check.number("tolerance", tolerance, above=0.0)
    _check.generator("generator", generator)
    wanted = representations(represent, x)
    at = _noise(x, box, generator)
    scale = torch.linalg.vector_norm(wanted.double(), dim=1)
    scale = torch.where(scale > 0, scale, 1.0)
    mean, square = torch.zeros_like(x), torch.zeros_like(x)
    best, least = at, torch.full_like(wanted[:, 0], torch.inf)
    every, recorded = max(1, total // _RECORDED_GAPS), []
    for step in range(total):
        gap, gradient = gap_gradient(represent, at, wanted)
        best = torch.where((gap < least).unsqueeze(1), at, best)
        least = torch.minimum(gap, least)
        if step % every == 0:
            recorded.append((step, least.double() / scale))
        unit = unit_rows(gradient)
        mean = _MEAN_DECAY * mean + (1 - _MEAN_DECAY) * unit
        square = _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * unit.square()
        size = rate * (1 - step / total) / (1 - _MEAN_DECAY ** (step + 1))
        root = (square / (1 - _SQUARE_DECAY ** (step + 1))).sqrt()
        at = _clamped_to(box, at - size * mean / (root + _ADAM_EPS))
    gap = _gaps(represent, at, wanted)
    best = torch.where((gap <= least).unsqueeze(1), at, best)
    final = _gaps(
        float64_copy(represent), best.double(), representations(float64_copy(represent), x.double())
    )
    recorded.append((total, torch.minimum(gap, least).double() / scale))
    taken, path = zip(*recorded, strict=True)
    return Inversion(
        best, final / scale, path[0], torch.tensor(taken), torch.stack(path), tolerance
    )


def _noise(x: Tensor, box: Box | None, generator: torch.Generator) -> Tensor:
    """Where the search begins, (n, dim)."""
    if box is None:
        drawn = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return drawn.to(x)
    low, high = (torch.as_tensor(end, dtype=torch.float64) for end in box)
    drawn = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    return (low + drawn * (high - low)).to(x)


def _clamped_to(box: Box | None, x: Tensor) -> Tensor:
    if box is None:
        return x
    low, high = (torch.as_tensor(end).to(x) for end in box)
    return x.clamp(low, high)


def _gaps(represent: nn.Module, x: Tensor, wanted: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.linalg.vector_norm(represent(x) - wanted, dim=1)
