"""Many networks on one mixture: which follow the Bayes classifier, and which break at 1/sqrt(K).

The study behind Figures 2 and 7 of Min & Vidal 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, certify, measure, models
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import check_bracket
from extremal.experiments.papers.min_vidal_2025.compared_networks import narrowed, trained
from extremal.experiments.papers.shared.robust import share
from extremal.experiments.trial import Outcome

_ACCURATE, _FALLEN = 0.99, 0.5  # clean accuracy, and share of the first loss, of a learned network
_FIRST = 0.01  # of the points, broken where the curve starts to fall
_ROUNDING = 1e-5  # by which a norm may be above the radius of its attack, as a share
_STRETCH = (1.00001, 1.0001, 1.001, 1.01)  # until the network itself takes it as broken


def comparison(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One network on the mixture: its loss, clean accuracy, and robust accuracy against radius.

    Points are drawn before anything that depends on the network, so that with one seed all
    networks meet the same. `learned` says whether the network fits the data: a clean accuracy of
    at least 0.99, and a loss of at most half of that at the start.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    test = mixture.sample(params["test_points"], generator=generator)
    data = mixture.sample(params["train_points"], generator=generator)
    net, losses = trained(data, params, generator)
    clean = measure.accuracy(net, test)
    fallen = not losses or losses["loss"] <= _FALLEN * losses["loss_start"]
    learned = {"clean_accuracy": clean, "learned": clean >= _ACCURATE and fallen}
    seen = test.take(slice(params["attacked_points"]))
    return Outcome({**losses, **learned, **_robustness(net, seen, params, generator)})


def _robustness(
    net: nn.Module, test: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy against radius from above, and for a `PReLUNet` from below as well.

    Certificates are of the first `certified_points`, and `attacked_few` is the bound from above for
    those. A point that breaks within its certified radius is a `BracketViolation`.
    """
    radii = [float(radius) for radius in params["radii"]]
    found = smallest(
        net,
        test,
        radii,
        steps=params["attack_steps"],
        restarts=params["restarts"],
        generator=generator,
    )
    numbers = {
        "radius": radii,
        "robust_accuracy": _standing(found.radius, radii),
        "half_radius": float(found.radius.median()),
        "first_fall": float(found.radius.quantile(_FIRST, interpolation="nearest")),
    }
    if not isinstance(net, models.PReLUNet):
        return numbers
    few = slice(params["certified_points"])
    upper, broken = found.radius[few], found.x_adv[few]
    lower = certify.certificate(net, test.x[few], test.y[few], attacked=broken).radius
    check_bracket(lower, upper, f"l2, of {params['network']!r}")
    return {
        **numbers,
        "attacked_few": _standing(upper, radii),
        "certified_accuracy": [share((upper > 0) & (lower >= radius)) for radius in radii],
        "half_radius_certified": float(lower.median()),
    }


def _standing(smallest: Tensor, radii: Sequence[float]) -> list[float]:
    return [share(smallest > radius * (1.0 + _ROUNDING)) for radius in radii]


def smallest(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    steps: int,
    restarts: int,
    generator: torch.Generator,
) -> attack.AttackResult:
    """The smallest perturbation found of each point of the mixture; infinite radius where none.

    `attack.minimal` first; then all attacks of `attack.run`, with the closed forms of the mixture,
    at the largest of the radii that the point has survived, and again at the next one as long as
    they break it. They search in the coordinates that the network sees (`narrowed`), and what they
    find is verified on the network itself.
    """
    narrow, seen, basis = narrowed(net, data)
    found = attack.minimal(narrow, seen.x, seen.y, steps=steps, generator=generator)
    least = found.radius.clone()
    tried = torch.tensor(sorted({radius for radius in radii if radius > 0}), dtype=torch.float64)
    rows = torch.arange(len(seen))
    while True:
        survived = torch.searchsorted(tried, least[rows])  # how many of the radii
        rows, survived = rows[survived > 0], survived[survived > 0]
        if len(rows) == 0:
            break
        part, limit = seen.take(rows), tried[survived - 1]
        result = attack.run(
            narrow,
            part.x,
            part.y,
            radius=limit,
            steps=steps,
            mixture=part.source,
            group=part.group,
            generator=generator,
        )
        found = found.merged(rows, result)
        rows, limit = rows[result.success], limit[result.success]
        least[rows] = torch.minimum(found.radius[rows], limit)
    found = attack.boundary(
        narrow,
        seen.x,
        seen.y,
        steps=steps,
        restarts=restarts,
        start=found.x_adv,
        generator=generator,
    )
    return _verified(net, data, (found.x_adv - seen.x) @ basis.T)


def _verified(net: nn.Module, data: Dataset, delta: Tensor) -> attack.AttackResult:
    """x + delta as the network takes it, longer where it does not take it as broken."""
    result = _landed(net, data, delta)
    for stretch in _STRETCH:
        rows = torch.nonzero(~result.success).squeeze(1)
        if len(rows) == 0:
            break
        result = result.merged(rows, _landed(net, data.take(rows), stretch * delta[rows]))
    return result


def _landed(net: nn.Module, data: Dataset, delta: Tensor) -> attack.AttackResult:
    ball = attack.Ball("l2", delta.double().norm(dim=1) * (1.0 + _ROUNDING))
    return attack.verified(net, data.x, data.y, data.x + delta, ball, "comparison")
