"""Networks to compare on the mixture: each made by its name, and all trained by the same SGD."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, models, train
from extremal.data import Dataset, OrthonormalMixture

_HIDDEN = {"mlp-4": 3}  # hidden layers of MLPs that have more than one, or none
_ACTIVATIONS = {"mlp-4": "relu", "tanh": "tanh", "leaky-relu": "leaky-relu", "gelu": "gelu"}
_DEEP: dict[str, dict[str, Any]] = {
    "deep-prelu": {},
    "deep-prelu-normalised": {"normalize": "output"},
    "deep-prelu-residual": {"normalize": "output", "residual": True},
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
    init = params["init_std"]
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
    lr, steps = params["lr"], params["steps"]
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


def narrowed(net: nn.Module, data: Dataset) -> tuple[nn.Module, Dataset, Tensor]:
    """The network and the mixture's data in the coordinates that matter, and their basis.

    Of a point a network sees its inner products with the rows of the first layer, so that the
    shortest perturbations lie in their span. The `basis` (dim, r) has orthonormal columns that
    span these rows and the centres, which come first: f(x) = narrow(basis' x), and the narrow data
    come from the same mixture in r dimensions. Where that saves nothing all stays as it is.
    """
    mixture, count = data.source, data.source.count
    whole = torch.eye(mixture.dim, dtype=torch.float64)
    first_axes = torch.equal(mixture.centers, whole[:count])
    _check.require(first_axes, "data.source", "have the first axes as centres", mixture)
    rows = _first(net).detach().double()
    if count + len(rows) >= mixture.dim:
        return net, data, whole.to(data.x.dtype)
    rest = torch.linalg.qr(rows[:, count:].T).Q  # (dim - count, len(rows))
    basis = torch.block_diag(whole[:count, :count], rest)
    narrow = _with_first(net, (rows @ basis).to(_first(net).dtype))
    inner = OrthonormalMixture(basis.shape[1], mixture.positive, mixture.negative, mixture.spread)
    x = (data.x.double() @ basis).to(data.x.dtype)
    return narrow, replace(data, x=x, source=inner), basis.to(data.x.dtype)


def _first(net: nn.Module) -> Tensor:
    """What a network of `NETWORKS` multiplies its points with, (rows, dim)."""
    if isinstance(net, models.BayesClassifier):
        return net.centers
    layer = net.layers[0] if isinstance(net, models.DeepPReLU) else net
    if isinstance(layer, models.PReLUNet | models.PReLULayer):
        return layer.neurons
    assert isinstance(net, models.MLP)
    linear = net[0]
    assert isinstance(linear, nn.Linear)
    return linear.weight


def _with_first(net: nn.Module, rows: Tensor) -> nn.Module:
    """A copy of the network with other rows in the first place."""
    if isinstance(net, models.PReLUNet):
        explicit = models.Explicit(rows, net.votes.detach())
        width, dim = rows.shape
        return models.PReLUNet(dim, width, net.p, init=explicit, generator=torch.Generator())
    twin: Any = copy.deepcopy(net)
    _first(twin).data = rows
    if isinstance(net, models.DeepPReLU):
        twin.dim = twin.layers[0].inputs = rows.shape[1]
    elif isinstance(net, models.MLP):
        twin[0].in_features = rows.shape[1]
    copied: nn.Module = twin
    return copied
