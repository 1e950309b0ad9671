"""Which activation, which loss: the package's own and others, through the same code."""

from extremal import theory
from extremal.experiments import Claim, Experiment, Line, Mark, Setting

_NAMES = [
    "prelu",
    "relu",
    "leaky-relu",
    "tanh",
    "gelu",
    "silu",
    "softplus",
    "relu^2",
    "relu^3",
    "shifted relu",
]
_LOSSES = ["exp", "logistic", "squared hinge"]
_SOURCE = "Min & Vidal 2025 (poster): changing the activation does not help a ReLU network"


def _panel(loss: str) -> Line:
    return Line(
        f"Loss: {loss}",
        "radius",
        ("robust_accuracy",),
        "l2 radius",
        "accuracy under the strongest attack",
        by="activation",
        where={"loss": loss},
        marks=(
            Mark(lambda s: theory.average_radius(s["positive"], s["negative"]), "1/√K"),
            Mark(theory.OPTIMAL_RADIUS, "√2/2"),
        ),
    )


def _claim(name: str) -> Claim:
    """An activation that is not pReLU is less robust than it, by the mean of the areas."""
    return Claim(
        f"{name}: area below that of pReLU",
        "area",
        {"activation": "prelu", "loss": "exp"},
        0.0,
        _SOURCE,
        {"activation": name, "loss": "exp"},
        rule="below",
        scales=("paper",),
    )


experiment = Experiment(
    name="open-questions/activation",
    title="Which activation, which loss?",
    source="open question: Min & Vidal 2025 (poster), 'carefully chosen activation'",
    study="extremal.experiments.studies.activation:activation",
    settings={
        "dim": Setting(200, "O"),
        "positive": Setting(6, "O", "K1 of Min & Vidal 2024, Section 5.1"),
        "negative": Setting(4, "O", "K - K1 of Section 5.1"),
        "spread": Setting(0.1, "O", "alpha of Figure 2's panels b-e"),
        "activation": Setting(_NAMES, "O", "of one hidden layer without biases"),
        "p": Setting(3.0, "O", "of prelu"),
        "loss": Setting(_LOSSES, "O", "the last one is a function of one's own"),
        "seeds": Setting(5, "O"),
        "width": Setting(200, "O"),
        "init_std": Setting(1e-2, "O", "as in Min & Vidal 2025: variance 1e-4"),
        "train_points": Setting(2000, "O"),
        "lr": Setting(0.2, "O", "SGD, as in Min & Vidal 2024"),
        "batch": Setting(100, "O"),
        "steps": Setting(5000, "O"),
        "attacked_points": Setting(100, "O", "test points"),
        "radii": Setting([round(0.05 * i, 2) for i in range(21)], "O"),
    },
    quick={
        "dim": 100,
        "activation": ["prelu", "relu", "gelu", "relu^3"],
        "loss": ["exp", "logistic", "squared hinge"],
        "seeds": 1,
        "width": 60,
        "train_points": 500,
        "steps": 1500,
        "attacked_points": 50,
        "radii": [round(0.1 * i, 2) for i in range(11)],
    },
    smoke={
        "dim": 12,
        "positive": 2,
        "negative": 2,
        "activation": ["prelu", "shifted relu"],
        "seeds": 1,
        "width": 10,
        "init_std": 0.1,
        "train_points": 60,
        "batch": 20,
        "steps": 60,
        "attacked_points": 5,
        "radii": [0.0, 0.5],
    },
    axes=("activation", "loss"),
    columns=3,
    panels=tuple(_panel(loss) for loss in _LOSSES),
    claims=(
        Claim(
            "prelu: median radius, exponential loss",
            "half_radius",
            theory.OPTIMAL_RADIUS,
            0.03,
            "sqrt(2)/2, Min & Vidal 2024, Theorem 1",
            {"activation": "prelu", "loss": "exp"},
            scales=("paper",),
        ),
        *(_claim(name) for name in _NAMES[1:]),
    ),
    notes=(
        "Only for prelu do attacks know the network, and only there is a certificate: for every "
        "other activation robust accuracy is an upper bound without a proof beside it. A training "
        "that diverges is kept as such, without a curve. docs/your-own-activation.md goes through "
        "one of these by hand."
    ),
)
