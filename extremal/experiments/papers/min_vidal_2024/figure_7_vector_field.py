"""Figure 7: the field x^(p)(w) between two positive centres in the plane, for p = 1, 2, 3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from extremal import theory
from extremal.experiments import Experiment, PointSet, Scene, Setting
from extremal.experiments.trial import Outcome


def _scene(p: float) -> Scene:
    return Scene(
        f"p = {p:g}",
        (
            PointSet("centers", "subclass centres", "rays", colour="positive"),
            PointSet("average", "class average", "rays", colour="accent"),
            PointSet("neurons", "direction of x^(p)(w) at w", "arrows", "pull", "neutral"),
        ),
        {"p": p},
    )


figure_7 = Experiment(
    name="min-vidal-2024/figure-7",
    title="Figure 7: where neurons between two centres are pulled",
    source="Min & Vidal 2024, Figure 7 and Appendix D.1",
    study="extremal.experiments.studies.plane:plane",
    settings={
        "p": Setting([1.0, 2.0, 3.0], "S", "Appendix D.1"),
        "neurons": Setting(15, "O", "evenly spaced between the two centres"),
        "seeds": Setting(1, "O", "nothing is random"),
    },
    smoke={"neurons": 5},
    axes=("p",),
    columns=3,
    panels=(_scene(1.0), _scene(2.0), _scene(3.0)),
    notes=(
        "Equations 52 to 54 in pictures: the field points along the average for p = 1, along w for "
        "p = 2 and toward the nearer centre for p = 3. These are closed forms, which tests hold."
    ),
)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
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
