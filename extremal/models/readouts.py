"""A fine-label network read as a coarse one.

What a network computes before its last layer, as a module of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check


class Representation(nn.Module):
    """G(x), (n, width): a network without its last linear layer, of which it shares the weights.

    Of a network with a method `hidden` (`PReLUNet`, `DeepPReLU`, `ConvPReLU`) that is what it
    returns; an `nn.Sequential` is run up to its last `nn.Linear`. G is the map whose inverse images
    Li & Li 2025 call robust or non-robust features, by how the network was trained.

    Arguments:

    - `net`: of one of these two kinds; others, and a lone linear layer, are refused.
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
    """||G(x) - wanted||_2 for each point, (n,), and the gradient of half its square in x.

    Arguments:

    - `represent`: the map G, a module from points (n, dim) to (n, width).
    - `x`: points (n, dim).
    - `wanted`: the representation that each point should have (n, width).
    """
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        missing = represent(point) - wanted
        (gradient,) = torch.autograd.grad(0.5 * missing.square().sum(), point)
    return torch.linalg.vector_norm(missing.detach(), dim=1), gradient


def represented(represent: nn.Module, x: Tensor) -> Tensor:
    """G(x), (n, width), without a graph, if it is one finite vector for each point.

    Arguments:

    - `represent`: the map G, a module from points (n, dim) to (n, width).
    - `x`: points (n, dim).
    """
    _check.module("represent", represent)
    with torch.no_grad():
        found = represent(x)
    rule = f"give a floating-point ({len(x)}, width) tensor"
    good = isinstance(found, Tensor) and found.ndim == 2 and len(found) == len(x)
    seen = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    _check.require(good and found.is_floating_point(), "represent", rule, seen)
    _check.finite("represent(x)", found)
    return found


class Grouped(nn.Module):
    """The best fine output of each group: out_g(x) = max of net_o(x) over outputs o in group g.

    `groups` gives the group (0..G-1) of each of the network's outputs, so that the argmax over
    groups is the group of the argmax over outputs, and the margin of the result is the best own
    output minus the best foreign one. With `signed=True` and two groups the result has one output,
    best of group 1 minus best of group 0, for labels -1 / +1.

    Arguments:

    - `net`: any module with several outputs (n, C).
    - `signed`: whether to give one output for labels -1 / +1 (default False: one for each group).
    """

    groups: Tensor

    def __init__(self, net: nn.Module, groups: Tensor, *, signed: bool = False) -> None:
        super().__init__()
        _check.module("net", net)
        rule = "be a 1-D integer tensor with the group of each output, every group 0..G-1 used"
        _check.require(isinstance(groups, Tensor), "groups", rule, type(groups).__name__)
        whole = groups.ndim == 1 and not groups.is_floating_point() and len(groups) >= 2
        _check.require(whole, "groups", rule, f"shape {tuple(groups.shape)} of {groups.dtype}")
        used = torch.unique(groups).tolist()
        _check.require(used == list(range(len(used))), "groups", rule, used)
        _check.require(len(used) >= 2, "groups", "name at least two groups", used)
        outputs = getattr(net, "outputs", len(groups))
        fits = outputs == len(groups)
        _check.require(fits, "groups", f"have one entry for each of {outputs} outputs", len(groups))
        two = not signed or len(used) == 2
        _check.require(two, "signed", "be used with two groups only", f"{len(used)} groups")
        self.net = net
        self.signed = signed
        self.outputs = 1 if signed else len(used)
        self.register_buffer("groups", groups.to(torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(n, G) best outputs of each group, or their difference (n,) where signed."""
        out = self.net(x)  # (n, outputs)
        count = int(self.groups.max()) + 1
        best = torch.stack([out[:, self.groups == group].amax(1) for group in range(count)], dim=1)
        return best[:, 1] - best[:, 0] if self.signed else best
