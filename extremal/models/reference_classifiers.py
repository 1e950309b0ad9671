"""The classifiers that the theory is about, as networks with explicit weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import GaussianClusters, OrthonormalMixture
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import check_rows
from extremal.models.readouts import checked_signs


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
    signs = _cluster_signs(clusters)
    share = _check.number("threshold", threshold, minimum=0.0, maximum=1.0)
    squares = clusters.centers.square().sum(1)
    return _relu_network(clusters.centers, signs, -share * squares)


def averaged_classifier(
    clusters: GaussianClusters, *, biases: tuple[float, float] = (0.0, 0.0)
) -> PReLUNet:
    """relu(<sum of mu_j over J_+, x> + b_+) - relu(<sum of mu_j over J_-, x> + b_-).

    The two neurons that feature averaging degenerates into (Li et al. 2025).

    Arguments:

    - `clusters`: `GaussianClusters` with labels -1 and +1, both of them; their centres and labels
      are used.
    - `biases`: (b_+, b_-), in units of the features' mean squared length; zero by default.
    """
    signs = _cluster_signs(clusters)
    rule = "be a pair of numbers"
    _check.require(isinstance(biases, tuple) and len(biases) == 2, "biases", rule, biases)
    unit = float(clusters.centers.square().sum(1).mean())
    offsets = torch.tensor([unit * _check.number("biases", b) for b in biases], dtype=torch.float64)
    sums = torch.stack([clusters.centers[signs == sign].sum(0) for sign in (1, -1)])
    return _relu_network(sums, torch.tensor([1.0, -1.0], dtype=torch.float64), offsets)


def _relu_network(neurons: Tensor, signs: Tensor, offsets: Tensor) -> PReLUNet:
    return PReLUNet(
        neurons.shape[1],
        len(neurons),
        hidden_bias=True,
        init=Explicit(neurons, signs.double().unsqueeze(0), offsets),
        dtype=torch.float64,
        generator=torch.Generator(),
    )


def _cluster_signs(clusters: GaussianClusters) -> Tensor:
    _check.instance("clusters", clusters, GaussianClusters, "be GaussianClusters")
    return checked_signs(clusters.labels, clusters.count, "labels of the clusters")


def average_classifier(
    mixture: OrthonormalMixture, *, dtype: torch.dtype = torch.float64
) -> PReLUNet:
    """F(x) = sqrt(K1) relu(<mu_plus, x>) - sqrt(K2) relu(<mu_minus, x>) as a ReLU network.

    Min & Vidal 2024, eq. 3, by the first statement of the Claim in Section 3, with two neurons.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres and labels are used.
    - `dtype`: floating-point type of the weights, float64 by default.
    """
    _check_mixture(mixture)
    directions = torch.stack([mixture.average(1), mixture.average(-1)])
    sums = torch.tensor([mixture.positive, mixture.negative], dtype=torch.float64).sqrt()
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    return _two_layer_network(directions, sums.sqrt(), signs, 1.0, dtype)


def subclass_classifier(
    mixture: OrthonormalMixture,
    p: float,
    *,
    dtype: torch.dtype = torch.float64,
) -> PReLUNet:
    """F^(p)(x) = sum over centres of y_k relu(<mu_k, x>)^p as a pReLU network.

    Min & Vidal 2024, eq. 2, by the second statement of the Claim in Section 3, with one neuron for
    each centre.

    Arguments:

    - `mixture`: an `OrthonormalMixture`; its centres and labels are used.
    - `p`: the power of the activation, any real number of at least 1.
    - `dtype`: floating-point type of the weights, float64 by default.
    """
    _check_mixture(mixture)
    scale = torch.ones(mixture.count, dtype=torch.float64)
    return _two_layer_network(mixture.centers, scale, mixture.labels.double(), p, dtype)


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
        """The log-ratio of the classes' likelihoods at `x` (n, dim), (n,)."""
        check_rows(x, self.centers.shape[1])
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


def _two_layer_network(
    directions: Tensor, scale: Tensor, signs: Tensor, p: float, dtype: torch.dtype
) -> PReLUNet:
    """w_k = scale_k direction_k, v_k = sign_k scale_k."""
    return PReLUNet(
        dim=directions.shape[1],
        width=len(directions),
        p=p,
        init=Explicit(scale.unsqueeze(1) * directions, (scale * signs).unsqueeze(0)),
        dtype=dtype,
        generator=torch.Generator(),
    )
