"""What robustness costs: adversarial training beside plain training of pReLU networks.

The study behind `open-questions/training-time`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from extremal import _check, data, measure, train
from extremal.experiments.papers.shared.robust import three_ways
from extremal.experiments.trial import Outcome

TRAININGS = ("plain", "adversarial")


def training_time(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training of a shallow network by Adam: accuracies, and what they have cost.

    `seconds` are those of the processor that trained, a property of the machine; `passes` is the
    number of gradients that each image was part of, which is none. Robust accuracy is at `radius`
    in l-inf, under the strongest attack and, of the first points, certified.
    """
    _check.choice("training", params["training"], TRAININGS)
    learn, test = data.load(params["dataset"])
    learn = learn.subset(min(params["train_points"], len(learn)), generator=generator)
    test = test.subset(min(params["test_points"], len(test)), generator=generator)
    net = train.mnist_network(params["p"], learn, width=params["width"], generator=generator)
    attacked = params["training"] == "adversarial"
    radius, steps = params["radius"], params["inner_steps"]
    begun = time.process_time()
    train.adversarial(
        net,
        learn,
        inner=train.InnerAttack(
            "linf", radius if attacked else 0.0, steps, start="random", box=test.box
        ),
        method="adam",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        watch=train.RobustValidation(training=False),
        generator=generator,
    )
    seconds = time.process_time() - begun
    passes = params["epochs"] * (1 + steps if attacked else 1)
    found = three_ways(
        net,
        test.take(slice(params["attacked_points"])),
        [radius],
        norm="linf",
        steps=params["attack_steps"],
        certified=params["certified_points"],
        generator=generator,
    ).curves()
    robust = found["attacked"][-1]
    return Outcome(
        {
            "clean": measure.accuracy(net, test),
            "attacked": robust,
            "attacked_few": found["attacked_few"][-1],
            "certified": found["certified"][-1],
            "seconds": seconds,
            "passes": passes,
            "per_second": robust / max(seconds, 1e-9),
            "per_pass": robust / passes,
        }
    )
