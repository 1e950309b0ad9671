"""Which way neurons near an average or near a centre drift (Theorem 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extremal import theory
from extremal.data import OrthonormalMixture
from extremal.experiments.trial import Outcome


def drift(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """The share of neurons that drift toward mu_plus, and toward a centre, by their distance.

    Neurons have cosine 1 - delta with their target; the rest of each is random, in the span of its
    class's centres (`inside`) or in the whole space.
    """
    mixture = OrthonormalMixture(params["dim"], params["positive"], params["negative"], 0.0)
    data = mixture.simplified()
    own = mixture.centers[: mixture.positive]
    space = own if params["inside"] else torch.eye(mixture.dim, dtype=torch.float64)
    shares: dict[str, list[float]] = {"toward_average": [], "toward_center": []}
    targets = {"toward_average": mixture.average(1), "toward_center": mixture.centers[0]}
    for name, target in targets.items():
        for delta in params["deltas"]:
            neurons = _near(target, space, delta, params["neurons"], generator)
            moved = theory.cosine_drift(neurons, target, data.x, data.y, params["p"])
            # At p = 2 inside the span nothing moves: rounding is not a direction.
            shares[name].append(float((moved > 1e-12).double().mean()))
    numbers: dict[str, Any] = {"delta": list(params["deltas"]), **shares}
    for name, values in shares.items():
        numbers |= {f"least_{name}": min(values), f"most_{name}": max(values)}
    return Outcome(numbers)


def _near(
    target: Tensor, space: Tensor, delta: float, count: int, generator: torch.Generator
) -> Tensor:
    """Unit vectors (count, dim) of cosine 1 - delta with a unit target, within a span."""
    draw = torch.randn(count, len(space), generator=generator, dtype=torch.float64) @ space
    rest = draw - (draw @ target)[:, None] * target
    rest = rest / rest.norm(dim=1, keepdim=True)
    cosine = 1.0 - delta
    return cosine * target + (1.0 - cosine**2) ** 0.5 * rest
