"""A fine-label network read as a coarse one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check


class Grouped(nn.Module):
    """The best fine output of each group: out_g(x) = max of net_o(x) over outputs o in group g.

    `groups` gives the group (0..G-1) of each of the network's outputs, so that the argmax over
    groups is the group of the argmax over outputs, and the margin of the result is the best own
    output minus the best foreign one. With `signed=True` and two groups the result has one output,
    best of group 1 minus best of group 0, for labels -1 / +1.
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
