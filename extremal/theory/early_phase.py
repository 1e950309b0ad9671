"""Lemmas 1, 4 and 6: how long all neurons stay small, and how well eq. 6 describes them meanwhile.

Setting: balanced initialisation w_j(0) = scale w_j0, |v_j(0)| = ||w_j(0)||, ||w_j0|| <= norm, for
`width` neurons, and `samples` training points of norm at most 1 (the paper: the K centres).

The papers' statements are for the sum of losses with slope -y at 0, as the exponential loss has.
The logistic loss log(1 + exp(-y f)) has slope -y/2 there, so Lemma 6 is false for it as printed
(docs/theory/errata.md): it holds for twice that loss, whose flow is twice as fast. With rate = 1
(exp) or 1/2 (logistic), divided by the number of samples for a mean, all times are divided by the
rate, and the alignment flow and its error are multiplied by it.

`growth_rate` and `onset_time` say when the loss starts to fall: before that, neurons of a fixed
direction grow exponentially.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from extremal._check import choice, integer, number, require


def growth_rate(
    own: int,
    subclasses: int,
    p: float,
    at: Literal["average", "center"],
    loss: Literal["exp", "logistic"] = "exp",
) -> float:
    """Return g = (log ||w||)' of a balanced neuron at its class average or at one of its centres.

    Under the mean loss over balanced noiseless centres and f about 0, ||w||' = q sum_k <mu_k, u>^p
    ||w|| / K with q = 1 (exp) or 1/2 (logistic):

    average: g = q K_own^(1 - p/2) / K;  center: g = q / K,  K_own = `own`, K = `subclasses`.

    So averages grow faster for p < 2 and centres for p > 2. ||w||^2 and the contribution
    |v| ||w|| grow at 2 g.

    Arguments:

    - `own`: the number of centres of the neuron's class; 1 to `subclasses`.
    - `subclasses`: the number of centres of both classes together.
    - `p`: the power of the pReLU, 1 or more.
    - `at`: where the neuron points, "average" (its class average) or "center" (one centre).
    - `loss`: "exp" (the default, q = 1) or "logistic" (q = 1/2).
    """
    own = integer("own", own, minimum=1)
    subclasses = integer("subclasses", subclasses, minimum=1)
    require(own <= subclasses, "own", "be at most subclasses", own)
    p = number("p", p, minimum=1.0)
    choice("at", at, ("average", "center"))
    choice("loss", loss, ("exp", "logistic"))
    slope = 1.0 if loss == "exp" else 0.5
    share = float(own ** (1.0 - p / 2.0)) if at == "average" else 1.0
    return slope * share / subclasses


def onset_time(scale: float, rate: float) -> float:
    """Return log(1/scale)/rate: when a neuron that starts at norm `scale` would reach norm 1.

    The leading order, for scale -> 0, of the time at which the loss leaves its first plateau: the
    alignment before it and the number of neurons change it by O(1)/rate.

    Arguments:

    - `scale`: the norm that the neuron starts at, above 0.
    - `rate`: g, the growth of log ||w|| in a unit of time (`growth_rate`); above 0.
    """
    scale = number("scale", scale, above=0.0, maximum=1.0)
    return -math.log(scale) / number("rate", rate, above=0.0)


Loss = Literal["exp", "logistic"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class SmallNorms:
    """Until `time`: max_j ||w_j||^2 <= norm_squared and |f| <= output on the training points."""

    time: float
    norm_squared: float  # the bound on every neuron's squared norm
    output: float  # the bound on |f|


@dataclass(frozen=True)
class AlignmentError:
    """Until `time`: ||d/dt w_j/||w_j|| - rate sign(v_j) P_perp x^(p)(w_j)|| <= error for all j."""

    time: float
    rate: float  # the flow's speed: 1 (exp) or 1/2 (logistic), divided by samples for a mean
    error: float  # the bound on the distance of the two velocities, 0 or more


def small_norms(
    scale: float,
    width: int,
    norm: float,
    samples: int,
    loss: Loss = "exp",
    reduction: Reduction = "sum",
) -> SmallNorms:
    """Return how long, and how small, all neurons stay (`scale` eps, `width` h, `norm` M).

    max ||w_j||^2 <= 2 eps M^2 / sqrt(h) and |f| <= 2 eps sqrt(h) M^2 for
    t <= log(1/(sqrt(h) eps)) / (4 K rate), K = `samples`. Min & Vidal 2024, Lemma 4, whose proof
    uses only ||x_k|| <= 1. Raises ValueError where its hypothesis eps <= 1/(4 sqrt(h) M^2) fails,
    or where eps >= 1/sqrt(h), which leaves no time.

    Arguments:

    - `scale`: eps, the factor of the initial weights, w_j(0) = scale w_j0; above 0.
    - `width`: h, the number of neurons; 1 or more.
    - `norm`: M, a bound on all ||w_j0||; above 0.
    - `samples`: K, the number of training points, each of norm at most 1; 1 or more.
    - `loss`: "exp" (the default, rate 1) or "logistic" (rate 1/2).
    - `reduction`: "sum" of the losses (the default), or their "mean": rate divided by K.
    """
    scale = number("scale", scale, above=0.0)
    root = math.sqrt(integer("width", width, minimum=1))
    norm = number("norm", norm, above=0.0)
    samples = integer("samples", samples, minimum=1)
    limit = min(0.25 / (root * norm**2), 1.0 / root)
    rule = f"be at most 1/(4 sqrt(width) norm^2) and below 1/sqrt(width), here {limit:g}"
    require(scale <= limit and scale * root < 1.0, "scale", rule, scale)
    time = -math.log(root * scale) / (4.0 * samples * _rate(loss, reduction, samples))
    return SmallNorms(time, 2.0 * scale * norm**2 / root, 2.0 * scale * root * norm**2)


def alignment_error(
    scale: float,
    width: int,
    norm: float,
    samples: int,
    p: float,
    loss: Loss = "exp",
    reduction: Reduction = "sum",
) -> AlignmentError:
    """Return how far the neurons' turning is from the alignment flow of eq. 6, and until when.

    error = rate * 4 eps sqrt(h) M^2 K p, until the time of `small_norms`, under its hypothesis.
    Min & Vidal 2024, Lemma 1, eq. 60 (for `rate` see the top of this file). At the kinks of p = 1
    gamma must be the same subgradient on both sides.

    Arguments:

    - `scale`: eps, the factor of the initial weights, w_j(0) = scale w_j0; above 0.
    - `width`: h, the number of neurons; 1 or more.
    - `norm`: M, a bound on all ||w_j0||; above 0.
    - `samples`: K, the number of training points, each of norm at most 1; 1 or more.
    - `p`: the power of the pReLU, 1 or more.
    - `loss`: "exp" (the default, rate 1) or "logistic" (rate 1/2).
    - `reduction`: "sum" of the losses (the default), or their "mean": rate divided by K.
    """
    p = number("p", p, minimum=1.0)
    small = small_norms(scale, width, norm, samples, loss, reduction)
    rate = _rate(loss, reduction, samples)
    return AlignmentError(small.time, rate, rate * 2.0 * samples * p * small.output)


def alignment_scale(drift: float, width: int, norm: float, samples: int, p: float) -> float:
    """Return the initialisation scale below which a drift keeps its sign in the true flow.

    eps_0 = |Delta| / (8 sqrt(h) M^2 K p): half of the drift Delta (of `average_drift` or
    `center_drift_floor`) then remains. Min & Vidal 2024, proof of Theorem 2, before eq. 69, 72, 85;
    with a negative Delta, as for p >= 3, the printed eps_0 misses its absolute value.

    Arguments:

    - `drift`: Delta, of either sign but not 0.
    - `width`: h, the number of neurons; 1 or more.
    - `norm`: M, a bound on all ||w_j0||; above 0.
    - `samples`: K, the number of training points, each of norm at most 1; 1 or more.
    - `p`: the power of the pReLU, 1 or more.
    """
    drift = number("drift", drift)
    require(drift != 0.0, "drift", "differ from 0", drift)
    root = math.sqrt(integer("width", width, minimum=1))
    norm = number("norm", norm, above=0.0)
    samples = integer("samples", samples, minimum=1)
    return abs(drift) / (8.0 * root * norm**2 * samples * number("p", p, minimum=1.0))


def _rate(loss: Loss, reduction: Reduction, samples: int) -> float:
    choice("loss", loss, ("exp", "logistic"))
    choice("reduction", reduction, ("sum", "mean"))
    return (1.0 if loss == "exp" else 0.5) / (samples if reduction == "mean" else 1)
