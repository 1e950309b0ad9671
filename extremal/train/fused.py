"""A plain gradient step of a shallow network with the update folded into the matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.models import PReLUNet
from extremal.models.activations import relu_power_with_slope
from extremal.train.losses import Loss

_SMALL = 1e-12  # below this length the squares of float32 weights are not safe


def descend(net: PReLUNet, x: Tensor, y: Tensor, loss: Loss, lr: float) -> Tensor:
    """theta <- theta - lr grad L(theta) on the batch (x, y), in place; the loss before it.

    The gradient of `PReLUNet.parameter_gradient`, of which no copy is made: for p > 1
    w_j <- (1 + lr (p-1) sum_i q_ij r_ij^p / ||w_j||) w_j - lr sum_i q_ij p r_ij^(p-1) z_i, one
    product that adds to the weights. Directions are not formed either: <z, u> = <z, w>/||w||.
    """
    with torch.no_grad():
        w, votes = net.neurons, net.votes
        z = net.preparation(x)
        norms, s = _inner(net, z)
        power, slope = relu_power_with_slope(s, net.p)
        out = power @ (votes * norms).T
        out = out if net.bias is None else out + net.bias
        out = out.squeeze(-1) if net.outputs == 1 else out
        value = loss.value(out, y)
        given = loss.slope(out, y).reshape(len(x), -1)  # (n, outputs)
        q = given @ votes
        across = q * slope  # (n, width)
        if votes.requires_grad:
            votes.sub_(given.T @ power * norms, alpha=lr)
        if net.hidden_bias is not None and net.hidden_bias.requires_grad:
            net.hidden_bias.sub_(across.sum(0), alpha=lr)
        if net.bias is not None and net.bias.requires_grad:
            net.bias.sub_(given.sum(0), alpha=lr)
        if w.requires_grad:
            if net.p != 1.0:
                along = (net.p - 1.0) * (q * power).sum(0)
                w.mul_((1.0 + lr * along / torch.where(norms > 0, norms, 1.0)).unsqueeze(-1))
            w.addmm_(across.T, z, alpha=-lr)
        return value


def _inner(net: PReLUNet, z: Tensor) -> tuple[Tensor, Tensor]:
    """||w_j|| (ones for p = 1) and the arguments s_ij of the activation, (n, width)."""
    w, offsets = net.neurons, net.hidden_bias
    if net.p == 1.0:
        return torch.ones_like(net.votes[0]), torch.nn.functional.linear(z, w, offsets)
    norms = torch.linalg.vector_norm(w, dim=1)
    if float(norms.min()) < _SMALL:
        norms = torch.linalg.vector_norm(w, dim=1, dtype=torch.float64).to(w.dtype)
    safe = torch.where(norms > 0, norms, 1.0)
    s = (z @ w.T) / safe
    if offsets is None:
        return norms, s
    return norms, s + torch.where(norms > 0, offsets / safe, -torch.inf)
