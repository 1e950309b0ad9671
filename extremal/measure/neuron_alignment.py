"""Where neurons point, how much each contributes, and which directions nobody follows.

And how well filters have learned robust and non-robust features of patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import PatchData
from extremal.models import PatchCNN, PReLUNet


@dataclass(frozen=True, eq=False)
class PatchFeatures:
    """max over r of <w_ir, u_i> (`robust`, (k,)) and of <w_ir, v_i> (`dense`, (k,)), float64."""

    robust: Tensor
    dense: Tensor


def patch_features(net: PatchCNN, source: PatchData) -> PatchFeatures:
    """The correlations of filters with the features of their class: Li & Li 2025, Figure 3.

    Arguments:

    - `net`: a `PatchCNN`.
    - `source`: the `PatchData` with the features u and v, of the network's classes and patch size.
    """
    _check.instance("net", net, PatchCNN, "be a PatchCNN")
    _check.instance("source", source, PatchData, "be PatchData")
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


def contributions(net: PReLUNet) -> Tensor:
    """|v_j| ||w_j|| of each neuron, (width,), in float64; with several outputs ||V_j|| ||w_j||.

    Min & Vidal 2024, Figure 2(b).

    Arguments:

    - `net`: a `PReLUNet`.
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    with torch.no_grad():
        votes = torch.linalg.vector_norm(net.votes.double(), dim=0)
        return votes * torch.linalg.vector_norm(net.neurons.double(), dim=1)


def balancedness(net: PReLUNet) -> Tensor:
    """v_j^2 - ||w_j||^2 of each neuron, (width,): conserved by gradient flow (Du et al. 2018).

    Arguments:

    - `net`: a `PReLUNet`. With several outputs v_j^2 is ||V_j||^2.
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    with torch.no_grad():
        return net.votes.double().square().sum(0) - net.neurons.double().square().sum(1)


def cosines(neurons: Tensor, directions: Tensor) -> Tensor:
    """cos(w_j, direction_k), (width, K), in float64; zero for a zero vector.

    Arguments:

    - `neurons`: weights (width, dim), one row w_j for each neuron.
    - `directions`: directions (K, dim), of any length.
    """
    # Not `_check.matrix`: neurons that diverge while they are watched have no finite cosines.
    rule = "be a floating-point tensor of shape (width, dim)"
    _check.instance("neurons", neurons, Tensor, rule)
    good = neurons.ndim == 2 and neurons.is_floating_point()
    _check.require(good, "neurons", rule, f"shape {tuple(neurons.shape)} of {neurons.dtype}")
    _check.matrix("directions", directions, columns=neurons.shape[1])
    with torch.no_grad():
        w, d = neurons.double(), directions.double()
        return unit_rows(w) @ unit_rows(d).T


def stable_rank(matrix: Tensor) -> float:
    """||A||_F^2 / ||A||^2 of a matrix, a smooth stand-in for its rank (Section 5.2.1).

    Arguments:

    - `matrix`: A, floating-point with two dimensions, finite and not all zeros.
    """
    _check.matrix("matrix", matrix)
    a = matrix.detach().double()
    gram = a.T @ a if a.shape[0] >= a.shape[1] else a @ a.T
    top = float(torch.linalg.eigvalsh(gram)[-1])
    _check.require(top > 0, "matrix", "have a non-zero entry", "all zeros")
    return float(gram.trace()) / top


@dataclass(frozen=True, eq=False)
class Following:
    """Which direction each dominant neuron follows, and which directions nobody follows."""

    neurons: Tensor  # (m,), indices of dominant neurons by falling contribution
    contribution: Tensor  # (m,): |v_j| ||w_j|| of these neurons
    direction: Tensor  # (m,), the direction of largest cosine
    cosine: Tensor  # (m,), that cosine
    unfollowed: tuple[int, ...]  # directions with no dominant neuron above the threshold
    threshold: float  # the least cosine that counts as following

    @property
    def lowest(self) -> float:
        """The smallest of the dominant neurons' best cosines."""
        return float(self.cosine.min())


def following(
    net: PReLUNet,
    directions: Tensor,
    *,
    share: float = 0.99,
    top: int | None = None,
    threshold: float = 0.9,
) -> Following:
    """Match the dominant neurons with directions (K, dim).

    A neuron follows the direction of largest cosine, if that is large enough.

    Arguments:

    - `net`: a `PReLUNet`.
    - `directions`: directions (K, dim), of any length.
    - `share`: dominant are the fewest neurons that carry this share of all contributions; 0.99 by
      default.
    - `top`: dominant are as many neurons of largest contribution instead; None for `share`.
    - `threshold`: the least cosine that counts as following, 0.9 by default.
    """
    _check.number("share", share, above=0.0, maximum=1.0)
    _check.number("threshold", threshold, minimum=-1.0, maximum=1.0)
    mass = contributions(net)
    order = torch.argsort(mass, descending=True, stable=True)
    if top is None:
        running = mass[order].cumsum(0)
        top = int((running < share * running[-1]).sum()) + 1
    order = order[: _check.integer("top", top, minimum=1)]
    best = cosines(net.neurons[order], directions).max(dim=1)
    followed = set(best.indices[best.values >= threshold].tolist())
    left = tuple(k for k in range(len(directions)) if k not in followed)
    return Following(order, mass[order], best.indices, best.values, left, threshold)
