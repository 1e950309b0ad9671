"""What weights are made of: their start, coefficients on features and on noise, and a rest.

Li, Pan, Lyu & Li 2025: the Lemma on weight decomposition, and what its coefficients say about
averaged and decoupled features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal.data import Dataset, GaussianClusters

# The least coefficient on an own feature, times the mean own one, with which a condition holds.
_LEAST_OWN_SHARE = 0.3
# The largest coefficient on another feature, times the mean own one, with which a condition holds.
_MOST_OTHER_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Decomposition:
    """w = start + `features` @ mu + `noise` @ xi + rest, for each neuron.

    Where the coefficients are not unique they are those of least norm.
    """

    features: Tensor  # (width, K), the lambda
    noise: Tensor  # (width, n), the sigma
    rest: Tensor  # (width,), norms of what is left, as shares of ||w - start||
    condition: float  # the condition number of features and noise together
    exact: bool  # whether these are independent: the coefficients are unique


def decompose(neurons: Tensor, start: Tensor, data: Dataset) -> Decomposition:
    """Decompose neurons (width, dim) that were trained on `data` from `start` (width, dim).

    The mu are the centres of the data's source, and xi_i = x_i - mu of its cluster. By least
    squares in float64; gradient descent moves weights within the span of the points, so that a rest
    beyond rounding has another cause, such as weight decay.

    Arguments:

    - `neurons`: weights (width, dim) at the end of training.
    - `start`: weights (width, dim) before training.
    - `data`: the training data; it must come from `GaussianClusters` and have known groups.
    """
    _check.matrix("neurons", neurons)
    _check.matrix("start", start, columns=neurons.shape[1])
    same = neurons.shape == start.shape
    _check.require(same, "start", f"have the shape {tuple(neurons.shape)}", tuple(start.shape))
    _check.instance("data", data, Dataset, "be a Dataset")
    rule = "come from GaussianClusters, with the cluster of each point as its group"
    source = _check.instance("data", data.source, GaussianClusters, rule)
    group = _check.instance("data", data.group, Tensor, rule)
    fits = data.dim == source.dim == neurons.shape[1]
    _check.require(fits, "data", f"have points of {neurons.shape[1]} coordinates", data.dim)
    largest = int(group.max())
    _check.require(largest < source.count, "data", f"have groups below {source.count}", largest)
    centers = source.centers.to(data.x.device)
    noise = data.x.double() - centers[group]
    parts = torch.cat([centers, noise])  # (K + n, dim)
    moved = neurons.detach().double() - start.detach().double()
    left, size, right = torch.linalg.svd(parts, full_matrices=False)
    kept = size > size[0] * 1e-12 * max(parts.shape)
    inverse = torch.where(kept, 1.0 / torch.where(kept, size, 1.0), 0.0)
    found = ((moved @ right.T) * inverse) @ left.T  # (width, K + n)
    length = torch.linalg.vector_norm(moved, dim=1)
    rest = torch.linalg.vector_norm(moved - found @ parts, dim=1)
    rest = rest / torch.where(length > 0, length, 1.0)
    exact = len(parts) <= parts.shape[1] and bool(kept.all())
    count = len(centers)
    condition = float(size[0] / size[-1]) if size[-1] > 0 else float("inf")
    return Decomposition(found[:, :count], found[:, count:], rest, condition, exact)


@dataclass(frozen=True)
class Averaging:
    """The three conditions of the feature-averaging theorem, as numbers and as a verdict.

    The theorem's Omega(1) and o(1) are taken relative to `scale`. It asks for
    `least_own` >= Omega(1), `most_foreign` <= o(1) (as printed: one-sided only) and a `ratio` of
    O(1), which is infinite where an own coefficient is not positive.
    """

    scale: float  # the mean coefficient on features of the own class
    least_own: float  # the least own coefficient, in units of `scale`
    most_foreign: float  # the largest on the other class, with its sign, in these units
    foreign_size: float  # the largest size of a foreign one; it is not judged
    ratio: float  # the largest quotient of two own ones of one neuron
    holds: bool  # whether all three are within the given limits


def averaging(
    features: Tensor,
    signs: Tensor,
    labels: Tensor,
    *,
    ratio: float = 3.0,
) -> Averaging:
    """Whether coefficients (width, K) on features average them.

    The theorem's constants are not stated: the limits are ours. All own coefficients must be at
    least 0.3 and all foreign ones at most 0.3 times the mean own one (they may be as negative as
    they like), and no quotient of two own ones above `ratio`.

    Arguments:

    - `features`: coefficients (width, K) of neurons on features, as `decompose` finds them.
    - `signs`: the sides of the neurons, -1 / +1, (width,).
    - `labels`: the classes of the clusters, -1 / +1, (K,).
    - `ratio`: the largest quotient of two own coefficients that still counts, 1 at least; 3 by
      default.
    """
    _check.number("ratio", ratio, minimum=1.0)
    own = _own(features, signs, labels)
    mine, others = features.double()[own], features.double()[~own]
    scale = float(mine.mean())
    if scale <= 0:
        return Averaging(scale, -torch.inf, torch.inf, torch.inf, torch.inf, holds=False)
    low = torch.where(own, features.double(), torch.inf).amin(1)
    high = torch.where(own, features.double(), -torch.inf).amax(1)
    quotient = float((high / low).max()) if bool((low > 0).all()) else float("inf")
    smallest, largest = float(mine.min()) / scale, float(others.max()) / scale
    size = float(others.abs().max()) / scale
    within = smallest >= _LEAST_OWN_SHARE and largest <= _MOST_OTHER_SHARE
    holds = within and quotient <= ratio
    return Averaging(scale, smallest, largest, size, quotient, holds)


@dataclass(frozen=True)
class Decoupling:
    """The conditions of the decoupling theorem, as numbers and as a verdict.

    The theorem has lambda_ii = Omega(1) and |lambda_ij| = o(1), for every cluster i.
    """

    scale: float  # the mean lambda_ii
    least_own: float  # the least lambda_ii, in units of `scale`
    most_other: float  # the largest |lambda_ij|, in units of `scale`
    covered: float  # the share of clusters that own a neuron
    holds: bool  # whether the conditions hold, and all clusters own one


def decoupling(features: Tensor, owner: Tensor, *, least: float = _LEAST_OWN_SHARE) -> Decoupling:
    """Whether each neuron's coefficients (width, K) are on the cluster `owner` (width,) alone.

    And whether each cluster owns a neuron: many neurons on one cluster have collapsed.

    Arguments:

    - `features`: coefficients (width, K) of neurons on features, as `decompose` finds them.
    - `owner`: the cluster of each neuron (width,), whole numbers in 0..K-1.
    - `least`: the least coefficient on the own cluster that `holds` allows, times the mean own one.
      Any other coefficient may have a size of 0.3 times the same mean.
    """
    _check.number("least", least, above=0.0)
    _check.matrix("features", features)
    rule = f"be an integer tensor ({len(features)},) with clusters in 0..{features.shape[1] - 1}"
    _check.tensor("owner", owner, features.shape[:1], whole=True, rule=rule)
    inside = int(owner.min()) >= 0 and int(owner.max()) < features.shape[1]
    _check.require(inside, "owner", rule, f"{int(owner.min())}..{int(owner.max())}")
    mask = torch.nn.functional.one_hot(owner.long(), features.shape[1]).bool()
    mine, others = features.double()[mask], features.double()[~mask]
    scale, covered = float(mine.mean()), float(mask.any(0).double().mean())
    if scale <= 0:
        return Decoupling(scale, -torch.inf, torch.inf, covered, holds=False)
    smallest, largest = float(mine.min()) / scale, float(others.abs().max()) / scale
    holds = covered == 1.0 and smallest >= least and largest <= _MOST_OTHER_SHARE
    return Decoupling(scale, smallest, largest, covered, holds)


def averaged_share(features: Tensor, signs: Tensor, labels: Tensor) -> float:
    """How averaged coefficients are, from 0 to 1: the mean over neurons of cos^2 with the average.

    (sum of lambda_j over the own class)^2 / (its number of clusters times the sum of all
    lambda_j^2), 0 where the first sum is negative: 1 for equal own coefficients and none else.

    Arguments:

    - `features`: coefficients (width, K) of neurons on features, as `decompose` finds them.
    - `signs`: the sides of the neurons (width,), -1 / +1.
    - `labels`: the sides of the clusters (K,), -1 / +1; both must occur.
    """
    own = _own(features, signs, labels)
    coefficients = features.double()
    total = torch.where(own, coefficients, 0.0).sum(1).clamp(min=0.0)
    squares = coefficients.square().sum(1)
    return float((total.square() / (own.sum(1) * _nonzero(squares))).mean())


def decoupled_share(features: Tensor) -> float:
    """How decoupled coefficients are, from 0 to 1: the mean of max lambda_j^2 / sum lambda_j^2.

    Over neurons, with the largest lambda_j, not the largest size: a neuron without a positive one
    counts as 0. Times the share of clusters that are the largest of some neuron, so that neurons
    that have all collapsed onto one of K have 1/K.

    Arguments:

    - `features`: coefficients (width, K) of neurons on features, as `decompose` finds them.
    """
    _check.matrix("features", features)
    coefficients = features.detach().double()
    top, at = coefficients.max(1)
    single = top.clamp(min=0.0).square() / _nonzero(coefficients.square().sum(1))
    covered = len(at[top > 0].unique()) / features.shape[1]
    return covered * float(single.mean())


def _nonzero(squares: Tensor) -> Tensor:
    return torch.where(squares > 0, squares, 1.0)


def _own(features: Tensor, signs: Tensor, labels: Tensor) -> Tensor:
    """Which features are of the neuron's own class, (width, K)."""
    _check.matrix("features", features)
    _check.signs("signs", signs, count=features.shape[0])
    _check.signs("labels", labels, count=features.shape[1])
    both = set(labels.tolist()) == {-1, 1}
    _check.require(both, "labels", "name both classes", labels.tolist())
    return signs.unsqueeze(1) == labels.unsqueeze(0)
