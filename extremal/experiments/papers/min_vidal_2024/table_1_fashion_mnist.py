"""Table 1 on Fashion-MNIST, of the same size and form: does it hold there, too?"""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.table_1_mnist import experiment as table_1

experiment = replace(
    table_1,
    name="min-vidal-2024/table-1-fashion-mnist",
    title="Table 1 on Fashion-MNIST: robust accuracy against p",
    source="ours, after Min & Vidal 2024, Table 1",
    settings={
        **table_1.settings,
        "dataset": Setting("fashion-mnist", "O", "the paper has MNIST"),
        "split": Setting("published", "O", "split as the authors split MNIST"),
        "seeds": Setting(2, "O", "the paper has 5 on MNIST"),
        "attacked_points": Setting(2000, "O", "the first of 10,000"),
    },
    claims=tuple(
        replace(claim, source="ours: rises with p, as on MNIST; mean over radii")
        for claim in table_1.claims
        if claim.rule == "above"
    ),
    notes=table_1.notes.replace(
        "Published numbers are APGD-CE's alone; 'a", "Nothing is published. 'A"
    ),
)
