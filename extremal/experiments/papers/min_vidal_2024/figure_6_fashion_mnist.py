"""Figure 6 on Fashion-MNIST, of the same size and form: does it hold there, too?"""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_6 import experiment as figure_6

experiment = replace(
    figure_6,
    name="min-vidal-2024/figure-6-fashion-mnist",
    title="Figure 6 on Fashion-MNIST: classifying garments",
    source="ours, after Min & Vidal 2024, Figure 6",
    settings={
        **figure_6.settings,
        "dataset": Setting("fashion-mnist", "O", "the paper has MNIST"),
        "split": Setting("published", "O", "split as the authors split MNIST"),
        "seeds": Setting(3, "O", "the paper has 10 on MNIST"),
    },
    claims=tuple(
        replace(claim, source=f"ours; MNIST's {claim.source}") for claim in figure_6.claims
    ),
)
