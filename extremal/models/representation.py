"""What a network computes before its last layer, as a module of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check


class Representation(nn.Module):
    """G(x), (n, width): a network without its last linear layer, of which it shares the weights.

    Of a network with a method `hidden` (`PReLUNet`, `DeepPReLU`, `ConvPReLU`) that is what it
    returns; an `nn.Sequential` is run up to its last `nn.Linear`. G is the map whose inverse images
    Li & Li 2025 call robust or non-robust features, by how the network was trained.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = _check.module("net", net)
        self._front: nn.Module | None = None
        if isinstance(net, nn.Sequential):
            last = [place for place, part in enumerate(net) if isinstance(part, nn.Linear)][-1:]
            rule = "have a layer before its last linear one"
            _check.require(bool(last) and last[0] > 0, "net", rule, type(net).__name__)
            self._front = net[: last[0]]
        else:
            known = callable(getattr(net, "hidden", None))
            rule = "be an nn.Sequential or have a method `hidden`"
            _check.require(known, "net", rule, type(net).__name__)

    def forward(self, x: Tensor) -> Tensor:
        """G(x), (n, width)."""
        found: Tensor = self.net.hidden(x) if self._front is None else self._front(x)  # type: ignore[operator]
        return found


def gap_gradient(represent: nn.Module, x: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """||G(x) - wanted||_2 for each point, (n,), and the gradient of half its square in x."""
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        missing = represent(point) - wanted
        (gradient,) = torch.autograd.grad(0.5 * missing.square().sum(), point)
    return torch.linalg.vector_norm(missing.detach(), dim=1), gradient


def represented(represent: nn.Module, x: Tensor) -> Tensor:
    """G(x), (n, width), without a graph, if it is one finite vector for each point."""
    _check.module("represent", represent)
    with torch.no_grad():
        found = represent(x)
    rule = f"give a floating-point ({len(x)}, width) tensor"
    good = isinstance(found, Tensor) and found.ndim == 2 and len(found) == len(x)
    seen = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    _check.require(good and found.is_floating_point(), "represent", rule, seen)
    _check.finite("represent(x)", found)
    return found
