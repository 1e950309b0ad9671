"""Which activation, which loss: the package's own and others, through the same code."""

from typing import Any

from extremal import theory
from extremal.experiments import Claim, Experiment, Line, Mark, Scale, Setting

_NAMES = (
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
)
_OWN: dict[str, dict[str, float]] = {  # where the common start or step trains nothing, or diverges
    "softplus": {"lr": 0.01, "steps": 10_000},
    "relu^3": {"init_std": 0.1},
    "shifted relu": {"init_std": 0.1},
}
_LOSSES = ["exp", "logistic", "squared hinge"]
_FEW = ("prelu", "relu", "gelu", "relu^3")
_FITTED = "ours: a network that has not learned says nothing"
_SOURCE = "Min & Vidal 2025 (poster): changing the activation does not help a ReLU network"


def _networks(*names: str, **given: float) -> list[dict[str, Any]]:
    return [{"activation": name, **_OWN.get(name, {}), **given} for name in names]


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


def _below(name: str, loss: str) -> Claim:
    """An activation that is not pReLU is less robust than it, by the mean of the areas."""
    scales: tuple[Scale, ...] = ("quick", "paper") if name in _FEW else ("paper",)
    return Claim(
        f"{name}, {loss}: area below that of pReLU",
        "area",
        {"activation": "prelu", "loss": loss},
        0.0,
        _SOURCE,
        {"activation": name, "loss": loss},
        rule="below",
        scales=scales,
    )


def _learned(name: str) -> Claim:
    scales: tuple[Scale, ...] = ("quick", "paper") if name in _FEW else ("paper",)
    return Claim(
        f"{name}: share that has learned",
        "learned",
        1.0,
        0.0,
        _FITTED,
        {"activation": name},
        "above",
        scales,
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
        "networks": Setting(
            _networks(*_NAMES), "O", "one hidden layer without biases; own settings: see the notes"
        ),
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
        "networks": _networks(*_FEW),
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
        "networks": _networks("prelu", "shifted relu", init_std=0.1, steps=60),
        "seeds": 1,
        "width": 10,
        "train_points": 60,
        "batch": 20,
        "attacked_points": 5,
        "radii": [0.0, 0.5],
    },
    axes=("networks", "loss"),
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
        *(_learned(name) for name in _NAMES),
        *(_below(name, loss) for loss in _LOSSES for name in _NAMES[1:]),
    ),
    version=2,
    notes=(
        "All networks are trained by one SGD from one start. Where that trains nothing or diverges "
        "a network has settings of its own: a shifted ReLU is silent from a small start, a cube "
        "that is not divided by its norm does not move, and softplus, whose outputs have a common "
        "part, takes shorter steps and more of them. For prelu and relu attacks know the network, "
        "and there is a certificate: for every other activation robust accuracy is an upper bound "
        "without a proof beside it. A training that diverges is kept as such, without a curve. "
        "docs/your-own-activation.md goes through one of these by hand."
    ),
)
