"""The classifiers that the theory is about, as networks with explicit weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import OrthonormalMixture
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet


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
    """The Bayes classifier of a mixture, computed by log-sum-exp."""
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
