"""The mixture and the small network of a trial's parameters, and what theory predicts of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extremal import measure, models
from extremal.data import OrthonormalMixture


def mixture_of(params: Mapping[str, Any]) -> OrthonormalMixture:
    """The mixture that `dim`, `positive`, `negative` and `spread` describe."""
    return OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )


def small_network(
    dim: int, params: Mapping[str, Any], generator: torch.Generator
) -> models.PReLUNet:
    """A network of `width` neurons and power `p`, every weight Gaussian of deviation `init_std`."""
    init = models.Gaussian(params["init_std"])
    return models.PReLUNet(dim, params["width"], params["p"], init=init, generator=generator)


def class_averages(mixture: OrthonormalMixture) -> Tensor:
    """The directions (2, dim) of the positive and of the negative class's average."""
    return torch.stack([mixture.average(1), mixture.average(-1)])


def predicted_directions(mixture: OrthonormalMixture, p: float) -> Tensor:
    """What neurons of power p learn from a small start: class averages below 2, else centres."""
    return class_averages(mixture) if p < 2 else mixture.centers


def predicted_classifier(mixture: OrthonormalMixture, p: float) -> models.PReLUNet:
    """The classifier of those directions: F below p = 2, else F^(p)."""
    if p < 2:
        return models.average_classifier(mixture)
    return models.subclass_classifier(mixture, p)


def mean_cosine(found: measure.Following) -> float:
    """The mean cosine of neurons with what each follows, weighted by their contributions."""
    weight = found.contribution / found.contribution.sum()
    return float((found.cosine * weight).sum())
