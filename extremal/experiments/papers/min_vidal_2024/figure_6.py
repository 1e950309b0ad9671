"""Figure 6: which digit it is, on MNIST, for p = 1 to 4: training, stable rank, robustness."""

from extremal.experiments import Claim, Experiment, Heat, Line, Setting
from extremal.experiments.papers.min_vidal_2024.table_1_mnist import experiment as table_1
from extremal.experiments.papers.min_vidal_2024.table_1_mnist import panel

_RADII = {"linf": [round(0.2 * i / 14, 4) for i in range(1, 15)]}


def _above(quantity: str, value: str, p: float, than: float, source: str) -> Claim:
    return Claim(
        f"p = {p:g}: {quantity}, above p = {than:g}'s",
        value,
        {"p": than},
        0.0,
        source,
        {"p": p},
        "above",
    )


experiment = Experiment(
    name="min-vidal-2024/figure-6",
    title="Figure 6: classifying MNIST's digits with pReLU networks",
    source="Min & Vidal 2024, Figure 6 and Appendix A.3",
    study="extremal.experiments.studies.images:images",
    settings={
        **table_1.settings,
        "seeds": Setting(10, "S", "repetitions"),
        "recorded": Setting(
            [1, 2, 3, 5, 8, 12, 17, 23, 30, 40], "O", "epochs of the curves; the paper: each"
        ),
        "radii": Setting(_RADII, "A", "15 from 0 to 0.2 in l-inf"),
        "attacked_points": Setting(1000, "O", "the first of 10,000; table-1 takes all"),
        "certified_points": Setting(200, "O", "the first of them"),
        "official_points": Setting(0, "O", "table-1 has the official test set"),
        "shown_points": Setting(20, "O", "of each class in panel a"),
    },
    quick={
        "dataset": "digits",
        "split": "official",
        "seeds": 2,
        "batch": 100,
        "epochs": 60,
        "attacked_points": 360,
        "certified_points": 100,
    },
    smoke={
        **table_1.smoke,
        "recorded": [1, 4],
        "radii": {"linf": [0.05, 0.1, 0.2]},
    },
    axes=("p",),
    columns=2,
    panels=(
        Heat("Cosines of centred images", "cosines", "image, by class", "image, by class"),
        Line(
            "Accuracy during training",
            "epoch",
            ("test_accuracy", "train_accuracy"),
            "epoch",
            "accuracy",
            by="p",
            labels={"test_accuracy": "test", "train_accuracy": "training"},
            styles={"train_accuracy": "dotted"},
        ),
        Line("Stable rank of hidden values", "epoch", ("stable_rank",), "epoch", "rank", by="p"),
        panel("linf", "Robust accuracy against l-inf radius", ("apgd", "attacked", "certified")),
    ),
    claims=(
        Claim(
            "cosine within classes minus between",
            "contrast",
            0.0,
            0.0,
            "panel a: classes are clusters; > 0",
            rule="above",
        ),
        *(
            _above("test accuracy", "final_test_accuracy", p, 1.0, "panel b: a slight edge")
            for p in (2.0, 3.0)
        ),
        *(
            _above("stable rank", "final_stable_rank", p, p - 1, "panel c: larger with p")
            for p in (2.0, 3.0, 4.0)
        ),
        *(
            _above("APGD-CE accuracy", "apgd linf area", p, p - 1, "panel d: more robust with p")
            for p in (2.0, 3.0, 4.0)
        ),
        *(
            _above("attacked accuracy", "attacked linf area", p, p - 1, "ours: strongest attack")
            for p in (2.0, 3.0, 4.0)
        ),
    ),
    notes=(
        "An accuracy above another's is the mean over the radii of a curve, and the mean over "
        "networks. Certificates are of the first points of the first network of each p: linear "
        "bounds within the box, which are loose. Smoke and quick scale are on scikit-learn's "
        "digits, 8 x 8 pixels: nothing is downloaded, and nothing published is of them."
    ),
)
