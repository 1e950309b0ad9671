"""What the theorems on patches assume, and where training shows both phases (Li & Li 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from extremal._check import integer, matrix, number, require

# A quotient so near to 1 is taken for 1.
_EDGE_WIDTH = 1e-6


@dataclass(frozen=True)
class PatchWindow:
    """The three inequalities of the window, each as a quotient that is above 1 where it holds.

    `denser`: the non-robust features grow first. `breakable`: an attack turns them. `learnable`:
    the robust ones stand above what an attack adds to all patches, 0 where epsilon >= alpha.
    """

    denser: float  # |J_NR| beta^q / (|J_R| alpha^q)
    breakable: float  # 2 epsilon / beta
    learnable: float  # |J_R| (alpha - epsilon)^q / (P epsilon^q)

    @property
    def inside(self) -> bool:
        """Whether all three hold."""
        return min(self.quotients) > 1.0

    @property
    def edge(self) -> bool:
        """Whether one of them is 1 to rounding: such a point is on neither side."""
        return any(abs(quotient - 1.0) <= _EDGE_WIDTH for quotient in self.quotients)

    @property
    def quotients(self) -> tuple[float, float, float]:
        """All three, in the order of the fields."""
        return self.denser, self.breakable, self.learnable


def patch_window(
    robust: int, dense: int, alpha: float, beta: float, radius: float, q: float
) -> PatchWindow:
    """Return the window's quotients for features of strengths `alpha` and `beta`.

    The talk assumes alpha >> beta and sum alpha^tau << sum beta^tau for some tau; these
    inequalities are ours, found on prototypes, with tau = q.

    Arguments:

    - `robust`: |J_R|, the number of patches with a robust feature; 1 or more.
    - `dense`: |J_NR|, the number of patches with a non-robust feature; 1 or more.
    - `alpha`: the strength of the robust features, above 0.
    - `beta`: the strength of the non-robust features, above 0.
    - `radius`: epsilon, the l-inf size of the attack; above 0.
    - `q`: the power of the smoothed ReLU, 1 or more.
    """
    few, many = (
        integer("robust", robust, minimum=1),
        integer("dense", dense, minimum=1),
    )
    strong, weak = number("alpha", alpha, above=0.0), number("beta", beta, above=0.0)
    size, power = number("radius", radius, above=0.0), number("q", q, minimum=1.0)
    left = max(strong - size, 0.0)
    return PatchWindow(
        denser=many * weak**power / (few * strong**power),
        breakable=2.0 * size / weak,
        learnable=few * left**power / ((few + many) * size**power),
    )


@dataclass(frozen=True)
class PatchAssumptions:
    """What Li & Li 2025 assume of patch data, for the worst of all points that may be drawn.

    alpha >> beta wants `stronger` large. `best_tau` is infinite where even the largest alpha is
    below the least beta. With tau = q the second assumption holds where q < `tau_limit`.
    """

    stronger: float  # min alpha / max beta over the classes
    denser: float  # sum beta^tau / sum alpha^tau at the best tau
    best_tau: float  # the tau >= 0 that makes this quotient largest
    tau_limit: float  # the quotient is above 1 for all tau below it
    windows: tuple[PatchWindow, ...]  # each class's quotients

    @property
    def hold(self) -> bool:
        """Whether all quotients are above 1, for all that may be drawn of each class."""
        inside = all(window.inside for window in self.windows)
        return inside and min(self.stronger, self.denser) > 1.0

    def report(self) -> str:
        """The assumptions in a line each."""
        least = [min(parts) for parts in zip(*(w.quotients for w in self.windows), strict=True)]
        names = ("denser at tau = q", "breakable", "learnable")
        window = ", ".join(f"{name} {value:.3g}" for name, value in zip(names, least, strict=True))
        return (
            f"stronger: alpha is at least {self.stronger:.3g} beta\n"
            f"denser: {self.denser:.3g} at tau = {self.best_tau:g}, above 1 for tau below "
            f"{self.tau_limit:.3g}\n"
            f"window, least of {len(self.windows)} classes: {window}"
        )


def patch_assumptions(
    robust: int, dense: int, alpha: Tensor, beta: Tensor, radius: float, q: float
) -> PatchAssumptions:
    """Check the assumptions on data whose coefficients lie in given intervals.

    Each quotient is taken where it is least: `stronger` and `learnable` at the least alpha,
    `denser` at the largest alpha and the least beta, `breakable` at the largest beta.

    Arguments:

    - `robust`: |J_R|, the number of patches with a robust feature; 1 or more.
    - `dense`: |J_NR|, the number of patches with a non-robust feature; 1 or more.
    - `alpha`: the ends of each class's interval of robust strengths, (k, 2), as `PatchData` has
      them.
    - `beta`: those of the non-robust strengths, (k, 2).
    - `radius`: epsilon, the l-inf size of the attack; above 0.
    - `q`: the power of the smoothed ReLU, 1 or more.
    """
    few, many = (
        integer("robust", robust, minimum=1),
        integer("dense", dense, minimum=1),
    )
    strong, weak = _ends("alpha", alpha), _ends("beta", beta)
    require(len(strong) == len(weak), "beta", f"have {len(strong)} classes, as alpha", len(weak))
    windows = []
    for (least, most), (low, high) in zip(strong, weak, strict=True):
        thin, thick = (
            patch_window(few, many, *pair, radius, q) for pair in ((most, low), (least, high))
        )
        windows.append(PatchWindow(thin.denser, thick.breakable, thick.learnable))
    # |J_NR| beta^tau / (|J_R| alpha^tau) is a power of tau, of a base below 1 where alpha > beta.
    base = min(low / most for (_, most), (low, _) in zip(strong, weak, strict=True))
    count = many / few
    limit = math.inf if base >= 1.0 else math.log(count) / -math.log(base)
    return PatchAssumptions(
        stronger=min(least for least, _ in strong) / max(high for _, high in weak),
        denser=math.inf if base > 1.0 else count,
        best_tau=math.inf if base > 1.0 else 0.0,
        tau_limit=limit if count > 1.0 else 0.0,
        windows=tuple(windows),
    )


def _ends(name: str, value: Tensor) -> list[tuple[float, float]]:
    """The ends of each class's interval."""
    ends = [(float(low), float(high)) for low, high in matrix(name, value, columns=2)]
    good = all(0.0 < low <= high for low, high in ends)
    require(good, name, "have 0 < low <= high in each row", ends)
    return ends
