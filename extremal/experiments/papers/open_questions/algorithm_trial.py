"""Train one network by different algorithms, and see whether they end in the same place.

The study behind `open-questions/algorithm`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from extremal import _check, measure, models, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments.papers.shared.robust_numbers import bracketed
from extremal.experiments.trial import Outcome

ALGORITHMS = ("flow", "gd", "sgd", "adam")


def algorithm(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: alignment, distance to the predicted classifier, radii from both sides.

    One seed gives the same data and the same initial weights to all algorithms. `mean_cosine` is
    with the directions that theory predicts, weighted by contribution, and `distance` to the
    classifier made of them. A training that diverges is an outcome, too, whose radii are null.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    data = mixture.sample(params["train_points"], generator=generator)
    init = models.Gaussian(params["init_std"])
    net = models.PReLUNet(mixture.dim, params["width"], params["p"], init=init, generator=generator)
    test = mixture.sample(params["test_points"], generator=generator)
    try:
        found = _trained(net, data, params, generator)
    except train.DivergenceError as error:
        unknown = dict.fromkeys(("half_radius", "mean_cosine", "distance", "loss"), math.nan)
        return Outcome({"diverged": 1.0, "reason": str(error), **unknown})
    averages = torch.stack([mixture.average(1), mixture.average(-1)])
    few = params["p"] < 2
    reference = (
        models.average_classifier(mixture)
        if few
        else models.subclass_classifier(mixture, params["p"])
    )
    followed = measure.following(net, averages if few else mixture.centers)
    weight = followed.contribution / followed.contribution.sum()
    radii = list(params["radii"])
    return Outcome(
        {
            **bracketed(net, test, generator, params["certified_points"]).numbers(radii),
            "diverged": 0.0,
            "radius": radii,
            "loss": float(found.values["loss"][-1]),
            "time": float(found.times[-1]),
            "clean_accuracy": measure.accuracy(net, test),
            "mean_cosine": float((followed.cosine * weight).sum()),
            "dominant": len(followed.neurons),
            "unfollowed": len(followed.unfollowed),
            "distance": measure.distance(net, reference, generator=generator).value,
        }
    )


def _trained(
    net: models.PReLUNet, data: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> train.Trajectory:
    """`flow_time` of the flow, of its discretisations as many steps as make that, of Adam `steps`.

    The flow is that of the samples, which the others take steps of, and not of the mixture; its
    tolerance is the usual one, unless a run has its own and p > 2. A step of size lr with momentum
    m counts as lr / (1 - m).
    """
    name, loss, until = params["algorithm"], params["loss"], params["flow_time"]
    _check.choice("algorithm", name, ALGORITHMS)
    if name == "flow":
        fine = params.get("tolerance") if params["p"] > 2 else None
        return train.gradient_flow(
            net, data, loss=loss, until=until, method="general", tolerance=fine
        )
    lr = params["lr"]
    if name == "adam":
        return train.adam(
            net,
            data,
            loss=loss,
            lr=lr,
            batch=params["batch"],
            steps=params["adam_steps"],
            generator=generator,
        )
    momentum = params["momentum"]
    steps = round(until * (1.0 - momentum) / lr)
    if name == "gd":
        return train.gd(net, data, loss=loss, lr=lr, momentum=momentum, steps=steps)
    return train.sgd(
        net,
        data,
        loss=loss,
        lr=lr,
        momentum=momentum,
        batch=params["batch"],
        steps=steps,
        generator=generator,
    )
