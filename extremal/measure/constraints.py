"""A network's margins as constraints: values, gradients in the parameters, and inner products.

Constraints are g_i = y_i f(x_i), or g_it = f_y(x_i) - f_t(x_i), t != y, with several outputs.
A combination of their gradients is told by cotangents (n, outputs): the gradient of
sum_io cotangent_io f_o(x_i). Networks are float64 and have no biases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet, polar
from extremal.models.activations import relu_power_with_slope

Parts = Mapping[str, Tensor]
_BATCH = 2048


def gaps(net: PReLUNet, data: Dataset) -> Tensor:
    """The constraints' values: (n, 1), or (n, outputs) with infinity at each point's own label."""
    y = _check.labels("data.y", data.y, count=len(data), outputs=net.outputs)
    with torch.no_grad():
        out = torch.cat([net(x.double()) for x in data.x.split(_BATCH)])
    if net.outputs == 1:
        return (y * out).unsqueeze(1)
    own = nn.functional.one_hot(y, net.outputs).bool()
    return (out[own].unsqueeze(1) - out).masked_fill(own, torch.inf)


def cotangents(weights: Tensor, y: Tensor) -> Tensor:
    """Those of sum weights_it g_it; weights have the shape of `gaps` and are 0 at the own label."""
    if weights.shape[1] == 1:
        return y.unsqueeze(1) * weights
    own = nn.functional.one_hot(y, weights.shape[1])
    return own * weights.sum(1, keepdim=True) - weights


def gradient(
    net: PReLUNet, x: Tensor, cotangent: Tensor, names: Iterable[str]
) -> dict[str, Tensor]:
    """The gradient of the combination in the named parameters, in batches."""
    total: dict[str, Tensor] = {}
    for some, weight in zip(x.split(_BATCH), cotangent.split(_BATCH), strict=True):
        found = net.parameter_gradient(some.double(), weight)
        for name in names:
            part = getattr(found, name)
            total[name] = total[name] + part if name in total else part
    return total


def inner_products(
    net: PReLUNet, x: Tensor, cotangent: Tensor, ray: Parts
) -> tuple[Tensor, Tensor]:
    """Inner products of m single gradients with each other (m, m) and with `ray` (m,).

    Over the parameters that `ray` names, and without forming the gradients, which have width * dim
    entries each. With q = cotangent @ votes, r = relu(<z, u_j>): the gradient in w_j is
    q_j (p r^(p-1) z - (p-1) r^p u_j), and since r^(p-1) <z, u_j> = r^p, two of them have the inner
    product q_j q'_j (p^2 (r r')^(p-1) <z, z'> - (p^2 - 1) (r r')^p).
    """
    with torch.no_grad():
        u = polar(net).directions
        z = net.preparation(x.double())
        power, slope = relu_power_with_slope(z @ u.T, net.p)  # (m, width)
        q = cotangent @ net.votes
        gram, along = z.new_zeros(len(x), len(x)), z.new_zeros(len(x))
        if "neurons" in ray:
            bent, radial = q * slope, q * power
            gram += (bent @ bent.T) * (z @ z.T) - (net.p**2 - 1.0) * (radial @ radial.T)
            along += (bent * (z @ ray["neurons"].T)).sum(1)
            along -= (net.p - 1.0) * (radial @ (u * ray["neurons"]).sum(1))
        if "votes" in ray:
            hidden = power * torch.linalg.vector_norm(net.neurons, dim=1)
            gram += (cotangent @ cotangent.T) * (hidden @ hidden.T)
            along += ((cotangent @ ray["votes"]) * hidden).sum(1)
    return gram, along
