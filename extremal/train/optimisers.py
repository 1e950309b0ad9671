"""Steps of gradient descent and of Adam, in place, with the state that they carry along."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models import PReLUNet, relu_power_with_slope
from extremal.train.losses import Loss, loss_and_gradient, trainable

# Shorter neurons are measured in float64, since the squares of float32 weights may underflow.
_LEAST_SAFE_LENGTH = 1e-12
# Adam keeps this share of the mean slope at each step: beta_1, PyTorch's default.
_MEAN_DECAY = 0.9
# Adam keeps this share of the mean squared slope at each step: beta_2, PyTorch's default.
_SQUARE_DECAY = 0.999
# Adam adds this to the root of the mean squared slope: epsilon, PyTorch's default.
_ROOT_OFFSET = 1e-8


def fused_sgd_step(net: PReLUNet, x: Tensor, y: Tensor, loss: Loss, lr: float) -> Tensor:
    """theta <- theta - lr grad L(theta) on the batch (x, y), in place; the loss before it.

    The gradient of `PReLUNet.parameter_gradient`, of which no copy is made: for p > 1
    w_j <- (1 + lr (p-1) sum_i q_ij r_ij^p / ||w_j||) w_j - lr sum_i q_ij p r_ij^(p-1) z_i, one
    product that adds to the weights. Directions are not formed either: <z, u> = <z, w>/||w||.
    """
    with torch.no_grad():
        w, votes = net.neurons, net.votes
        z = net.preparation(x)
        norms, s = _norms_and_arguments(net, z)
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


def _norms_and_arguments(net: PReLUNet, z: Tensor) -> tuple[Tensor, Tensor]:
    """||w_j|| (ones for p = 1) and the arguments s_ij of the activation, (n, width)."""
    w, offsets = net.neurons, net.hidden_bias
    if net.p == 1.0:
        return torch.ones_like(net.votes[0]), torch.nn.functional.linear(z, w, offsets)
    norms = torch.linalg.vector_norm(w, dim=1)
    if float(norms.min()) < _LEAST_SAFE_LENGTH:
        norms = torch.linalg.vector_norm(w, dim=1, dtype=torch.float64).to(w.dtype)
    safe = torch.where(norms > 0, norms, 1.0)
    s = (z @ w.T) / safe
    if offsets is None:
        return norms, s
    return norms, s + torch.where(norms > 0, offsets / safe, -torch.inf)


class Optimiser(Protocol):
    """A rule that turns gradients of a network's loss into steps."""

    net: nn.Module
    loss: Loss

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """A step on a batch; the loss before it."""
        ...

    def apply(self, gradient: Mapping[str, Tensor]) -> None:
        """A step along a given gradient, one tensor for each trainable parameter."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What is carried along, as tensors by name; `restore` takes them up."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        ...


class Sgd:
    """theta <- theta - lr s, s <- momentum s + gradient, each step of `flow_time_per_step`.

    Without momentum a `PReLUNet` is trained by `fused_sgd_step`, which makes no gradient.
    """

    def __init__(self, net: nn.Module, loss: Loss, lr: float, momentum: float) -> None:
        self.net, self.loss, self.parts = net, loss, trainable(net)
        self.lr = _check.number("lr", lr, above=0.0)
        self.momentum = _check.number("momentum", momentum, minimum=0.0)
        _check.require(self.momentum < 1.0, "momentum", "be below 1", momentum)
        self.flow_time_per_step = self.lr / (1.0 - self.momentum)
        fused = isinstance(net, PReLUNet) and self.momentum == 0.0
        self.velocities = {
            name: torch.zeros_like(part, requires_grad=False)
            for name, part in ({} if fused else self.parts).items()
        }

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """A step on a batch; the loss before it."""
        if isinstance(self.net, PReLUNet) and self.momentum == 0.0:
            return fused_sgd_step(self.net, x, y, self.loss, self.lr)
        value, gradient = loss_and_gradient(self.net, x, y, self.loss)
        self.apply(gradient)
        return value

    def apply(self, gradient: Mapping[str, Tensor]) -> None:
        """A step along a given gradient."""
        with torch.no_grad():
            for name, part in self.parts.items():
                slope = gradient[name]
                if name in self.velocities:
                    slope = self.velocities[name].mul_(self.momentum).add_(slope)
                part.sub_(slope, alpha=self.lr)

    def state(self) -> dict[str, Tensor]:
        """The velocities s."""
        return dict(self.velocities)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with the given velocities."""
        for name, velocity in self.velocities.items():
            velocity.copy_(tensors[name])


class Adam:
    """Adam: running means of gradients and of their squares, and the step that they make.

    `torch.optim` would load its compiler for this, which takes more than a second.
    """

    def __init__(self, net: nn.Module, loss: Loss, lr: float) -> None:
        self.net, self.loss, self.taken = net, loss, 0
        self.lr = _check.number("lr", lr, above=0.0)
        # Each parameter with its two running means, and room for the root of the second.
        self.moments = {
            name: (part, *(torch.zeros_like(part, requires_grad=False) for _ in range(3)))
            for name, part in trainable(net).items()
        }

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """A step on a batch; the loss before it."""
        value, gradient = loss_and_gradient(self.net, x, y, self.loss)
        self.apply(gradient)
        return value

    def apply(self, gradient: Mapping[str, Tensor]) -> None:
        """theta <- theta - lr m' / (sqrt(s') + eps), with sqrt(1 - .999^t) drawn out of s'."""
        self.taken += 1
        shrink = math.sqrt(1.0 - _SQUARE_DECAY**self.taken)
        size = self.lr * shrink / (1.0 - _MEAN_DECAY**self.taken)
        with torch.no_grad():
            for name, (part, mean, square, root) in self.moments.items():
                slope = gradient[name]
                mean.lerp_(slope, 1.0 - _MEAN_DECAY)
                square.mul_(_SQUARE_DECAY).addcmul_(slope, slope, value=1.0 - _SQUARE_DECAY)
                torch.sqrt(square, out=root).add_(_ROOT_OFFSET * shrink)
                part.addcdiv_(mean, root, value=-size)

    def state(self) -> dict[str, Tensor]:
        """Both means, and the number of steps."""
        kept = {"taken": torch.tensor(self.taken)}
        for name, (_, mean, square, _) in self.moments.items():
            kept |= {f"mean/{name}": mean, f"square/{name}": square}
        return kept

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with the given means."""
        self.taken = int(tensors["taken"])
        for name, (_, mean, square, _) in self.moments.items():
            mean.copy_(tensors[f"mean/{name}"])
            square.copy_(tensors[f"square/{name}"])
