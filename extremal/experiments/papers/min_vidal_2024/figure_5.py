"""Figure 5: the experiment of Figure 2 with K = 20 subclasses, 8 of them positive."""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_2_learned_classifier import (
    experiment as figure_2,
)
from extremal.experiments.papers.min_vidal_2024.figure_2_learned_classifier import radii

experiment = replace(
    figure_2,
    name="min-vidal-2024/figure-5",
    title="Figure 5: which classifier small-initialisation training learns (K = 20)",
    source="Min & Vidal 2024, Figure 5 and Appendix A.2",
    settings={
        **figure_2.settings,
        "positive": Setting(8, "S", "K1, Appendix A.2"),
        "negative": Setting(12, "S", "K - K1, Appendix A.2"),
        "radii": replace(figure_2.settings["radii"], value=radii(8, 12)),
    },
    quick={**figure_2.quick, "flow_time": 2000.0},
    smoke={**figure_2.smoke, "positive": 2, "negative": 3},
)
