"""Many networks on one mixture: which follow the Bayes classifier, and which break at 1/sqrt(K).

Each is made by its name, and all are trained by the same SGD.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, attack, certify, measure, models, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import check_bracket
from extremal.experiments.papers.shared.mixture_training import mixture_of
from extremal.experiments.papers.shared.robust_numbers import share
from extremal.experiments.trial import Outcome

# A network counts as learned from this clean accuracy on.
_LEARNED_ACCURACY = 0.99
# Of a learned network's first loss at most this share is left.
_LEARNED_LOSS_SHARE = 0.5
# The curve starts to fall where this share of the points is broken.
_FIRST_FALL_SHARE = 0.01
# A norm may be above the radius of its attack by this share of it.
_ROUNDING_SHARE = 1e-5
# A perturbation is lengthened by these, in turn, until the network itself takes it as broken.
_STRETCH_FACTORS = (1.00001, 1.0001, 1.001, 1.01)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One network on the mixture: its loss, clean accuracy, and robust accuracy against radius.

    Points are drawn before anything that depends on the network, so that with one seed all
    networks meet the same. `learned` says whether the network fits the data: a clean accuracy of
    at least 0.99, and a loss of at most half of that at the start.
    """
    mixture = mixture_of(params)
    test = mixture.sample(params["test_points"], generator=generator)
    data = mixture.sample(params["train_points"], generator=generator)
    net, losses = trained(data, params, generator)
    clean = measure.accuracy(net, test)
    fallen = not losses or losses["loss"] <= _LEARNED_LOSS_SHARE * losses["loss_start"]
    learned = {"clean_accuracy": clean, "learned": clean >= _LEARNED_ACCURACY and fallen}
    seen = test.take(slice(params["attacked_points"]))
    return Outcome({**losses, **learned, **_robustness(net, seen, params, generator)})


def _robustness(
    net: nn.Module, test: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy against radius from above, and for a `PReLUNet` from below as well.

    Certificates are of the first `certified_points`, and `attacked_few` is the bound from above for
    those. A point that breaks within its certified radius is a `BracketViolation`.
    """
    radii = [float(radius) for radius in params["radii"]]
    found = smallest(
        net,
        test,
        radii,
        steps=params["attack_steps"],
        restarts=params["restarts"],
        generator=generator,
    )
    numbers = {
        "radius": radii,
        "robust_accuracy": _standing(found.radius, radii),
        "half_radius": float(found.radius.median()),
        "first_fall": float(found.radius.quantile(_FIRST_FALL_SHARE, interpolation="nearest")),
    }
    if not isinstance(net, models.PReLUNet):
        return numbers
    few = slice(params["certified_points"])
    upper, broken = found.radius[few], found.x_adv[few]
    lower = certify.certificate(net, test.x[few], test.y[few], attacked=broken).radius
    check_bracket(lower, upper, f"l2, of {params['network']!r}")
    return {
        **numbers,
        "attacked_few": _standing(upper, radii),
        "certified_accuracy": [share((upper > 0) & (lower >= radius)) for radius in radii],
        "half_radius_certified": float(lower.median()),
    }


def _standing(smallest: Tensor, radii: Sequence[float]) -> list[float]:
    return [share(smallest > radius * (1.0 + _ROUNDING_SHARE)) for radius in radii]


def smallest(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    steps: int,
    restarts: int,
    generator: torch.Generator,
) -> attack.AttackResult:
    """The smallest perturbation found of each point of the mixture; infinite radius where none.

    `attack.minimal` first; then all attacks of `attack.run`, with the closed forms of the mixture,
    at the largest of the radii that the point has survived, and again at the next one as long as
    they break it. They search in the coordinates that the network sees (`narrowed`), and what they
    find is verified on the network itself.
    """
    narrow, seen, basis = narrowed(net, data)
    found = attack.minimal(narrow, seen.x, seen.y, steps=steps, generator=generator)
    least = found.radius.clone()
    tried = torch.tensor(sorted({radius for radius in radii if radius > 0}), dtype=torch.float64)
    rows = torch.arange(len(seen))
    while True:
        survived = torch.searchsorted(tried, least[rows])  # how many of the radii
        rows, survived = rows[survived > 0], survived[survived > 0]
        if len(rows) == 0:
            break
        part, limit = seen.take(rows), tried[survived - 1]
        result = attack.run(
            narrow,
            part.x,
            part.y,
            radius=limit,
            steps=steps,
            mixture=part.source,
            group=part.group,
            generator=generator,
        )
        found = found.merged(rows, result)
        rows, limit = rows[result.success], limit[result.success]
        least[rows] = torch.minimum(found.radius[rows], limit)
    found = attack.boundary(
        narrow,
        seen.x,
        seen.y,
        steps=steps,
        restarts=restarts,
        start=found.x_adv,
        generator=generator,
    )
    return _verified(net, data, (found.x_adv - seen.x) @ basis.T)


def _verified(net: nn.Module, data: Dataset, delta: Tensor) -> attack.AttackResult:
    """x + delta as the network takes it, longer where it does not take it as broken."""
    result = _landed(net, data, delta)
    for stretch in _STRETCH_FACTORS:
        rows = torch.nonzero(~result.success).squeeze(1)
        if len(rows) == 0:
            break
        result = result.merged(rows, _landed(net, data.take(rows), stretch * delta[rows]))
    return result


def _landed(net: nn.Module, data: Dataset, delta: Tensor) -> attack.AttackResult:
    ball = attack.Ball("l2", delta.double().norm(dim=1) * (1.0 + _ROUNDING_SHARE))
    return attack.verified(net, data.x, data.y, data.x + delta, ball, "comparison")


# MLPs that do not have one hidden layer have so many.
_HIDDEN_LAYERS = {"mlp-4": 3}
_ACTIVATION_NAMES = {"mlp-4": "relu", "tanh": "tanh", "leaky-relu": "leaky-relu", "gelu": "gelu"}
_DEEP: dict[str, dict[str, Any]] = {
    "deep-prelu": {},
    "deep-prelu-normalised": {"normalize": "output"},
    "deep-prelu-residual": {"normalize": "output", "residual": True},
}
NETWORK_NAMES = ("prelu", "relu", "power", "logistic", *_ACTIVATION_NAMES, *_DEEP, "bayes")


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
    _check.choice("network", name, NETWORK_NAMES)
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
    hidden = 0 if name == "logistic" else _HIDDEN_LAYERS.get(name, 1)
    activation = _ACTIVATION_NAMES.get(name, partial(models.PowerReLU, p))
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
