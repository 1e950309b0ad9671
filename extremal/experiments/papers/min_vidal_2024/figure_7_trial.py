"""The field x^(p)(w) around two centres in the plane (Figure 7)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from extremal import theory
from extremal.experiments.trial import Outcome


def plane(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Where positive neurons between two positive centres are pulled, for one p.

    Nothing here is random. `turn` is the angle from each neuron to the field at it, positive
    toward the nearer centre; neurons on the diagonal are left out of it, since both are as near.
    """
    del generator
    centers = torch.eye(2, dtype=torch.float64)
    labels = torch.ones(2, dtype=torch.int64)
    angles = torch.linspace(0.0, math.pi / 2, params["neurons"] + 2, dtype=torch.float64)[1:-1]
    neurons = torch.stack([angles.cos(), angles.sin()], dim=1)
    pull = theory.field(neurons, centers, labels, params["p"])
    toward = torch.atan2(pull[:, 1], pull[:, 0])
    off_diagonal = (angles - math.pi / 4).abs() > 1e-9
    outward = torch.sign(angles - math.pi / 4)  # away from the diagonal is toward a centre
    turn = ((toward - angles) * outward)[off_diagonal]
    return Outcome(
        {
            "angle_from_average": float((toward - math.pi / 4).abs().max()),
            "largest_turn": float(turn.max()),
            "smallest_turn": float(turn.min()),
        },
        {
            "neurons": neurons.float(),
            "pull": (0.35 * pull / pull.norm(dim=1, keepdim=True)).float(),
            "centers": centers.float(),
            "average": torch.full((1, 2), math.sqrt(0.5)),
        },
    )
