"""Table 1, Figures 3 and 6: networks on MNIST against p, and the same on Fashion-MNIST.

Table 1 has robust accuracy in three norms; Figure 6 training, stable rank and robustness where the
classes are the ten digits, Figure 3 where they are even and odd ones, with digits as subclasses.
"""

from dataclasses import replace

from extremal.experiments import ArrayHeatMap, Claim, Experiment, Line, Setting

_TABLE_RADII = {"linf": [0.05, 0.1], "l2": [1.0, 2.0], "l1": [5.0, 10.0]}
_PUBLISHED = {
    "clean": (0.981, 0.982, 0.982, 0.980),
    "apgd linf 0.05": (0.512, 0.844, 0.892, 0.913),
    "apgd linf 0.1": (0.040, 0.346, 0.522, 0.637),
    "apgd l2 1": (0.301, 0.640, 0.726, 0.775),
    "apgd l2 2": (0.007, 0.101, 0.165, 0.239),
    "apgd l1 5": (0.500, 0.744, 0.780, 0.807),
    "apgd l1 10": (0.098, 0.294, 0.354, 0.402),
}
_POWERS = (1.0, 2.0, 3.0, 4.0)
_WAYS = {
    "apgd": "APGD-CE",
    "attacked": "attacked",
    "attacked_few": "attacked, few points",
    "certified": "certified, few points",
}
_OFFICIAL = ("attacked", "attacked_few", "certified")


def _claim(name: str, p: float, value: float) -> Claim:
    near = 0.003 if name == "clean" else 0.03 if p == 4 else 0.02
    what = "clean accuracy" if name == "clean" else f"APGD-CE at {name.removeprefix('apgd ')}"
    return Claim(
        f"p = {p:g}: {what}",
        name,
        value,
        near,
        "Table 1; the tolerance is ours",
        {"p": p},
        scales=("paper",),
    )


def _ordered(way: str, norm: str, p: float) -> Claim:
    source = "Table 1: rises with p" if way == "apgd" else "ours: rises with p, too"
    return Claim(
        f"p = {p:g}: {_WAYS[way]} in {norm}, above p = {p - 1:g}'s",
        f"{way} {norm} area",
        {"p": p - 1},
        0.0,
        f"{source}; mean over radii",
        {"p": p},
        "above",
    )


def panel(norm: str, title: str, ways: tuple[str, ...], prefix: str = "") -> Line:
    """Accuracy against radius in one norm, on the split or, with a prefix, the official test."""
    names = {f"{prefix}{way} {norm}": _WAYS[way] for way in ways}
    return Line(
        title,
        f"{prefix}radius {norm}",
        tuple(names),
        f"{norm} radius",
        "accuracy",
        by="p",
        labels=names,
        styles={
            f"{prefix}certified {norm}": "dashed",
            f"{prefix}apgd {norm}": "dotted",
            f"{prefix}attacked_few {norm}": "dotted",
        },
    )


table_1 = Experiment(
    name="min-vidal-2024/table-1",
    title="Table 1: robust accuracy on MNIST against p",
    source="Min & Vidal 2024, Table 1 and Section 5.2.1",
    study="extremal.experiments.studies.images:images",
    settings={
        "dataset": Setting("mnist", "S", "Section 5.2.1"),
        "split": Setting("published", "A", "tested on the training set's last 10,000; pixels/256"),
        "labels": Setting("class", "S", "the digit"),
        "p": Setting([*_POWERS], "S", "Table 1"),
        "seeds": Setting(5, "S", "repetitions"),
        "width": Setting(500, "S", "h, Section 5.2.1"),
        "lr": Setting(1e-3, "A", "of Adam, on the cross-entropy, from Kaiming's uniform start"),
        "batch": Setting(1000, "S", "Section 5.2.1"),
        "epochs": Setting(51, "A", "the paper says 50"),
        "recorded": Setting([], "O", "learning curves are in figure-6"),
        "rank_points": Setting(10_000, "O", "training images of the stable rank"),
        "radii": Setting(_TABLE_RADII, "S", "in pixels within [0, 1]"),
        "apgd_steps": Setting(100, "A", "of APGD-CE alone, one random start"),
        "attacked_points": Setting(10_000, "A", "all of them"),
        "certified_points": Setting(500, "O", "the first of them"),
        "certified_seeds": Setting(1, "O", "networks with certificates and the official test set"),
        "official_points": Setting(1000, "O", "drawn at random from MNIST's own test set"),
        "shown_points": Setting(5, "O", "of each class, for the correlations"),
    },
    quick={
        "dataset": "digits",
        "split": "official",
        "seeds": 2,
        "batch": 100,
        "epochs": 60,
        "radii": {"linf": [0.05, 0.1], "l2": [0.5, 1.0], "l1": [1.0, 2.0]},
        "attacked_points": 360,
        "certified_points": 100,
    },
    smoke={
        "dataset": "digits",
        "split": "official",
        "p": [1.0, 3.0],
        "seeds": 1,
        "width": 60,
        "batch": 100,
        "epochs": 10,
        "rank_points": 200,
        "radii": {"linf": [0.1], "l2": [0.5], "l1": [1.0]},
        "apgd_steps": 20,
        "attacked_points": 20,
        "certified_points": 10,
        "shown_points": 2,
    },
    axes=("p",),
    columns=3,
    panels=(
        *(panel(norm, f"Robust accuracy, {norm}", ("apgd", "attacked")) for norm in _TABLE_RADII),
        *(
            panel(norm, f"Official test set, {norm}", _OFFICIAL, prefix="official ")
            for norm in _TABLE_RADII
        ),
    ),
    claims=(
        *(
            _claim(name, p, value)
            for name, row in _PUBLISHED.items()
            for p, value in zip(_POWERS, row, strict=True)
        ),
        *(
            _ordered(way, norm, p)
            for way in ("apgd", "attacked")
            for norm in _TABLE_RADII
            for p in (2.0, 3.0, 4.0)
        ),
    ),
    notes=(
        "Published numbers are APGD-CE's alone; 'attacked' is the strongest attack, which breaks "
        "more. A point that breaks at one radius counts as broken at larger ones. The official "
        "test set and certificates are of the first network of each p: certificates of the first "
        "points alone, tight in l2 but without the box, linear bounds within the box in linf and "
        "l1, which are looser. Smoke and quick scale are on scikit-learn's digits, 8 x 8 pixels, "
        "with radii of their own: nothing is downloaded, and nothing published is of them."
    ),
)


_CURVE_RADII = {"linf": [round(0.2 * i / 14, 4) for i in range(1, 15)]}


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


figure_6 = Experiment(
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
        "radii": Setting(_CURVE_RADII, "A", "15 from 0 to 0.2 in l-inf"),
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
        ArrayHeatMap("Cosines of centred images", "cosines", "image, by class", "image, by class"),
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


figure_3 = replace(
    figure_6,
    name="min-vidal-2024/figure-3",
    title="Figure 3: parity of MNIST's digits with pReLU networks",
    source="Min & Vidal 2024, Figure 3 and Section 5.2.1",
    settings={**figure_6.settings, "labels": Setting("parity", "S", "the digit mod 2")},
)


table_1_fashion_mnist = replace(
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


figure_3_fashion_mnist = replace(
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


figure_6_fashion_mnist = replace(
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
