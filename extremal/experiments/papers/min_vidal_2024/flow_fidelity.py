"""Our gradient flow beside the paper's SGD, at the paper's size: is it the same training?"""

from dataclasses import replace

from extremal.experiments import Claim, Line, Setting
from extremal.experiments.papers.min_vidal_2024.figure_2_learned_classifier import (
    experiment as figure_2,
)

_OURS = {
    "spread": (0.1, "the network of the paper's panels b-e"),
    "seeds": (5, "the same data and first weights for both trainings"),
    "training": (["sgd", "flow"], "the paper's SGD, and gradient flow for the same time"),
    "attacked_points": (500, "of the test points, each seed"),
    "recorded": (13, "times at which the loss is kept"),
    "algorithm_1_starts": (0, "not run here"),
    "algorithm_1_steps": (500, "not run here"),
    "pgd_steps": (0, "PGD alone is not run here"),
    "radii": (
        [0.0, 0.2, 0.25, 0.275, 0.3, 0.325, 0.35, 0.4, 0.5, 0.6, 0.65, 0.675, 0.7, 0.725, 0.75],
        "closer where accuracy falls",
    ),
}
_QUANTITIES = {
    "dist(f, F)": "distance",
    "loss at the end": "loss",
    "mean cosine of dominant neurons": "mean_cosine",
    "lowest cosine of dominant neurons": "lowest_cosine",
    "radius where accuracy is 1/2": "half_radius",
}


def _claim(p: float, quantity: str, value: str) -> Claim:
    return Claim(
        f"p = {p:g}: {quantity}",
        value,
        {"p": p, "training": "sgd"},
        0.0,
        "our 5 runs of the paper's SGD: their mean and spread",
        {"p": p, "training": "flow"},
    )


def _panels(p: float) -> tuple[Line, Line]:
    by, where, at = "training", {"p": p}, f"p = {p:g}"
    return (
        Line(f"{at}: loss", "times", ("losses",), "flow time", "loss", by, where, log="xy"),
        Line(f"{at}: attacked", "radius", ("robust_accuracy",), "radius", "accuracy", by, where),
    )


_small = {"spread": 0.1, "training": ["sgd", "flow"], "recorded": 13}
experiment = replace(
    figure_2,
    name="min-vidal-2024/flow-fidelity",
    title="Gradient flow beside the paper's SGD: the same networks?",
    source="ours, after Min & Vidal 2024, Section 5.1",
    version=3,
    settings={
        **{name: setting for name, setting in figure_2.settings.items() if name != "bracket"},
        **{name: Setting(value, "O", note) for name, (value, note) in _OURS.items()},
    },
    quick={
        **{key: v for key, v in figure_2.quick.items() if not key.startswith("algorithm")},
        **_small,
        "seeds": 5,
        "pgd_steps": 0,
    },
    smoke={
        **{key: v for key, v in figure_2.smoke.items() if not key.startswith("algorithm")},
        **_small,
        "pgd_steps": 0,
    },
    axes=("p", "training"),
    columns=2,
    panels=_panels(1.0) + _panels(3.0),
    claims=tuple(
        _claim(p, quantity, value) for p in (1.0, 3.0) for quantity, value in _QUANTITIES.items()
    ),
    notes=(
        "A row agrees where the mean over the flow's runs lies within the range of the SGD runs. "
        "Data and first weights are the same for both trainings of a seed."
    ),
)
