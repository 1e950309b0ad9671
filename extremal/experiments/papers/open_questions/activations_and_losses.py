"""Which activation, which loss: the package's own and others, trained and attacked by one code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, theory, train
from extremal.data import Dataset
from extremal.evaluate import evaluate
from extremal.experiments import Claim, Experiment, Scale, Setting
from extremal.experiments.papers.shared.claim_rows import attacked_curves, claims
from extremal.experiments.papers.shared.mixture_training import mixture_of
from extremal.experiments.papers.shared.robust_numbers import mean_over_radii
from extremal.experiments.trial import Outcome

_ACTIVATION_NAMES = (
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
_OWN_SETTINGS: dict[
    str, dict[str, float]
] = {  # where the common start or step trains nothing, or diverges
    "softplus": {"lr": 0.01, "steps": 10_000},
    "relu^3": {"init_std": 0.1},
    "shifted relu": {"init_std": 0.1},
}
_LOSS_NAMES = ["exp", "logistic", "squared hinge"]
_QUICK_ACTIVATIONS = ("prelu", "relu", "gelu", "relu^3")
_FITTED_SOURCE = "ours: a network that has not learned says nothing"
_POSTER_SOURCE = "Min & Vidal 2025 (poster): changing the activation does not help a ReLU network"


def _networks(*names: str, **given: float) -> list[dict[str, Any]]:
    return [{"activation": name, **_OWN_SETTINGS.get(name, {}), **given} for name in names]


def _scales(name: str) -> tuple[Scale, ...]:
    return ("quick", "paper") if name in _QUICK_ACTIVATIONS else ("paper",)


def _below(name: str, loss: str) -> Claim:
    """An activation that is not pReLU is less robust than it, by the mean of the areas."""
    return Claim(
        f"{name}, {loss}: area below that of pReLU",
        "area",
        {"activation": "prelu", "loss": loss},
        0.0,
        _POSTER_SOURCE,
        {"activation": name, "loss": loss},
        rule="below",
        scales=_scales(name),
        against="question",
    )


activation = Experiment(
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
            _networks(*_ACTIVATION_NAMES),
            "O",
            "one hidden layer without biases; own settings: see the notes",
        ),
        "p": Setting(3.0, "O", "of prelu"),
        "loss": Setting(_LOSS_NAMES, "O", "the last one is a function of one's own"),
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
        "networks": _networks(*_QUICK_ACTIVATIONS),
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
        "networks": _networks("prelu", "shifted relu", init_std=0.1, steps=20),
        "seeds": 1,
        "width": 10,
        "train_points": 60,
        "batch": 20,
        "attacked_points": 2,
        "radii": [0.0, 0.5],
    },
    axes=("networks", "loss"),
    columns=3,
    panels=tuple(
        attacked_curves(f"Loss: {loss}", "activation", {"loss": loss}) for loss in _LOSS_NAMES
    ),
    claims=(
        *claims(
            "sqrt(2)/2, Min & Vidal 2024, Theorem 1",
            {"activation": "prelu", "loss": "exp"},
            ("prelu: median radius, exponential loss", "half_radius", theory.OPTIMAL_RADIUS, 0.03),
            scales=("paper",),
            against="theory",
        ),
        *(
            claim
            for name in _ACTIVATION_NAMES
            for claim in claims(
                _FITTED_SOURCE,
                {"activation": name},
                (f"{name}: share that has learned", "learned", 1.0, 0.0),
                rule="above",
                scales=_scales(name),
                against="question",
            )
        ),
        *(_below(name, loss) for loss in _LOSS_NAMES for name in _ACTIVATION_NAMES[1:]),
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


# A network counts as learned from this clean accuracy on.
_LEARNED_ACCURACY = 0.99
# Of a learned network's first loss at most this share is left.
_LEARNED_LOSS_SHARE = 0.5


class ShiftedReLU(nn.Module):
    """relu(s - shift): silent until an input is clearly on a neuron's side."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, s: Tensor) -> Tensor:
        """Of the shape of s."""
        return torch.relu(s - self.shift)


def squared_hinge(out: Tensor, y: Tensor) -> Tensor:
    """relu(1 - y f)^2 of each sample, (n,): it stops at a margin of 1."""
    return torch.relu(1.0 - y * out) ** 2


ACTIVATIONS: dict[str, str | Callable[[], nn.Module]] = {
    "leaky-relu": "leaky-relu",
    "tanh": "tanh",
    "gelu": "gelu",
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "relu^2": lambda: models.PowerReLU(2.0),
    "relu^3": lambda: models.PowerReLU(3.0),
    "shifted relu": lambda: ShiftedReLU(0.1),
}
SHALLOW_ACTIVATIONS = ("prelu", "relu")  # whose structure attacks and certificates know
LOSSES: dict[str, Any] = {"exp": "exp", "logistic": "logistic", "squared hinge": squared_hinge}


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by SGD, and the smallest radius that all attacks find for each test point.

    "prelu" is the normalised one of power `p`, "relu" the same of power 1: attacks know their
    structure, and a certificate exists (`structured` is 1). For any other activation attacks are
    the general ones, what they do not break has no proof, and `certified_half_radius` is null.
    Points are drawn before anything that depends on the network, so that with one seed all
    activations meet the same. `learned` says whether the network fits the data: a clean accuracy of
    at least 0.99, and a loss of at most half of that at the start. A training that diverges is an
    outcome, too: it has not learned, and its radii are null.
    """
    mixture = mixture_of(params)
    learn = mixture.sample(params["train_points"], generator=generator)
    test = mixture.sample(params["attacked_points"], generator=generator)
    net = _network(params, generator)
    _check.choice("loss", params["loss"], LOSSES)
    try:
        path = train.sgd(
            net,
            learn,
            loss=LOSSES[params["loss"]],
            lr=params["lr"],
            batch=params["batch"],
            steps=params["steps"],
            generator=generator,
        )
    except train.DivergenceError as error:
        unknown = dict.fromkeys(("area", "half_radius", "clean_accuracy"), math.nan)
        return Outcome({"diverged": 1.0, "learned": 0.0, "reason": str(error), **unknown})
    losses, clean = path.values["loss"], measure.accuracy(net, test)
    return Outcome(
        {
            "diverged": 0.0,
            "learned": float(
                clean >= _LEARNED_ACCURACY and bool(losses[-1] <= _LEARNED_LOSS_SHARE * losses[0])
            ),
            "clean_accuracy": clean,
            "loss": float(losses[-1]),
            **_robustness(net, test, [float(radius) for radius in params["radii"]], generator),
        }
    )


def _robustness(
    net: nn.Module, test: Dataset, radii: list[float], generator: torch.Generator
) -> dict[str, Any]:
    structured = models.is_shallow(net)
    found = evaluate(net, test, radii=radii, effort="fast", certify=structured, generator=generator)
    accuracy = found.curve(radii).attacked.tolist()
    return {
        "radius": radii,
        "robust_accuracy": accuracy,
        "area": mean_over_radii(radii, accuracy),
        "half_radius": float(found.upper.median()),
        "certified_half_radius": float(found.lower.median()) if structured else None,
        "structured": float(structured),
        "warnings": [warning.name for warning in found.warnings],
    }


def _network(params: Mapping[str, Any], generator: torch.Generator) -> nn.Module:
    """One hidden layer without biases, all weights Gaussian of one scale."""
    name, dim, width, std = (params[key] for key in ("activation", "dim", "width", "init_std"))
    _check.choice("activation", name, (*SHALLOW_ACTIVATIONS, *ACTIVATIONS))
    if name in SHALLOW_ACTIVATIONS:
        p = params["p"] if name == "prelu" else 1.0
        return models.PReLUNet(dim, width, p, init=models.Gaussian(std), generator=generator)
    made = ACTIVATIONS[name]
    return models.mlp(dim, (width,), made, bias=False, init=std, generator=generator)
