"""The classifiers that the theory is about, as networks with explicit weights.

Averaged and decoupled features (Li et al. 2025) as networks, and readings of fine labels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import GaussianClusters, OrthonormalMixture
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet


def decoupled_classifier(clusters: GaussianClusters, *, threshold: float = 0.25) -> PReLUNet:
    """f_robust(x) = sum over j of y_j relu(<mu_j, x> + b_j), with b_j = -threshold ||mu_j||^2.

    One neuron for each cluster, whose bias filters the noise of its own and of the others (Li et
    al. 2025, "There exists the robust solution"). The talk gives no biases: thresholds from 0.2247
    to 0.2929 have the largest radius, see `theory.decoupled_radius`.

    Arguments:

    - `clusters`: `GaussianClusters` with labels -1 and +1, both of them; their centres and labels
      are used.
    - `threshold`: in [0, 1], a share of ||mu_j||^2: a larger one filters more noise (default 0.25).
    """
    signs = _signs(clusters)
    share = _check.number("threshold", threshold, minimum=0.0, maximum=1.0)
    squares = clusters.centers.square().sum(1)
    return _network(clusters.centers, signs, -share * squares)


def averaged_classifier(
    clusters: GaussianClusters, *, biases: tuple[float, float] = (0.0, 0.0)
) -> PReLUNet:
    """relu(<sum of mu_j over J_+, x> + b_+) - relu(<sum of mu_j over J_-, x> + b_-).

    The two neurons that feature averaging degenerates into (Li et al. 2025), with `biases`
    (b_+, b_-) in units of the features' mean squared length.

    Arguments:

    - `clusters`: `GaussianClusters` with labels -1 and +1, both of them; their centres and labels
      are used.
    """
    signs = _signs(clusters)
    rule = "be a pair of numbers"
    _check.require(isinstance(biases, tuple) and len(biases) == 2, "biases", rule, biases)
    unit = float(clusters.centers.square().sum(1).mean())
    offsets = torch.tensor([unit * _check.number("biases", b) for b in biases], dtype=torch.float64)
    sums = torch.stack([clusters.centers[signs == sign].sum(0) for sign in (1, -1)])
    return _network(sums, torch.tensor([1.0, -1.0], dtype=torch.float64), offsets)


def summed(net: PReLUNet, signs: Tensor) -> PReLUNet:
    """A fine-label network read as a binary one: the signed sum of its outputs, for -1 / +1.

    `signs` (outputs,) holds +1 or -1 for each. The result is a network of one output with the same
    neurons, so that all attacks and certificates apply; `Grouped` is the reading by argmax.

    Arguments:

    - `net`: a `PReLUNet` with several outputs; its weights are copied.
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    weight = _signs_of(signs, net.outputs).to(net.votes)
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
        self.register_buffer("signs", _signs_of(signs, count))
        self.outputs = 1

    def forward(self, x: Tensor) -> Tensor:
        """(n,)."""
        out = self.net(x)
        return out[:, self.signs > 0].logsumexp(1) - out[:, self.signs < 0].logsumexp(1)


def _network(neurons: Tensor, signs: Tensor, offsets: Tensor) -> PReLUNet:
    return PReLUNet(
        neurons.shape[1],
        len(neurons),
        hidden_bias=True,
        init=Explicit(neurons, signs.double().unsqueeze(0), offsets),
        dtype=torch.float64,
        generator=torch.Generator(),
    )


def _signs(clusters: GaussianClusters) -> Tensor:
    _check.instance("clusters", clusters, GaussianClusters, "be GaussianClusters")
    return _signs_of(clusters.labels, clusters.count, "labels of the clusters")


def _signs_of(signs: Tensor, count: int | None, name: str = "signs") -> Tensor:
    rule = "be a tensor of -1 and +1, both of them, one for each output"
    _check.instance(name, signs, Tensor, rule)
    both = signs.ndim == 1 and set(signs.tolist()) == {-1, 1}
    _check.require(both, name, rule, signs.tolist())
    right = count is None or len(signs) == count
    _check.require(right, name, f"have {count} entries", len(signs))
    return signs.to(torch.int64)


def average_classifier(
    mixture: OrthonormalMixture,
    *,
    subsets: Sequence[Sequence[int]] | None = None,
    weights: Tensor | None = None,
    width: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> PReLUNet:
    """F(x) = sqrt(K1) relu(<mu_plus, x>) - sqrt(K2) relu(<mu_minus, x>) as a ReLU network.

    Min & Vidal 2024, eq. 3, by the first statement of the Claim in Section 3: `subsets` is the pair
    (I_plus, I_minus) of disjoint non-empty sets of neurons, and `weights` (width,) the lambda >= 0
    with squares summing to sqrt(K1) over I_plus and to sqrt(K2) over I_minus. By default two
    neurons. A neuron in no subset is zero.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres and labels are used.
    - `width`: how many neurons there are; None means as few as `subsets` allow.
    - `dtype`: floating-point type of the weights, float64 by default.
    """
    _check_mixture(mixture)
    directions = torch.stack([mixture.average(1), mixture.average(-1)])
    sums = torch.tensor([mixture.positive, mixture.negative], dtype=torch.float64).sqrt()
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    return _by_claim(directions, sums, signs, 1.0, subsets, weights, width, dtype)


def subclass_classifier(
    mixture: OrthonormalMixture,
    p: float,
    *,
    subsets: Sequence[Sequence[int]] | None = None,
    weights: Tensor | None = None,
    width: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> PReLUNet:
    """F^(p)(x) = sum over centres of y_k relu(<mu_k, x>)^p as a pReLU network.

    Min & Vidal 2024, eq. 2, by the second statement of the Claim: `subsets` are K disjoint
    non-empty sets of neurons, and `weights` (width,) the lambda >= 0 with squares summing to 1 over
    each. By default one neuron for each centre.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres and labels are used.
    - `p`: the power of the activation, any real number of at least 1.
    - `width`: how many neurons there are; None means as few as `subsets` allow.
    - `dtype`: floating-point type of the weights, float64 by default.
    """
    _check_mixture(mixture)
    sums = torch.ones(mixture.count, dtype=torch.float64)
    signs = mixture.labels.double()
    return _by_claim(mixture.centers, sums, signs, p, subsets, weights, width, dtype)


class BayesClassifier(nn.Module):
    """log sum over positive k of exp(D <x, mu_k>/alpha^2) minus the same over negative k.

    The classifier of least clean error; the sign is that of the difference of sums in Min & Vidal
    2025, and the logarithm keeps it finite. As `spread` goes to 0 it becomes, up to scale, the
    best positive inner product minus the best negative one, which is what spread = 0 gives here.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres, classes and `spread` are used.
    """

    centers: Tensor

    def __init__(self, mixture: OrthonormalMixture) -> None:
        super().__init__()
        _check_mixture(mixture)
        self.outputs = 1
        self.positive = mixture.positive
        self.register_buffer("centers", mixture.centers.clone())
        self.sharpness = mixture.dim / mixture.spread**2 if mixture.spread > 0 else None

    def forward(self, x: Tensor) -> Tensor:
        """The log-ratio of the classes' likelihoods, (n,)."""
        dim = self.centers.shape[1]
        rule = f"be a floating-point tensor of shape (n, {dim})"
        _check.instance("x", x, Tensor, rule)
        good = x.ndim == 2 and x.shape[1] == dim and x.is_floating_point()
        _check.require(good, "x", rule, f"shape {tuple(x.shape)} of {x.dtype}")
        inner = x @ self.centers.to(x.dtype).T  # (n, K)
        own, foreign = inner[:, : self.positive], inner[:, self.positive :]
        if self.sharpness is None:
            return own.amax(1) - foreign.amax(1)
        return torch.logsumexp(self.sharpness * own, 1) - torch.logsumexp(
            self.sharpness * foreign, 1
        )


def bayes_classifier(mixture: OrthonormalMixture) -> BayesClassifier:
    """The Bayes classifier of a mixture, computed by log-sum-exp.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres, classes and `spread` are used.
    """
    return BayesClassifier(mixture)


def _check_mixture(mixture: object) -> None:
    _check.instance("mixture", mixture, OrthonormalMixture, "be an OrthonormalMixture")


def _by_claim(
    directions: Tensor,
    sums: Tensor,
    signs: Tensor,
    p: float,
    subsets: Sequence[Sequence[int]] | None,
    weights: Tensor | None,
    width: int | None,
    dtype: torch.dtype,
) -> PReLUNet:
    """w_j = lambda_j direction_k, v_j = sign_k lambda_j for j in subset k; zero elsewhere."""
    count = len(directions)
    rule = f"be {count} non-empty disjoint sets of neurons"
    subsets = [[k] for k in range(count)] if subsets is None else subsets
    nested = isinstance(subsets, Collection) and all(isinstance(s, Collection) for s in subsets)
    _check.require(nested, "subsets", rule, subsets)
    each = [j for subset in subsets for j in subset]
    members = [_check.integer("each neuron in subsets", j, minimum=0) for j in each]
    disjoint = len(subsets) == count and all(map(len, subsets)) and len(set(members)) == len(each)
    _check.require(disjoint, "subsets", rule, subsets)
    least = max(members) + 1
    width = least if width is None else _check.integer("width", width, minimum=least)
    owner = torch.full((width,), -1)
    for k, subset in enumerate(subsets):
        owner[torch.tensor(list(subset))] = k
    scale = _lambdas(weights, owner, sums)
    neurons = scale.unsqueeze(1) * directions[owner.clamp(min=0)]
    votes = (scale * signs[owner.clamp(min=0)]).unsqueeze(0)
    return PReLUNet(
        dim=directions.shape[1],
        width=width,
        p=p,
        init=Explicit(neurons, votes),
        dtype=dtype,
        generator=torch.Generator(),
    )


def _lambdas(weights: Tensor | None, owner: Tensor, sums: Tensor) -> Tensor:
    """The lambda of the Claim, checked, or equal shares within each subset."""
    sizes = torch.bincount(owner[owner >= 0], minlength=len(sums))
    if weights is None:
        shares = (sums / sizes).sqrt()[owner.clamp(min=0)]
        return torch.where(owner >= 0, shares, 0.0)
    shape = tuple(owner.shape)
    rule = f"be a tensor >= 0 of shape {shape}"
    _check.require(isinstance(weights, Tensor), "weights", rule, type(weights).__name__)
    good = tuple(weights.shape) == shape
    _check.require(good, "weights", rule, f"shape {tuple(weights.shape)}")
    _check.finite("weights", weights)
    _check.require(bool((weights >= 0).all()), "weights", rule, f"entry {float(weights.min()):g}")
    weights = torch.where(owner >= 0, weights.double(), 0.0)
    squares = torch.zeros_like(sums).index_add_(0, owner[owner >= 0], weights[owner >= 0] ** 2)
    agree = torch.allclose(squares, sums, rtol=1e-9, atol=0.0)
    rule = f"have squares summing to {[round(s, 6) for s in sums.tolist()]} over the subsets"
    _check.require(agree, "weights", rule, [round(s, 6) for s in squares.tolist()])
    return weights
