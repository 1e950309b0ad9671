"""Margins along training: the normalised margin, and how far it is from being the largest.

A network's margins are constraints on its trained parameters theta, g_i = y_i f(x_i), or
g_it = f_y(x_i) - f_t(x_i), t != y, with several outputs. A combination of their gradients is
represented by cotangents (n, outputs): the gradient of sum_io cotangent_io f_o(x_i). Networks are
float64 and have no biases; theta and gradients are flat vectors, the trained parameters one after
the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import (
    ParameterGradient,
    PReLUNet,
    float64_copy,
    margin,
    polar_form,
    relu_power_with_slope,
)

# Points that are put through the network at a time.
_BATCH_POINTS = 2048
# Eigenvalues of a Gram matrix below this share of the largest one are rounding.
_ROUNDING_EIGENVALUE_SHARE = 1e-15
# Non-negative least squares is given up after this many iterations for each vector of the cone;
# scipy's own limit of 3 is lower.
_MOST_ITERATIONS_PER_VECTOR = 10


def constraint_values(net: PReLUNet, data: Dataset) -> Tensor:
    """The constraints' values: (n, 1), or (n, outputs) with infinity at each point's own label."""
    y = _check.labels("data.y", data.y, count=len(data), outputs=net.outputs)
    with torch.no_grad():
        out = torch.cat([net(x.double()) for x in data.x.split(_BATCH_POINTS)])
    if net.outputs == 1:
        return (y * out).unsqueeze(1)
    own = nn.functional.one_hot(y, net.outputs).bool()
    return (out[own].unsqueeze(1) - out).masked_fill(own, torch.inf)


def cotangents(weights: Tensor, y: Tensor) -> Tensor:
    """Those of sum weights_it g_it; weights are like `constraint_values`, 0 at the own label."""
    if weights.shape[1] == 1:
        return y.unsqueeze(1) * weights
    own = nn.functional.one_hot(y, weights.shape[1])
    return own * weights.sum(1, keepdim=True) - weights


def gradient(net: PReLUNet, x: Tensor, cotangent: Tensor, names: Sequence[str]) -> Tensor:
    """The gradient of the combination in the named parameters, a flat vector, in batches."""
    parts = zip(x.split(_BATCH_POINTS), cotangent.split(_BATCH_POINTS), strict=True)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for some, weight in parts:
        total = total + _flat(net.parameter_gradient(some.double(), weight), names)
    return total


def inner_products(
    net: PReLUNet, x: Tensor, cotangent: Tensor, ray: Tensor, names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Inner products of m single gradients with each other (m, m) and with a flat `ray` (m,).

    Over the named parameters, and without forming the gradients, which have width * dim
    entries each. With q = cotangent @ votes, r = relu(<z, u_j>): the gradient in w_j is
    q_j (p r^(p-1) z - (p-1) r^p u_j), and since r^(p-1) <z, u_j> = r^p, two of them have the inner
    product q_j q'_j (p^2 (r r')^(p-1) <z, z'> - (p^2 - 1) (r r')^p).
    """
    sizes = [getattr(net, name).numel() for name in names]
    rays = dict(zip(names, ray.split(sizes), strict=True))
    with torch.no_grad():
        u = polar_form(net).directions
        z = net.preparation(x.double())
        power, slope = relu_power_with_slope(z @ u.T, net.p)  # (m, width)
        q = cotangent @ net.votes
        gram, along = z.new_zeros(len(x), len(x)), z.new_zeros(len(x))
        if "neurons" in rays:
            curved, radial, rows = q * slope, q * power, rays["neurons"].view_as(u)
            gram += (curved @ curved.T) * (z @ z.T) - (net.p**2 - 1.0) * (radial @ radial.T)
            along += (curved * (z @ rows.T)).sum(1)
            along -= (net.p - 1.0) * (radial @ (u * rows).sum(1))
        if "votes" in rays:
            hidden = power * torch.linalg.vector_norm(net.neurons, dim=1)
            gram += (cotangent @ cotangent.T) * (hidden @ hidden.T)
            along += ((cotangent @ rays["votes"].view_as(net.votes)) * hidden).sum(1)
    return gram, along


def nearest_in_cone(gram: Tensor, inner: Tensor) -> Tensor:
    """The c >= 0 (m,) that minimises ||t - sum_a c_a u_a|| for unit vectors u_a and a unit t.

    `gram` (m, m) holds <u_a, u_b> and `inner` (m,) holds <u_a, t>, in float64: the vectors
    themselves may be too long to keep. Non-negative least squares in the coordinates of the
    eigenvectors of `gram`, without those whose eigenvalues are rounding. A RuntimeError if that
    does not end within `_MOST_ITERATIONS_PER_VECTOR` * m iterations.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - it takes as long as all of the package

    values, vectors = torch.linalg.eigh(gram)
    known = values > _ROUNDING_EIGENVALUE_SHARE * values[-1]
    root, vectors = values[known].sqrt(), vectors[:, known]
    rows, target = root.unsqueeze(1) * vectors.T, (vectors.T @ inner) / root
    most = _MOST_ITERATIONS_PER_VECTOR * len(inner)
    try:
        c, _ = nnls(rows.cpu().numpy(), target.cpu().numpy(), maxiter=most)
    except RuntimeError as error:
        told = f"no nearest point in the cone of {len(inner)} vectors within {most} iterations"
        raise RuntimeError(f"{told}: nnls ended with {error}") from error
    return torch.from_numpy(c).to(inner.device)


@dataclass(frozen=True)
class KKT:
    """How far a network is from a KKT point of min ||theta||^2/2 with all margins >= 1.

    All eps and delta (see `kkt_residual`) are 0 at a KKT point, relative to its norm and its
    squared norm. They are infinite where a margin is not positive: no multiple of theta then has
    all margins >= 1.
    """

    margin: float  # the normalised one
    degree: int  # L, the degree of homogeneity
    stationarity: float  # eps, by the exponential loss's multipliers
    slackness: float  # delta, by the exponential loss's multipliers
    refined_stationarity: float  # eps, by the multipliers that fit best
    refined_slackness: float  # delta, by the multipliers that fit best


def normalized_margin(net: PReLUNet, data: Dataset) -> float:
    """min_i margin_i / ||theta||^L, in float64, for a network that is L-homogeneous in theta.

    theta are the trained parameters. A `PReLUNet` without biases has degree L = 2 in neurons and
    votes, and degree 1 in one of them where the other is frozen; a preparation acts on the input
    and changes nothing of that. Under gradient flow it rises once the loss is small, up to a term
    that vanishes with the loss (Lyu & Li 2020, "Gradient descent maximizes the margin of
    homogeneous neural networks").

    Arguments:

    - `net`: a `PReLUNet` without biases; its frozen weights are no part of theta.
    - `data`: the `Dataset` whose margins count, usually the training data; points of any dtype.
    """
    twin, names, scales = _trained(net, data)
    pairs = zip(data.x.split(_BATCH_POINTS), data.y.split(_BATCH_POINTS), strict=True)
    with torch.no_grad():
        least = min(float(margin(twin, x.double(), y).min()) for x, y in pairs)
    return _normalized(least, twin, names, scales)


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
    products (`nearest_in_cone`), with eps recomputed from the gradients.

    Arguments:

    - `net`: a `PReLUNet` without biases; its frozen weights are no part of theta.
    - `data`: the `Dataset` whose margins count, usually the training data; points of any dtype.
    - `support`: how many of the smallest constraints the refined multipliers may use, 256 by
      default; more make them exacter, in more time.
    """
    twin, names, scales = _trained(net, data)
    _check.integer("support", support, minimum=1)
    theta, values = _flat(twin, names), constraint_values(twin, data)
    least, length = float(values.min()), _norm(theta)
    normalized = _normalized(least, twin, names, scales)
    if not least > 0.0:
        return KKT(normalized, len(names), *[math.inf] * 4)
    # The loss weighs the margins as they are; the factor exp(-least) cancels, as scales do below.
    weights = torch.exp((least - values) * scales["neurons"] * scales["votes"])
    h = gradient(twin, data.x, cotangents(weights, data.y), names)
    ray = h / _norm(h)
    loose = torch.where(weights > 0, weights * (values - least), 0.0)
    slackness = float(loose.sum()) / (_norm(h) * length)
    eps = _norm(theta / length - ray)
    fitted = _refined(twin, data, values, names, ray, slackness, support)
    return KKT(normalized, len(names), eps, slackness, *fitted)


def _refined(
    twin: PReLUNet,
    data: Dataset,
    values: Tensor,
    names: Sequence[str],
    ray: Tensor,
    slackness: float,
    support: int,
) -> tuple[float, float]:
    """eps and delta of the best multipliers on the support and, unless it is whole, on `ray`."""
    theta = _flat(twin, names)
    length = _norm(theta)
    unit = theta / length
    count = int(torch.isfinite(values).sum())
    chosen = values.flatten().topk(min(support, count), largest=False)
    rows = chosen.indices // values.shape[1]
    one = torch.zeros(len(rows), values.shape[1], dtype=torch.float64, device=values.device)
    one.scatter_(1, (chosen.indices % values.shape[1]).unsqueeze(1), 1.0)
    x, toward = data.x[rows], cotangents(one, data.y[rows])
    gram, along = inner_products(twin, x, toward, ray, names)
    sizes = gram.diagonal().sqrt()
    inner = len(names) * chosen.values / (sizes * length)  # Euler: <theta, grad g> = L g
    gram, along = gram / (sizes.unsqueeze(1) * sizes), along / sizes
    if len(rows) < count:
        corner = gram.new_ones(1, 1)
        gram = torch.cat([torch.cat([gram, along[None]]), torch.cat([along[:, None], corner])], 1)
        inner = torch.cat([inner, (unit @ ray).reshape(1)])
    c = nearest_in_cone(gram, inner)
    own, rest = c[: len(rows)] / sizes, float(c[len(rows) :].sum())
    near = gradient(twin, x, own.unsqueeze(1) * toward, names)
    loose = float((own * (chosen.values - values.min())).sum()) / length
    return _norm(unit - near - rest * ray), loose + rest * slackness


def _trained(net: PReLUNet, data: Dataset) -> tuple[PReLUNet, list[str], dict[str, float]]:
    """The network in float64 over scales, and the names of its trained parameters; or a refusal.

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
    twin = float64_copy(net)
    sizes = {name: float(part.abs().max()) for name, part in twin.named_parameters()}
    size = max(sizes[name] for name in names)
    _check.require(size > 0, "net", "have a trained weight that is not zero", "all zeros")
    scales = {
        name: 2.0 ** (math.frexp(size if name in names else own)[1] - 1)
        for name, own in sizes.items()
    }
    for name, part in twin.named_parameters():
        part.div_(scales[name])
    return twin, names, scales


def _normalized(
    least: float, twin: PReLUNet, names: Sequence[str], scales: Mapping[str, float]
) -> float:
    """The smallest margin over ||theta||^L, from both over their scales: a frozen one's is left."""
    left = math.prod(scale for name, scale in scales.items() if name not in names)
    return least / _norm(_flat(twin, names)) ** len(names) * left


def _flat(parts: PReLUNet | ParameterGradient, names: Sequence[str]) -> Tensor:
    """The named parameters, or the gradients in them, one after the other."""
    return torch.cat([getattr(parts, name).detach().flatten() for name in names])


def _norm(vector: Tensor) -> float:
    """The norm of a vector whose squares may underflow."""
    largest = float(vector.abs().max())
    return largest * float(torch.linalg.vector_norm(vector / largest)) if largest > 0.0 else 0.0
