"""The demo: the headline result on synthetic data, in about a minute, with no download."""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_2_learned_classifier import (
    experiment as figure_2,
)

_OURS = {
    "dim": 200,
    "spread": [0.1],
    "seeds": 1,
    "width": 300,
    "train_points": 2000,
    "training": "sgd",
    "flow_time": 1000.0,
    "test_points": 500,
    "attacked_points": 500,
    "recorded": 30,
    "radii": [round(0.05 * i, 2) for i in range(23)],
    "algorithm_1_starts": 100,
    "algorithm_1_steps": 500,
    "neurons_p1": 100,
    "neurons_p3": 30,
}

experiment = replace(
    figure_2,
    name="demo",
    title="ReLU neurons learn class averages and break; pReLU neurons learn centres and hold",
    source="after Min & Vidal 2024, Figure 2, at a size for a minute",
    settings={
        **figure_2.settings,
        **{
            name: Setting(value, "O", f"the paper's: {figure_2.settings[name].value}")
            for name, value in _OURS.items()
        },
    },
    panels=figure_2.panels[3:],
    quick={},
    smoke=figure_2.smoke,
    columns=3,
)
