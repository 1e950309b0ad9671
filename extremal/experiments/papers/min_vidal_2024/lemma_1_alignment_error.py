"""Lemma 1: the error of the alignment flow against the initialisation's scale."""

from extremal.experiments import SCALES, Claim, Experiment, Line, Setting

experiment = Experiment(
    name="min-vidal-2024/lemma-1",
    title="Lemma 1: how well eq. 6 describes the neurons while they are small",
    source="Min & Vidal 2024, Lemma 1 and eq. 60",
    study="extremal.experiments.studies.alignment:alignment",
    settings={
        "dim": Setting(20, "O"),
        "positive": Setting(6, "O", "K1 of Section 5.1"),
        "negative": Setting(4, "O", "K - K1 of Section 5.1"),
        "width": Setting(50, "O", "h"),
        "p": Setting([1.0, 3.0], "O", "the lemma takes any p >= 1"),
        "scale": Setting([10.0**-k for k in range(2, 9)], "O", "epsilon of eq. 4"),
        "moments": Setting(40, "O", "times in [0, T] at which the error is taken"),
        "tolerance": Setting(1e-9, "O", "relative error of a step of the flow"),
        "seeds": Setting(5, "O"),
    },
    quick={"scale": [1e-2, 1e-4, 1e-6], "seeds": 2},
    smoke={"scale": [1e-2, 1e-4], "moments": 5, "seeds": 1, "tolerance": 1e-6},
    version=2,
    axes=("p", "scale"),
    columns=1,
    panels=(
        Line(
            "Error of the alignment flow until T",
            "scale",
            ("error", "bound"),
            "initialisation scale ε",
            "largest error",
            by="p",
            labels={"error": "measured", "bound": "bound of Lemma 1"},
            styles={"bound": "dashed"},
            log="xy",
        ),
    ),
    claims=(
        Claim(
            "error as a share of 2 K p max |f|",
            "share_of_first_step",
            1.0,
            0.0,
            "eq. 60, its first step",
            rule="below",
            scales=SCALES,
        ),
        Claim(
            "error as a share of the final bound",
            "share_of_bound",
            1.0,
            0.0,
            "Lemma 1: 4 ε √h M² K p",
            rule="below",
            scales=SCALES,
        ),
    ),
    notes="The sum of exponential losses on the exact centres, balanced start with M = 1.",
)
