"""How many parameters robustness takes: Table 1 of Li, Jin, Zhong, Hopcroft & Wang 2022.

The sources give orders of growth without constants. Each function returns an `Order`, whose
constants are None where no source states them; what holds exactly, for the constructions of this
package, are functions that return numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from extremal._check import choice, integer, number, require


@dataclass(frozen=True)
class Order:
    """A number of parameters up to constants, such as "at most C N d, up to logarithms"."""

    side: Literal["upper", "lower"]  # at most, or at least, so many parameters
    shape: str  # the expression, such as "N d"
    value: float  # what it gives; d for an exponential exp(c d)
    source: str  # paper and theorem
    exponential: bool = False  # whether it is exp(c d); the rate c is unknown
    logarithms: bool = False  # whether logarithmic factors are left out
    constant: float | None = None  # the factor C, None where sources do not say

    @property
    def known(self) -> bool:
        """Whether the bound is a number, and not only an order of growth."""
        return self.constant is not None and not self.exponential

    def __str__(self) -> str:
        factor = "C (unknown)" if self.constant is None else f"{self.constant:g}"
        relation = "<=" if self.side == "upper" else ">="
        hidden = ", up to logarithms" if self.logarithms else ""
        return f"parameters {relation} {factor} * {self.shape}{hidden} ({self.source})"


def training_parameters(side: Literal["upper", "lower"], count: int, dim: int) -> Order:
    """Return the order of the parameters for zero robust training error on N points in d dims.

    At most O~(N d) (Theorem 2.2), at least Omega(sqrt(N d)) (Theorem 2.3).

    Arguments:

    - `side`: "upper", parameters that are enough, or "lower", parameters that are needed.
    - `count`: N, the number of training points; 1 or more.
    - `dim`: d, the number of coordinates of a point; 1 or more.
    """
    choice("side", side, ("upper", "lower"))
    size = integer("count", count, minimum=1) * integer("dim", dim, minimum=1)
    if side == "upper":
        return Order(side, "N d", float(size), "Li et al. 2022, Theorem 2.2", logarithms=True)
    return Order(side, "sqrt(N d)", math.sqrt(size), "Li et al. 2022, Theorem 2.3")


def generalisation_parameters(
    side: Literal["upper", "lower"],
    case: Literal["general", "linear", "manifold"],
    dim: int,
    intrinsic: int | None = None,
) -> Order:
    """Return the order of the parameters for a low robust test error, on the worst distribution.

    exp(O(d)) and exp(Omega(d)) in general (Theorems 3.3 and 3.4); exp(Omega(d)) also for linearly
    separable data (Theorem 4.3), whose clean error O(d) parameters make small; exp(O(k)) and
    exp(Omega(k)) on a manifold of `intrinsic` dimension k (Theorems 5.5 and 5.8).

    Arguments:

    - `side`: "upper", parameters that are enough, or "lower", parameters that are needed.
    - `case`: the data, "general", "linear" (linearly separable) or "manifold".
    - `dim`: d, the number of coordinates of a point; 1 or more.
    - `intrinsic`: k, 1 to `dim`; needed for "manifold" and ignored otherwise.
    """
    choice("side", side, ("upper", "lower"))
    choice("case", case, ("general", "linear", "manifold"))
    size = integer("dim", dim, minimum=1)
    place = {
        ("general", "upper"): "3.3",
        ("general", "lower"): "3.4",
        ("linear", "upper"): "3.3",
        ("linear", "lower"): "4.3",
        ("manifold", "upper"): "5.5",
        ("manifold", "lower"): "5.8",
    }[case, side]
    shape = "exp(c d)"
    if case == "manifold":
        require(intrinsic is not None, "intrinsic", "be given for a manifold", intrinsic)
        size = integer("intrinsic", intrinsic, minimum=1)
        require(size <= dim, "intrinsic", f"be at most dim = {dim}", size)
        shape = "exp(c k)"
    source = f"Li et al. 2022, Theorem {place}"
    return Order(side, shape, float(size), source, exponential=True)


def clean_parameters(dim: int) -> Order:
    """Return the order of the parameters for a low clean error on linearly separable data, O(d).

    Here the constant is known: one neuron, d weights and a bias.

    Arguments:

    - `dim`: d, the number of coordinates of a point; 1 or more.
    """
    size = integer("dim", dim, minimum=1)
    return Order("upper", "(d + 1)", float(size + 1), "Li et al. 2022, Section 4", constant=1.0)


def ratio_lipschitz(separation: float) -> float:
    """Return 1/eps = 2 / separation, a Lipschitz constant of f* for sets 2 eps apart.

    Arguments:

    - `separation`: 2 eps, the least distance of points of different classes; above 0.
    """
    return 2.0 / number("separation", separation, above=0.0)


def ratio_radius(separation: float) -> float:
    """Return eps = separation / 2: f* keeps each point's class at every radius below it.

    Arguments:

    - `separation`: 2 eps, the least distance of points of different classes; above 0.
    """
    return number("separation", separation, above=0.0) / 2.0


def memoriser_parameters(count: int, dim: int, norm: str = "linf") -> int:
    """Return the parameters of `models.Memoriser`: 6 N d + 2 N in linf, 6 N d + 4 N in l1.

    In linf, of 2 N d neurons with a weight and a bias each, N with 2 d weights and a bias, and N
    weights of the output; in l1 a further layer of N neurons with a weight and a bias.

    Arguments:

    - `count`: N, the number of points that are memorised; 1 or more.
    - `dim`: d, the number of coordinates of a point; 1 or more.
    - `norm`: the norm of the attack, "linf" (the default) or "l1".
    """
    choice("norm", norm, ("linf", "l1"))
    points, size = integer("count", count, minimum=1), integer("dim", dim, minimum=1)
    first = 2 * points * size * 2
    second = points * (2 * size + 1)
    third = 2 * points if norm == "l1" else 0
    return first + second + third + points


def grid_nodes_needed(separation: float, radius: float, dim: int) -> int:
    """Return side^d, the nodes of the grid on which f* stays robust at an linf radius.

    1/(side - 1) <= eps - radius is enough (see `models.ratio_side`).

    Arguments:

    - `separation`: 2 eps, the least distance of points of different classes; above 0.
    - `radius`: the linf size of the attack, from 0 to below eps.
    - `dim`: d, the number of coordinates of a point; 1 or more.
    """
    room = ratio_radius(separation) - number("radius", radius, minimum=0.0)
    require(room > 0, "radius", f"be below half the separation, {separation / 2:g}", radius)
    side = max(2, math.ceil(1.0 / room - 1e-9) + 1)
    return int(side ** integer("dim", dim, minimum=1))
