"""Networks to compare on the mixture: each made by its name, and all trained by the same SGD."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from extremal import _check, models, train
from extremal.data import Dataset, OrthonormalMixture

_HIDDEN = {"mlp-4": 3}  # hidden layers of MLPs that have more than one, or none
_ACTIVATIONS = {"mlp-4": "relu", "tanh": "tanh", "leaky-relu": "leaky-relu", "gelu": "gelu"}
_DEEP = {
    "deep-prelu": {},
    "deep-prelu-normalised": {"normalize": True},
    "deep-prelu-residual": {"normalize": True, "residual": True},
}
NETWORKS = ("prelu", "relu", "power", "logistic", *_ACTIVATIONS, *_DEEP, "bayes")


def network(
    name: str, mixture: OrthonormalMixture, params: Mapping[str, Any], generator: torch.Generator
) -> nn.Module:
    """The untrained network of that name, none of which has biases.

    "prelu" and "relu" are shallow `PReLUNet`s with p = `p` and 1, "power" has relu(<w, x>)^p
    without division by ||w||^(p-1); "tanh", "leaky-relu" and "gelu" have one hidden layer, "mlp-4"
    four linear layers with ReLUs, "logistic" none but the last; the deep pReLU networks have two
    hidden layers of power p, plain, or divided by their norms, or so with a residual connection.
    All hidden layers have `width` neurons. "bayes" is the Bayes classifier of the mixture.
    """
    _check.choice("network", name, NETWORKS)
    if name == "bayes":
        return models.bayes_classifier(mixture)
    dim, width, p = mixture.dim, params["width"], params["p"]
    init = own(params, "init_std")
    if name in ("prelu", "relu"):
        power = p if name == "prelu" else 1.0
        start = models.Gaussian(init)
        return models.PReLUNet(dim, width, power, init=start, generator=generator)
    if name in _DEEP:
        return models.DeepPReLU(dim, [width] * 2, p, init=init, generator=generator, **_DEEP[name])
    hidden = 0 if name == "logistic" else _HIDDEN.get(name, 1)
    activation = _ACTIVATIONS.get(name, partial(models.PowerReLU, p))
    widths = [width] * hidden
    return models.mlp(dim, widths, activation, bias=False, init=init, generator=generator)


def trained(
    data: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> tuple[nn.Module, dict[str, Any]]:
    """The trial's network after SGD on the mixture's data, and its losses; "bayes" needs none."""
    net = network(params["network"], data.source, params, generator)
    if params["network"] == "bayes":
        return net, {}
    lr, steps = own(params, "lr"), own(params, "steps")
    path = train.sgd(
        net,
        data,
        loss=params["loss"],
        lr=lr,
        batch=params["batch"],
        steps=steps,
        record=train.Record.log_spaced(lr * steps / 100, lr * steps, params["recorded"]),
        generator=generator,
    )
    losses = path.values["loss"].tolist()
    steps_taken = [round(time / lr) for time in path.times.tolist()]
    return net, {
        "loss_start": losses[0],
        "loss": losses[-1],
        "losses": losses,
        "steps_taken": steps_taken,
        "train_accuracy": float(path.values["accuracy"][-1]),
    }


def own(params: Mapping[str, Any], name: str) -> Any:
    """A setting for the trial's `network`, and `start` where there is one.

    One value for all, or a mapping by start, by network, or by both in this order; a network that
    is not in it has the value of "others".
    """
    value = params[name]
    for chosen in (params.get("start"), params["network"]):
        if isinstance(value, Mapping) and chosen in value:
            value = value[chosen]
    if isinstance(value, Mapping):
        rule = f"have a value for {params['network']!r} or 'others'"
        _check.require("others" in value, name, rule, sorted(value))
        value = value["others"]
    return value
