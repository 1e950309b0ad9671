"""Any activation and any loss on the mixture, trained and attacked by the same code.

The study behind `open-questions/activation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import evaluate
from extremal.experiments.papers.shared.robust import area
from extremal.experiments.trial import Outcome

_ACCURATE, _FALLEN = 0.99, 0.5  # clean accuracy, and share of the first loss, of a learned network


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
SHALLOW = ("prelu", "relu")  # whose structure attacks and certificates know
LOSSES: dict[str, Any] = {"exp": "exp", "logistic": "logistic", "squared hinge": squared_hinge}


def activation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by SGD, and the smallest radius that all attacks find for each test point.

    "prelu" is the normalised one of power `p`, "relu" the same of power 1: attacks know their
    structure, and a certificate exists (`structured` is 1). For any other activation attacks are
    the general ones, what they do not break has no proof, and `certified_half_radius` is null.
    Points are drawn before anything that depends on the network, so that with one seed all
    activations meet the same. `learned` says whether the network fits the data: a clean accuracy of
    at least 0.99, and a loss of at most half of that at the start. A training that diverges is an
    outcome, too: it has not learned, and its radii are null.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
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
            "learned": float(clean >= _ACCURATE and bool(losses[-1] <= _FALLEN * losses[0])),
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
        "area": area(radii, accuracy),
        "half_radius": float(found.upper.median()),
        "certified_half_radius": float(found.lower.median()) if structured else None,
        "structured": float(structured),
        "warnings": [warning.name for warning in found.warnings],
    }


def _network(params: Mapping[str, Any], generator: torch.Generator) -> nn.Module:
    """One hidden layer without biases, all weights Gaussian of one scale."""
    name, dim, width, std = (params[key] for key in ("activation", "dim", "width", "init_std"))
    _check.choice("activation", name, (*SHALLOW, *ACTIVATIONS))
    if name in SHALLOW:
        p = params["p"] if name == "prelu" else 1.0
        return models.PReLUNet(dim, width, p, init=models.Gaussian(std), generator=generator)
    made = ACTIVATIONS[name]
    return models.mlp(dim, (width,), made, bias=False, init=std, generator=generator)
