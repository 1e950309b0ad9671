"""Figure 3 on Fashion-MNIST, of the same size and form: does it hold there, too?"""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_3 import experiment as figure_3

experiment = replace(
    figure_3,
    name="min-vidal-2024/figure-3-fashion-mnist",
    title="Figure 3 on Fashion-MNIST: class index even or odd",
    source="ours, after Min & Vidal 2024, Figure 3",
    settings={
        **figure_3.settings,
        "dataset": Setting("fashion-mnist", "O", "the paper has MNIST"),
        "split": Setting("published", "O", "split as the authors split MNIST"),
        "seeds": Setting(3, "O", "the paper has 10 on MNIST"),
    },
    claims=tuple(
        replace(claim, source=f"ours; MNIST's {claim.source}") for claim in figure_3.claims
    ),
)
