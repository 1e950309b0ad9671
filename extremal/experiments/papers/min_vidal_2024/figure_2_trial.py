"""Train on the mixture from a small initialisation, and see which classifier was learned.

What a trial of Figures 2 and 5, of `flow-fidelity` and of the demo computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from extremal import attack, measure, models, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import bracket
from extremal.experiments.papers.shared.mixture_training import (
    class_averages,
    mean_cosine,
    mixture_of,
    predicted_classifier,
    predicted_directions,
    small_network,
)
from extremal.experiments.papers.shared.robust_numbers import (
    radius_at_half_accuracy,
    robust_numbers,
    share,
)
from extremal.experiments.trial import Outcome

# The trainings that follow a flow, each with its method.
_FLOW_METHODS: dict[str, Literal["general", "mixture"]] = {
    "flow": "mixture",
    "sample flow": "general",
}


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: distance to the predicted classifier, alignment, robust accuracy.

    The alignment panels and the attacks are computed where `spread` is `detail_spread`, as in the
    paper, which keeps one network for its panels b to e, or among several of these.
    """
    mixture = mixture_of(params)
    net, trajectory = _trained(mixture, params, generator)
    test = mixture.sample(params["test_points"], generator=generator)
    reference = predicted_classifier(mixture, params["p"])
    found = measure.distance(net, reference, generator=generator, method=params["distance"])
    numbers: dict[str, Any] = {
        "loss": float(trajectory.values["loss"][-1]),
        "clean_accuracy": measure.accuracy(net, test),
        "distance": found.value,
        "distance_lower": found.lower,
        "distance_converged": found.converged,
        "times": trajectory.times.tolist(),
        "losses": trajectory.values["loss"].tolist(),
    }
    detailed = params["detail_spread"]
    if params["spread"] not in (detailed if isinstance(detailed, list) else [detailed]):
        return Outcome(numbers)
    shown, cosines = _alignment(net, mixture, params)
    attacked = test.take(torch.arange(min(params["attacked_points"], len(test))))
    robust = _robustness(net, attacked, params, generator)
    printed = _algorithm_1(net, reference, test, params, generator)
    return Outcome({**numbers, **shown, **robust, **printed}, cosines)


def _trained(
    mixture: OrthonormalMixture, params: Mapping[str, Any], generator: torch.Generator
) -> tuple[models.PReLUNet, train.Trajectory]:
    """A network after `flow_time`: by SGD as published, or by the gradient flow that it follows.

    The "flow" is that of known clusters, the "sample flow" that of the very samples.
    """
    data = mixture.sample(params["train_points"], generator=generator)
    net = small_network(mixture.dim, params, generator)
    record = train.Record.log_spaced(1.0, params["flow_time"], params["recorded"])
    if params["training"] in _FLOW_METHODS:
        method, until = _FLOW_METHODS[params["training"]], params["flow_time"]
        return net, train.gradient_flow(
            net, data, loss=params["loss"], until=until, method=method, record=record
        )
    trajectory = train.sgd(
        net,
        data,
        loss=params["loss"],
        lr=params["lr"],
        batch=params["batch"],
        steps=round(params["flow_time"] / params["lr"]),
        record=record,
        generator=generator,
    )
    return net, trajectory


def _algorithm_1(
    net: models.PReLUNet,
    reference: models.PReLUNet,
    test: Dataset,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """The distance as the paper's Algorithm 1 finds it, c fitted on the sphere or on data."""
    if params["algorithm_1_starts"] == 0:
        return {}
    found = measure.distance(
        net,
        reference,
        generator=generator,
        method="paper",
        starts=params["algorithm_1_starts"],
        steps=params["algorithm_1_steps"],
        fit=test if params["algorithm_1_fit"] == "data" else None,
    )
    return {"distance_algorithm_1": found.value, "scale_algorithm_1": found.scale}


def _alignment(
    net: models.PReLUNet, mixture: OrthonormalMixture, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Contributions, and the cosines of the heaviest neurons, grouped by what they follow."""
    expected = predicted_directions(mixture, params["p"])
    shown = params["neurons_p1" if params["p"] < 2 else "neurons_p3"]
    dominant = measure.following(net, expected)
    heaviest = measure.following(net, expected, top=min(shown, net.width))
    order = heaviest.neurons[torch.argsort(heaviest.direction, stable=True)]
    numbers = {
        "dominant": len(dominant.neurons),
        "lowest_cosine": dominant.lowest,
        "mean_cosine": mean_cosine(dominant),
        "unfollowed": len(dominant.unfollowed),
        "contributions": heaviest.contribution.tolist(),
        "directions": ["+", "−", *(str(k + 1) for k in range(mixture.count))],
    }
    both = torch.cat([class_averages(mixture), mixture.centers])
    return numbers, {"cosines": measure.cosines(net.neurons[order], both).float()}


def _robustness(
    net: models.PReLUNet, test: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy against radius, and under PGD alone as published.

    With `bracket` from both sides, else under all attacks at each radius. Without PGD steps there
    is no curve of PGD alone.
    """
    radii = params["radii"]
    numbers: dict[str, Any] = {"radius": list(radii)}
    if params.get("bracket", False):
        numbers |= robust_numbers(bracket(net, test, generator=generator), radii)
    else:
        worst = attack.accuracy_curve(net, test, radii, generator=generator).accuracy.tolist()
        numbers |= {"robust_accuracy": worst, "half_radius": radius_at_half_accuracy(radii, worst)}
    steps, step = params["pgd_steps"], params["pgd_step"]
    if steps == 0:
        return numbers
    alone = attack.radii_pgd(net, test.x, test.y, radii=radii, steps=steps, step=step)
    # The re-check's slack may leave a norm above the radius by a share of 1e-5.
    pgd = [share(alone.radius > radius * (1.0 + 1e-5)) for radius in radii]
    numbers |= {"robust_accuracy_pgd": pgd, "half_radius_pgd": radius_at_half_accuracy(radii, pgd)}
    return numbers
