"""Figure 7: the field x^(p)(w) between two positive centres in the plane, for p = 1, 2, 3."""

from extremal.experiments import Claim, Cloud, Experiment, Scene, Setting


def _scene(p: float) -> Scene:
    return Scene(
        f"p = {p:g}",
        (
            Cloud("centers", "subclass centres", "rays", colour="positive"),
            Cloud("average", "class average", "rays", colour="accent"),
            Cloud("neurons", "direction of x^(p)(w) at w", "arrows", "pull", "neutral"),
        ),
        {"p": p},
    )


experiment = Experiment(
    name="min-vidal-2024/figure-7",
    title="Figure 7: where neurons between two centres are pulled",
    source="Min & Vidal 2024, Figure 7 and Appendix D.1",
    study="extremal.experiments.studies.plane:plane",
    settings={
        "p": Setting([1.0, 2.0, 3.0], "S", "Appendix D.1"),
        "neurons": Setting(15, "O", "evenly spaced between the two centres"),
        "seeds": Setting(1, "O", "nothing is random"),
    },
    smoke={"neurons": 5},
    axes=("p",),
    columns=3,
    panels=(_scene(1.0), _scene(2.0), _scene(3.0)),
    claims=(
        Claim(
            "p = 1: largest angle from field to average",
            "angle_from_average",
            0.0,
            1e-9,
            "eq. 52: along the average",
            {"p": 1.0},
        ),
        Claim(
            "p = 2: largest turn away from w",
            "largest_turn",
            0.0,
            1e-9,
            "eq. 53: along w itself",
            {"p": 2.0},
        ),
        Claim(
            "p = 2: smallest turn away from w",
            "smallest_turn",
            0.0,
            1e-9,
            "eq. 53: along w itself",
            {"p": 2.0},
        ),
        Claim(
            "p = 3: smallest turn to nearer centre",
            "smallest_turn",
            0.01,
            0.0,
            "eq. 54: toward it; at least 0.01 rad is ours",
            {"p": 3.0},
            "above",
        ),
    ),
)
