"""A network's outputs read in another way: by groups, as a signed sum, or before the last layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.convolutional import ConvPReLU
from extremal.models.fully_connected import MLP, DeepPReLU
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet


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
        """G at `x` (n, dim), (n, width)."""
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


def representations(represent: nn.Module, x: Tensor) -> Tensor:
    """G(x), (n, width), without a graph, if it is one finite vector for each point.

    Arguments:

    - `represent`: the map G, a module from points (n, dim) to (n, width).
    - `x`: points (n, dim).
    """
    _check.module("represent", represent)
    with torch.no_grad():
        found = represent(x)
    return _check.tensor("represent(x)", found, (len(x), "width"))


class Grouped(nn.Module):
    """The best fine output of each group: out_g(x) = max of net_o(x) over outputs o in group g.

    The argmax over groups is the group of the argmax over outputs, and the margin of the result is
    the best own output minus the best foreign one. With `signed=True` and two groups the result has
    one output, best of group 1 minus best of group 0, for labels -1 / +1.

    Arguments:

    - `net`: any module with several outputs (n, C).
    - `groups`: the group 0..G-1 of each of the network's outputs, (C,).
    - `signed`: whether to give one output for labels -1 / +1 (default False: one for each group).
    """

    groups: Tensor

    def __init__(self, net: nn.Module, groups: Tensor, *, signed: bool = False) -> None:
        super().__init__()
        _check.module("net", net)
        rule = "be a 1-D integer tensor with the group of each output, every group 0..G-1 used"
        _check.tensor("groups", groups, ("outputs",), whole=True, rule=rule)
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
        """(n, G) best outputs of each group at `x`, or their difference (n,) where signed."""
        out = self.net(x)  # (n, outputs)
        count = int(self.groups.max()) + 1
        best = torch.stack([out[:, self.groups == group].amax(1) for group in range(count)], dim=1)
        return best[:, 1] - best[:, 0] if self.signed else best


def signed_sum(net: PReLUNet, signs: Tensor) -> PReLUNet:
    """A fine-label network read as a binary one: the signed sum of its outputs, for -1 / +1.

    The result is a network of one output with the same neurons, so that all attacks and
    certificates apply; `Grouped` is the reading by argmax.

    Arguments:

    - `net`: a `PReLUNet` with several outputs; its weights are copied.
    - `signs`: +1 or -1 for each output, (outputs,).
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    weight = checked_signs(signs, net.outputs).to(net.votes)
    bias = None if net.bias is None else (weight @ net.bias.detach()).unsqueeze(0)
    hidden = None if net.hidden_bias is None else net.hidden_bias.detach()
    votes = (weight @ net.votes.detach()).unsqueeze(0)
    return PReLUNet(
        net.dim,
        net.width,
        net.p,
        bias=bias is not None,
        hidden_bias=hidden is not None,
        preparation=net.preparation,
        init=Explicit(net.neurons.detach(), votes, hidden, bias),
        dtype=net.neurons.dtype,
        generator=torch.Generator(),
    )


class LogOdds(nn.Module):
    """log of the summed probabilities of the positive outputs, over that of the negative ones.

    A fine-label network's softmax read as a binary one: the objective of the attack that Li et al.
    2025 run on it, as -log of the true group's probability falls with y times this.

    Arguments:

    - `net`: any module with several outputs (n, C), read as logits.
    - `signs`: +1 or -1 for each output (C,), both of them present.
    """

    signs: Tensor

    def __init__(self, net: nn.Module, signs: Tensor) -> None:
        super().__init__()
        self.net = _check.module("net", net)
        count = getattr(net, "outputs", None)
        self.register_buffer("signs", checked_signs(signs, count))
        self.outputs = 1

    def forward(self, x: Tensor) -> Tensor:
        """The output (n,) at `x` (n, dim)."""
        out = self.net(x)
        return out[:, self.signs > 0].logsumexp(1) - out[:, self.signs < 0].logsumexp(1)


def input_dim(net: nn.Module) -> int | None:
    """How many coordinates a point of a network has, or None where the network does not say.

    A `PReLUNet`, `MLP`, `DeepPReLU` or `ConvPReLU` says it, and so does one that is read in another
    way (`Grouped`, `LogOdds`, `Representation`). An attribute `dim` of any other module may mean
    something else.

    Arguments:

    - `net`: any module.
    """
    inner = net.net if isinstance(net, Grouped | LogOdds | Representation) else net
    return inner.dim if isinstance(inner, PReLUNet | MLP | DeepPReLU | ConvPReLU) else None


def checked_signs(signs: Tensor, count: int | None, name: str = "signs") -> Tensor:
    """Signs (count,) as int64, once they are known to be -1 and +1, both of them."""
    rule = "be a tensor of -1 and +1, both of them, one for each output"
    _check.instance(name, signs, Tensor, rule)
    both = signs.ndim == 1 and set(signs.tolist()) == {-1, 1}
    _check.require(both, name, rule, signs.tolist())
    right = count is None or len(signs) == count
    _check.require(right, name, f"have {count} entries", len(signs))
    return signs.to(torch.int64)
