"""The plane of two centres: what the network says on it, and how near a point is to the edge."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import attack, certify
from extremal.models import float64_copy
from extremal.web.answer_pool import Deadline
from extremal.web.playground_settings import REACH, Probe
from extremal.web.playground_training import Trained

SIDE = 61  # points of the grid along an axis


@dataclass(frozen=True, eq=False)
class Regions:
    """The network's values on the plane and what was found around a point of it.

    `values` (SIDE, SIDE) has `up` along its rows. The attack need not stay in the plane: `landed`
    is where it ends as seen in it, `aside` how far from it.
    """

    probe: Probe
    axis: Tensor  # (SIDE,)
    values: Tensor  # (SIDE, SIDE)
    sign: int  # the class of the point, by the network; 0 where it is undecided
    radius: float  # of the smallest attack that was found; inf where none was
    landed: tuple[float, float] | None
    aside: float
    certified: float


def regions(trained: Trained, probe: Probe, deadline: Deadline) -> Regions:
    """The grid, the smallest attack on the point, and its certified radius ("tight")."""
    probe.check(trained.setup)
    rows = trained.mixture.centers[[probe.first - 1, probe.second - 1]]  # (2, dim) float64
    axis = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    up, across = torch.meshgrid(axis, axis, indexing="ij")
    twin = float64_copy(trained.net)
    with torch.no_grad():
        values = twin(torch.stack([across, up], -1).reshape(-1, 2) @ rows).reshape(SIDE, SIDE)
        point = torch.tensor([[probe.across, probe.up]], dtype=torch.float64) @ rows
        sign = int(twin(point).sign())
    if sign == 0:
        return Regions(probe, axis, values, 0, 0.0, None, 0.0, 0.0)
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
    return Regions(probe, axis, values, sign, radius, landed, aside, float(certified))
