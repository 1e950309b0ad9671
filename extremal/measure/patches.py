"""How well filters have learned robust and non-robust features of patches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal.data import Patches
from extremal.models import PatchCNN


@dataclass(frozen=True, eq=False)
class PatchFeatures:
    """max over r of <w_ir, u_i> (`robust`, (k,)) and of <w_ir, v_i> (`dense`, (k,)), float64."""

    robust: Tensor
    dense: Tensor


def patch_features(net: PatchCNN, source: Patches) -> PatchFeatures:
    """The correlations of filters with the features of their class: Li & Li 2025, Figure 3."""
    _check.instance("net", net, PatchCNN, "be a PatchCNN")
    _check.instance("source", source, Patches, "be Patches")
    fits = (net.outputs, net.patch_dim) == (source.classes, source.patch_dim)
    rule = f"have {net.outputs} classes and patches of {net.patch_dim}"
    _check.require(fits, "source", rule, source)
    with torch.no_grad():
        filters = net.filters.double()  # (k, m, d)
        learned = [
            torch.einsum("kmd,kd->km", filters, features).amax(1)
            for features in (source.robust_features, source.dense_features)
        ]
    return PatchFeatures(*learned)
