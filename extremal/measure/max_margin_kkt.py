"""Margins along training: the normalised margin, and how far it is from being the largest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal.data import Dataset
from extremal.measure.cone import nearest_in_cone
from extremal.measure.constraints import Parts, cotangents, gaps, gradient, inner_products
from extremal.models import PReLUNet, double, margin

_BATCH = 2048


@dataclass(frozen=True)
class KKT:
    """How far a network is from a KKT point of min ||theta||^2/2 with all margins >= 1.

    `stationarity` (eps) and `slackness` (delta) are those of the exponential loss's multipliers,
    `refined_stationarity` and `refined_slackness` those of the multipliers that fit best; see
    `kkt_residual`. All are 0 at a KKT point, relative to its norm and its squared norm. They are
    infinite where a margin is not positive: no multiple of theta then has all margins >= 1.
    `margin` is the normalised one, and `degree` the degree L of homogeneity.
    """

    margin: float
    degree: int
    stationarity: float
    slackness: float
    refined_stationarity: float
    refined_slackness: float


def normalized_margin(net: PReLUNet, data: Dataset) -> float:
    """min_i margin_i / ||theta||^L, in float64, for a network that is L-homogeneous in theta.

    theta are the trained parameters. A `PReLUNet` without biases has degree L = 2 in neurons and
    votes, and degree 1 in one of them where the other is frozen; a preparation acts on the input
    and changes nothing of that. Under gradient flow it rises once the loss is small, up to a term
    that vanishes with the loss (Lyu & Li 2020, "Gradient descent maximizes the margin of
    homogeneous neural networks").
    """
    theta, twin, scales = _trained(net, data)
    pairs = zip(data.x.split(_BATCH), data.y.split(_BATCH), strict=True)
    with torch.no_grad():
        least = min(float(margin(twin, x.double(), y).min()) for x, y in pairs)
    return _normalized(least, theta, scales)


def kkt_residual(net: PReLUNet, data: Dataset, *, support: int = 256) -> KKT:
    """The (eps, delta) of Lyu & Li 2020 at theta' = theta / q^(1/L), q > 0 the smallest margin.

    Constraints are g_i = margin_i, or g_it = f_y(x_i) - f_t(x_i) for each t != y with several
    outputs, since rivals tie where the margin is largest. With multipliers m_i >= 0,

        eps = ||theta - sum_i m_i grad g_i|| / ||theta||,  delta = sum_i m_i (g_i - q) / ||theta||^2

    at theta itself, which are ||theta' - sum_i lambda_i grad g_i|| / ||theta'|| and
    sum_i lambda_i (g_i - 1) / ||theta'||^2 at theta' (Lyu & Li bound each term of delta; this sum
    bounds them all). Theirs are the multipliers of the exponential loss, m_i = ||theta||
    exp(-g_i) / ||h|| with h = sum_i exp(-g_i) grad g_i, for which eps^2 = 2 (1 - cos(theta, h));
    they depend on the size of theta, not on its direction alone.

    The refined ones make eps least over the cone of the gradients of the `support` smallest
    constraints and, unless these are all, of h. That is non-negative least squares in inner
    products (`extremal.measure.cone` says how accurate), with eps recomputed from the gradients.
    """
    theta, twin, scales = _trained(net, data)
    _check.integer("support", support, minimum=1)
    length, values = _norm(theta), gaps(twin, data)
    least = float(values.min())
    normalized = _normalized(least, theta, scales)
    if not least > 0.0:
        return KKT(normalized, len(theta), *[math.inf] * 4)
    # The loss weighs the margins as they are; the factor exp(-least) cancels, as scales do below.
    weights = torch.exp((least - values) * scales["neurons"] * scales["votes"])
    h = gradient(twin, data.x, cotangents(weights, data.y), theta)
    unit, ray = _scaled(theta, 1.0 / length), _scaled(h, 1.0 / _norm(h))
    loose = torch.where(weights > 0, weights * (values - least), 0.0)
    slackness = float(loose.sum()) / (_norm(h) * length)
    eps = _norm({name: unit[name] - ray[name] for name in unit})
    fitted = _refined(twin, data, values, unit, ray, slackness, length, support)
    return KKT(normalized, len(theta), eps, slackness, *fitted)


def _refined(
    twin: PReLUNet,
    data: Dataset,
    values: Tensor,
    unit: Parts,
    ray: Parts,
    slackness: float,
    length: float,
    support: int,
) -> tuple[float, float]:
    """eps and delta of the best multipliers on the support and, unless it is whole, on `ray`."""
    count = int(torch.isfinite(values).sum())
    chosen = values.flatten().topk(min(support, count), largest=False)
    rows = chosen.indices // values.shape[1]
    one = torch.zeros(len(rows), values.shape[1], dtype=torch.float64, device=values.device)
    one.scatter_(1, (chosen.indices % values.shape[1]).unsqueeze(1), 1.0)
    x, toward = data.x[rows], cotangents(one, data.y[rows])
    gram, along = inner_products(twin, x, toward, ray)
    sizes = gram.diagonal().sqrt()
    inner = len(unit) * chosen.values / (sizes * length)  # Euler: <theta, grad g> = L g
    gram, along = gram / (sizes.unsqueeze(1) * sizes), along / sizes
    if len(rows) < count:
        corner = gram.new_ones(1, 1)
        gram = torch.cat([torch.cat([gram, along[None]]), torch.cat([along[:, None], corner])], 1)
        inner = torch.cat([inner, inner.new_tensor([_dot(unit, ray)])])
    c = nearest_in_cone(gram, inner)
    own, rest = c[: len(rows)] / sizes, float(c[len(rows) :].sum())
    near = gradient(twin, x, own.unsqueeze(1) * toward, unit)
    left = {name: unit[name] - near[name] - rest * ray[name] for name in unit}
    loose = float((own * (chosen.values - values.min())).sum()) / length
    return _norm(left), loose + rest * slackness


def _trained(net: PReLUNet, data: Dataset) -> tuple[Parts, PReLUNet, dict[str, float]]:
    """The trained parameters and the whole network in float64, over scales; or a refusal.

    The scales of neurons and votes are powers of two near the largest entry, one for both where
    both are trained, so that nothing is rounded and no square of a weight of 1e-170 underflows.
    """
    rule = "be a PReLUNet (the margin of a Grouped one is a difference of maxima)"
    _check.instance("net", net, PReLUNet, rule)
    _check.instance("data", data, Dataset, "be a Dataset")
    biases = [name for name in ("hidden_bias", "bias") if getattr(net, name) is not None]
    _check.require(not biases, "net", "have no biases: homogeneous in its weights", biases)
    names = [name for name in ("neurons", "votes") if getattr(net, name).requires_grad]
    _check.require(bool(names), "net", "have neurons or votes that are not frozen", "none")
    twin = double(net)
    assert isinstance(twin, PReLUNet)
    sizes = {name: float(part.abs().max()) for name, part in twin.named_parameters()}
    size = max(sizes[name] for name in names)
    _check.require(size > 0, "net", "have a trained weight that is not zero", "all zeros")
    scales = {
        name: 2.0 ** (math.frexp(size if name in names else own)[1] - 1)
        for name, own in sizes.items()
    }
    for name, part in twin.named_parameters():
        part.div_(scales[name])
    return {name: getattr(twin, name).detach() for name in names}, twin, scales


def _normalized(least: float, theta: Parts, scales: Mapping[str, float]) -> float:
    """The smallest margin over ||theta||^L, from both over their scales: a frozen one's is left."""
    left = math.prod(scale for name, scale in scales.items() if name not in theta)
    return least / _norm(theta) ** len(theta) * left


def _dot(left: Parts, right: Parts) -> float:
    return sum(float((left[name] * right[name]).sum()) for name in left)


def _norm(parts: Parts) -> float:
    largest = max(float(part.abs().max()) for part in parts.values())
    if largest == 0.0:
        return 0.0
    shrunk = {name: part / largest for name, part in parts.items()}
    return largest * math.sqrt(_dot(shrunk, shrunk))


def _scaled(parts: Parts, factor: float) -> dict[str, Tensor]:
    return {name: factor * part for name, part in parts.items()}
