"""AutoAttack, by the optional package pyautoattack, on vectors, one logit and any box."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import batches
from extremal.attack.adapters.unit_box import UnitBox, class_labels, global_seed, optional_library
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    CLEAN_NAME,
    AttackResult,
    check_points,
    verified,
)
from extremal.attack.ball import Ball
from extremal.data import Box

# The parts of the standard version, by their names there.
_STANDARD_PARTS = ("apgd-ce", "apgd-t", "fab-t", "square")
# The parts of each version; a part alone is a version too.
_PARTS_OF_VERSION = {
    "standard": _STANDARD_PARTS,
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    **{part: (part,) for part in (*_STANDARD_PARTS, "apgd-dlr", "fab")},
}
# Their names of the norms.
_THEIR_NORMS = {"l1": "L1", "l2": "L2", "linf": "Linf"}
# The targeted DLR loss needs so many logits.
_LEAST_LOGITS = 4
# Their l1 attack begins in a ball of so many times the radius.
_L1_REACH_RADII = 3.0
# Their Square Attack takes images of at least so many pixels a side.
_LEAST_IMAGE_SIDE = 5


def auto_attack(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    radius: float,
    box: Box | None = None,
    version: str = "standard",
    queries: int = 5000,
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by AutoAttack (Croce & Hein 2020) as pyautoattack has it, and verify what it finds.

    Points are searched in float32 in their `UnitBox` in [0, 1]; a one-output network has two
    logits. Under four logits, constant very low ones are added for the DLR loss, and targets are
    the true ones: no part is left out. The Square Attack, which wants images, gets the coordinates
    as a square with a border.

    Needs `pip install extremal[autoattack]`.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `radius`: of the ball, one number above 0.
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `version`: "standard" (the default: APGD on the cross-entropy, targeted APGD on DLR, targeted
      FAB, Square), "plus", or the name of one part.
    - `queries`: of the Square Attack for each point, 5000 by default.
    - `generator`: a `torch.Generator`, the source of all random draws.
    - `batch`: points that meet all parts before the next ones come, 1024 by default.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    ball = Ball(norm, _check.number("radius", radius, above=0.0), box)
    _check.choice("version", version, _PARTS_OF_VERSION)
    _check.integer("queries", queries, minimum=1)
    _check.integer("batch", batch, minimum=1)
    _check.generator("generator", generator)
    library = optional_library("pyautoattack", "auto_attack", "autoattack")
    result = verified(net, x, y, x, ball, CLEAN_NAME)
    rows = torch.nonzero(~result.success).squeeze(1)
    if len(rows) == 0:
        return result
    part = x[rows]
    frame = UnitBox.around(part, ball, (_L1_REACH_RADII if norm == "l1" else 1.0) * radius)
    u, labels = frame.inward(part, torch.float32), class_labels(y[rows])
    model, classes = _padded(frame.network(net, torch.float32), u)
    attacker = _Attacker(library, norm, radius / frame.width, version, classes, queries, batch)
    moved, clean = torch.empty_like(u), len(x) - len(rows)
    with Bar("autoattack", len(x), progress) as bar:
        for at in batches(len(u), batch):
            moved[at] = attacker.search(model, u[at], labels[at], generator)
            bar.done(clean + at.stop)
    x_adv = ball.rounded_points(frame.outward(moved, u, part, ball), part)
    found = verified(net, part, y[rows], x_adv, ball, f"autoattack-{version}")
    return result.merged(rows, found)


@dataclass(frozen=True)
class _Attacker:
    """The settings of their attack, in the frame's units."""

    library: Any
    norm: str
    radius: float
    version: str
    classes: int
    queries: int
    batch: int

    def search(self, net: nn.Module, u: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
        """What the parts find, (n, dim): the Square Attack on images, all others on vectors."""
        moved = u
        plain = [part for part in _PARTS_OF_VERSION[self.version] if part != "square"]
        if plain:
            moved = self._run(plain, net, u[:, None, None, :], y, g)
        if "square" not in _PARTS_OF_VERSION[self.version]:
            return moved
        with torch.no_grad():
            rows = torch.nonzero(net(moved).argmax(1) == y).squeeze(1)
        if len(rows) == 0:
            return moved
        image = _Image(net, u.shape[1])
        found = self._run(["square"], image, image.drawn(u[rows]), y[rows], g)
        return moved.index_copy(0, rows, image.read(found))

    def _run(
        self, parts: list[str], net: nn.Module, u: Tensor, y: Tensor, g: torch.Generator
    ) -> Tensor:
        version = "plus" if self.version == "plus" else "standard"
        with global_seed(g) as seed, _tracing_kept():
            theirs = self.library.AutoAttack(
                net,
                norm=_THEIR_NORMS[self.norm],
                eps=self.radius,
                seed=seed,
                device=u.device,
                version=version,
            )
            theirs.attacks_to_run = parts
            theirs.square.n_queries = self.queries
            for part in (theirs.fab, theirs.apgd_targeted):
                part.n_target_classes = min(part.n_target_classes, self.classes - 1)
            found: Tensor = theirs.run_standard_evaluation(u, y, batch_size=self.batch)[0]
        return found.flatten(1)


class _Padded(nn.Module):
    """A network with constant logits beside its own."""

    def __init__(self, net: nn.Module, count: int, value: float) -> None:
        super().__init__()
        self.net, self.count, self.value = net, count, value

    def forward(self, u: Tensor) -> Tensor:
        out = self.net(u)
        return torch.cat([out, out.new_full((len(out), self.count), self.value)], dim=1)


def _padded(model: nn.Module, u: Tensor) -> tuple[nn.Module, int]:
    """The network with four logits or more, and how many of them are true ones."""
    with torch.no_grad():
        out = model(u)
    classes = out.shape[1]
    if classes >= _LEAST_LOGITS:
        return model, classes
    # Far below any output, so that DLR's denominator is nearly constant and no target is false.
    value = -1000.0 * max(1.0, float(out.abs().max()))
    return _Padded(model, _LEAST_LOGITS - classes, value), classes


class _Image(nn.Module):
    """Vectors drawn as (1, side, side) images for the Square Attack.

    Its windows never reach the last row and column: those are a border without coordinates.
    """

    def __init__(self, net: nn.Module, dim: int) -> None:
        super().__init__()
        inner = max(_LEAST_IMAGE_SIDE - 1, math.isqrt(dim - 1) + 1)
        self.net, self.side = net, inner + 1
        place = torch.arange(dim)
        self.register_buffer("places", place // inner * self.side + place % inner)

    places: Tensor

    def drawn(self, u: Tensor) -> Tensor:
        """Points (n, dim) as images."""
        blank = u.new_full((len(u), self.side**2), 0.5)
        places = self.places.to(u.device)
        return blank.index_copy(1, places, u).reshape(-1, 1, self.side, self.side)

    def read(self, image: Tensor) -> Tensor:
        """Images, in any shape, as points (n, dim)."""
        return image.flatten(1).index_select(1, self.places.to(image.device))

    def forward(self, image: Tensor) -> Tensor:
        return self.net(self.read(image))


@contextmanager
def _tracing_kept() -> Iterator[None]:
    """Their check for defences with gradients inside switches a debugger's tracing off."""
    trace = sys.gettrace()
    try:
        yield
    finally:
        sys.settrace(trace)
