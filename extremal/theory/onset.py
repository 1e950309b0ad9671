"""When the loss starts to fall: neurons of a fixed direction grow exponentially before that."""

from __future__ import annotations

import math
from typing import Literal

from extremal.theory._check import choice, integer, number, require


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
    """
    scale = number("scale", scale, above=0.0, maximum=1.0)
    return -math.log(scale) / number("rate", rate, above=0.0)
