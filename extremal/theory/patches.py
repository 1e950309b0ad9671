"""Where adversarial training on patches shows both of its phases (Li & Li 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from extremal.theory._check import integer, number

_EDGE = 1e-6  # how near to 1 a quotient is taken for 1


@dataclass(frozen=True)
class PatchWindow:
    """The three inequalities of the window, each as a quotient that is above 1 where it holds.

    `denser`: |J_NR| beta^q / (|J_R| alpha^q), the non-robust features grow first. `breakable`:
    2 epsilon / beta, an attack turns them. `learnable`: |J_R| (alpha - epsilon)^q / (P epsilon^q),
    the robust ones stand above what an attack adds to all patches, 0 where epsilon >= alpha.
    """

    denser: float
    breakable: float
    learnable: float

    @property
    def inside(self) -> bool:
        """Whether all three hold."""
        return min(self.quotients) > 1.0

    @property
    def edge(self) -> bool:
        """Whether one of them is 1 to rounding: such a point is on neither side."""
        return any(abs(quotient - 1.0) <= _EDGE for quotient in self.quotients)

    @property
    def quotients(self) -> tuple[float, float, float]:
        """All three, in the order of the fields."""
        return self.denser, self.breakable, self.learnable


def patch_window(
    robust: int, dense: int, alpha: float, beta: float, radius: float, q: float
) -> PatchWindow:
    """Return the window's quotients for features of strengths `alpha` and `beta`.

    `robust` is |J_R|, `dense` |J_NR|, `radius` the l-inf epsilon, `q` the smoothed ReLU's power.
    The talk assumes alpha >> beta and sum alpha^tau << sum beta^tau for some tau; these
    inequalities are ours, found on prototypes, with tau = q.
    """
    few, many = integer("robust", robust, minimum=1), integer("dense", dense, minimum=1)
    strong, weak = number("alpha", alpha, above=0.0), number("beta", beta, above=0.0)
    size, power = number("radius", radius, above=0.0), number("q", q, minimum=1.0)
    left = max(strong - size, 0.0)
    return PatchWindow(
        denser=many * weak**power / (few * strong**power),
        breakable=2.0 * size / weak,
        learnable=few * left**power / ((few + many) * size**power),
    )
