"""Many networks on one mixture: who follows the Bayes classifier, and who breaks at 1/sqrt(K).

The study behind Figures 2 and 7 of Min & Vidal 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, measure, models
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments.studies.bracket import bracket
from extremal.experiments.studies.networks import trained
from extremal.experiments.studies.robust import share
from extremal.experiments.trial import Outcome

_LEARNED, _FALLEN = 0.99, 0.5  # accuracy and share of the first loss at which a network has learned


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
    fell = not losses or losses["loss"] <= _FALLEN * losses["loss_start"]
    numbers = {**losses, "clean_accuracy": clean, "learned": bool(clean >= _LEARNED and fell)}
    radii = [float(radius) for radius in params["radii"]]
    seen = test.take(slice(params["attacked_points"]))
    if isinstance(net, models.PReLUNet):
        found = bracket(net, seen, radii, generator)
    else:
        smallest = smallest_radii(net, seen, radii, steps=params["attack_steps"], generator=generator)
        found = {
            "robust_accuracy": [share(smallest > radius) for radius in radii],
            "half_radius": float(smallest.median()),
        }
    return Outcome({**numbers, "radius": radii, **found})


def smallest_radii(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """The smallest radius (n,) at which each point was broken: 0 misclassified, inf never.

    `attack.minimal` first; then all attacks of `attack.run`, with the closed forms of the mixture,
    at the largest of the radii that the point has survived, and again at the next one as long as
    they break it.
    """
    smallest = attack.minimal(net, data.x, data.y, steps=steps, generator=generator).radius
    tried = torch.tensor(sorted({radius for radius in radii if radius > 0}), dtype=torch.float64)
    rows = torch.arange(len(data))
    while True:
        survived = torch.searchsorted(tried, smallest[rows])  # how many radii are smaller
        rows, survived = rows[survived > 0], survived[survived > 0]
        if len(rows) == 0:
            return smallest
        limit, part = tried[survived - 1], data.take(rows)
        result = attack.run(
            net,
            part.x,
            part.y,
            radius=limit,
            steps=steps,
            mixture=part.source,
            group=part.group,
            generator=generator,
        )
        # The re-check's slack may leave a norm above the radius by a share of 1e-5.
        rows, found = rows[result.success], torch.minimum(result.radius, limit)[result.success]
        smallest[rows] = found
