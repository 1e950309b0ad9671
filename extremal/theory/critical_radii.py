"""Critical radii: where the classifiers break when there is no noise, and what can't be beaten.

For averaged and decoupled features (Li, Pan, Lyu & Li 2025) lengths are in units of
||mu|| = sqrt(d), and biases in units of ||mu||^2: multiply a radius by sqrt(d) for the paper's
scaling. With noise N(0, sigma^2 I) averaged features without biases are F of Min & Vidal 2024 on
points that are sqrt(d) times as long: their clean and robust accuracy is
`average_accuracy(d, positive, negative, sigma, radius / sqrt(d))`, which is near
Phi((sqrt(d/k) - radius)/sigma).
"""

from __future__ import annotations

import math

from extremal._check import integer, number, require


def averaged_radius(
    positive: int, negative: int, biases: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Return the l2 radius at which relu(<S_+, x> + b_+) - relu(<S_-, x> + b_-) misreads a centre.

    S_+ and S_- are the sums of the positive and of the negative features. A perturbation of
    (<S_+, x>, <S_-, x>) by (a, b) costs sqrt(a^2/K1 + b^2/K2). From a positive centre, at (1, 0),
    the line on which both neurons agree is (1 + b_+ - b_-)/sqrt(K) away, and the own neuron is
    silent from (1 + b_+)/sqrt(K1) on; of a negative one likewise. A tie counts as misread, and the
    radius is 0 where a centre is misread as it is.

    No biases have more than 1/sqrt(K), the theorem "for any choice of bias" of the talk; in its
    scaling this is sqrt(d/k). Let u = 1 + b_+ and v = 1 + b_-. Where both classes meet the line,
    their radii sum to 2/sqrt(K). A positive centre does not if the opponent is silent at the foot,
    K1 v + K2 u < K1, and has u/sqrt(K1). If the negative one meets the line, it has
    (v - u + 1)/sqrt(K), which is small enough for v <= u; else u < K1/K is. If neither does,
    K1 v + K2 u < min(K1, K2), which contradicts u > sqrt(K1/K) and v > sqrt(K2/K).

    Arguments:

    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `biases`: (b_+, b_-), zero by default.
    """
    own = integer("positive", positive, minimum=1)
    other = integer("negative", negative, minimum=1)
    pair = isinstance(biases, tuple | list) and len(biases) == 2
    require(pair, "biases", "be a pair of numbers", biases)
    plus, minus = (number("biases", b) for b in biases)
    sides = ((own, plus, minus), (other, minus, plus))
    return min(_one_side(count, own + other, up, down) for count, up, down in sides)


def _one_side(own: int, total: int, up: float, down: float) -> float:
    """From a centre of the class whose neuron has bias `up` and whose opponent has `down`."""
    if max(1.0 + up, 0.0) <= max(down, 0.0):
        return 0.0
    # Where both are active the classes meet on a line; it is met there only if down is not so low
    # that the opponent is still silent at the nearest point.
    to_line, silent = (1.0 + up - down) / math.sqrt(total), (1.0 + up) / math.sqrt(own)
    reached = down + (total - own) * (1.0 + up - down) / total
    return min(to_line, silent) if reached >= 0.0 else silent


def decoupled_radius(opposing: int, threshold: float) -> float:
    """Return the l2 radius at which f_robust misreads a centre against `opposing` others.

    f_robust = sum of y_j relu(<mu_j, x> - `threshold`), the threshold t in units of ||mu||^2. Its
    own neuron is silent from 1 - t on; or m opposing neurons share the way: with a taken from the
    own centre and b put on each, 1 - a - t = m (b - t) and a^2 + m b^2 is least at
    a = b = (1 + (m - 1) t)/(m + 1), a radius of (1 + (m - 1) t)/sqrt(m + 1). At m = 1 it is
    sqrt(2)/2, the largest possible, and the least of all from t = (sqrt(3/2) - 1) = 0.2247 on, up
    to t = 1 - sqrt(2)/2 = 0.2929. In the talk's scaling this is sqrt(d/2), its O(sqrt(d)).
    """
    most = integer("opposing", opposing, minimum=1)
    t = number("threshold", threshold, minimum=0.0, maximum=1.0)
    shared = ((1.0 + (m - 1) * t) / math.sqrt(m + 1.0) for m in range(1, most + 1))
    return min(1.0 - t, *shared)


def averaging_scale(dim: int, count: int) -> float:
    """Return sqrt(d/k), the radius at which averaged features lose all robust accuracy.

    Arguments:

    - `dim`: d, the number of coordinates of a point; 1 or more.
    - `count`: k, the number of clusters of both classes together; 1 or more.
    """
    return math.sqrt(integer("dim", dim, minimum=1) / integer("count", count, minimum=1))


OPTIMAL_RADIUS = math.sqrt(2.0) / 2.0
"""Half the distance between two centres: no classifier keeps every subclass at this l2 radius."""


def average_radius(positive: int, negative: int) -> float:
    """Return the largest l2 radius below which F reads every centre correctly, 1/sqrt(K).

    From a centre mu_k of a class with K_own centres the two lines that bound the class are at
    1/sqrt(K) and 1/sqrt(K_own), the first always nearer. Min & Vidal 2024, Remark 2.

    Arguments:

    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    """
    total = integer("positive", positive, minimum=1) + integer("negative", negative, minimum=1)
    return 1.0 / math.sqrt(total)


def stretch(count: int, p: float) -> float:
    """Return max ||v||_p / ||v||_2 over R^count: count^(1/p - 1/2) for p <= 2 and 1 for p >= 2."""
    count = integer("count", count, minimum=1)
    p = number("p", p, minimum=1.0)
    return float(count ** max(1.0 / p - 0.5, 0.0))


def subclass_radius(opposing: int, p: float) -> float:
    """Return the l2 radius below which F^(p) reads a centre correctly against `opposing` others.

    r_c = 1 / sqrt(1 + K_opp^(2/p - 1)) for 1 <= p <= 2, and sqrt(2)/2 for p >= 2.

    The nearest error has 1 - a = ||b||_p, a taken from the sample's own centre and b put on the
    opposing ones; min a^2 + ||b||_2^2 with ||b||_p <= l ||b||_2, l = `stretch`, is 1/(1 + l^2).
    The class's own other centres don't enter: attacking them can't lower F^(p). They do with noise,
    to the sample's advantage. A mixture's classes have K_opp = K2 and K1: for p < 2 they differ.

    Arguments:

    - `opposing`: K_opp, the number of centres of the other class; 1 or more.
    - `p`: the power of the pReLU, 1 or more.
    """
    opposing = integer("opposing", opposing, minimum=1)
    return 1.0 / math.hypot(1.0, stretch(opposing, p))


def unavoidable_error(positive: int, negative: int, radius: float) -> float:
    """Return a robust error that no classifier can beat at an l2 radius, whatever the noise.

    min(K1, K2)/K from radius sqrt(2)/2 on, and 0 (no statement) below. Pair each centre of the
    smaller class with one of the other: mu_k + eps and mu_l + eps are sqrt(2) apart for every eps,
    and their midpoint can have one sign only. A constant classifier reaches it. Min & Vidal 2025
    (poster): sqrt(2)/2 is the largest robustness without loss of clean accuracy.

    Arguments:

    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `radius`: the l2 size of the attack, 0 or more.
    """
    smaller = min(
        integer("positive", positive, minimum=1),
        integer("negative", negative, minimum=1),
    )
    radius = number("radius", radius, minimum=0.0)
    return smaller / (positive + negative) if radius >= OPTIMAL_RADIUS else 0.0
