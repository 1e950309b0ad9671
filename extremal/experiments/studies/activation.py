"""Any activation and any loss on the mixture, trained and attacked by the same code.

The study behind `open-questions/activation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, train
from extremal.data import OrthonormalMixture
from extremal.evaluate import evaluate
from extremal.experiments.studies.robust import area
from extremal.experiments.trial import Outcome


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
    "relu": "relu",
    "leaky-relu": "leaky-relu",
    "tanh": "tanh",
    "gelu": "gelu",
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "relu^2": lambda: models.PowerReLU(2.0),
    "relu^3": lambda: models.PowerReLU(3.0),
    "shifted relu": lambda: ShiftedReLU(0.1),
}
LOSSES: dict[str, Any] = {"exp": "exp", "logistic": "logistic", "squared hinge": squared_hinge}


def activation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by SGD, and the smallest radius that all attacks find for each test point.

    "prelu" is the normalised one of power `p`, for which attacks know the network and a certificate
    exists (`structured` is 1); for any other activation attacks are the general ones, and what they
    do not break has no proof: `certified_half_radius` is then 0.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    learn = mixture.sample(params["train_points"], generator=generator)
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
        return Outcome({"diverged": 1.0, "reason": str(error)})
    test = mixture.sample(params["attacked_points"], generator=generator)
    radii = [float(radius) for radius in params["radii"]]
    structured = models.is_shallow(net)
    found = evaluate(net, test, radii=radii, effort="fast", certify=structured, generator=generator)
    accuracy = found.curve(radii).attacked.tolist()
    return Outcome(
        {
            "diverged": 0.0,
            "radius": radii,
            "robust_accuracy": accuracy,
            "area": area(radii, accuracy),
            "half_radius": float(found.upper.median()),
            "certified_half_radius": float(found.lower.median()),
            "clean_accuracy": measure.accuracy(net, test),
            "loss": float(path.values["loss"][-1]),
            "structured": float(structured),
            "warnings": [warning.name for warning in found.warnings],
        }
    )


def _network(params: Mapping[str, Any], generator: torch.Generator) -> nn.Module:
    """One hidden layer without biases, all weights Gaussian of one scale."""
    name, dim, width, std = (params[key] for key in ("activation", "dim", "width", "init_std"))
    _check.choice("activation", name, ("prelu", *ACTIVATIONS))
    if name == "prelu":
        init = models.Gaussian(std)
        return models.PReLUNet(dim, width, params["p"], init=init, generator=generator)
    made = ACTIVATIONS[name]
    return models.mlp(dim, (width,), made, bias=False, init=std, generator=generator)
