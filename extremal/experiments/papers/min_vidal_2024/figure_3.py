"""Figure 3: whether an MNIST digit is even or odd; digits are the subclasses."""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_6 import experiment as figure_6

experiment = replace(
    figure_6,
    name="min-vidal-2024/figure-3",
    title="Figure 3: parity of MNIST's digits with pReLU networks",
    source="Min & Vidal 2024, Figure 3 and Section 5.2.1",
    settings={**figure_6.settings, "labels": Setting("parity", "S", "the digit mod 2")},
)
