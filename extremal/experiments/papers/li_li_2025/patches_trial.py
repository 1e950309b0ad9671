"""Standard and adversarial training on patches: which features are learned, and when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import _check, attack, measure, models, theory, train
from extremal.data import Dataset, PatchData
from extremal.experiments.trial import Outcome
from extremal.train import loss_slope

TRAINING_KINDS = ("standard", "adversarial")
# These curves tell the phases.
PHASE_CURVES = ("epoch", "clean", "robust", "by_trained_attack")
# Clean accuracy is perfect from here on: no more than rounding is missing.
_PERFECT_ACCURACY = 0.999
# In phase I the strongest attack leaves less than this.
_BROKEN_ACCURACY = 0.05
# In phase II it leaves more than this.
_ROBUST_ACCURACY = 0.9


def figure_3_trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: correlations with both kinds of features, clean and robust accuracy, phases.

    `phase_one` counts the epochs, among those recorded, at which clean accuracy is perfect and the
    strongest attack leaves less than 0.05; `phase_two` is 1 where it leaves more than 0.9 in the
    end. The transition is the first epoch recorded from which on it leaves more than one half.
    """
    source = _source(params)
    learn = source.sample_each(params["train_each"], generator=generator)
    test = source.sample_each(params["test_each"], generator=generator)
    net = models.PatchCNN(
        params["classes"],
        params["width"],
        params["dim"],
        q=params["q"],
        rho=params["rho"],
        std=params["init_std"],
        generator=generator,
    )
    path = _trained(net, learn, test, params, generator)
    curves = _curves(path)
    return Outcome({**curves, **_phases(curves), **_end(net, test, source, params, generator)})


def transition_trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """`patches`, and whether both phases came as the three inequalities of the window say.

    The network before its first step may be right by chance, and shows no phase. `never` is 1 where
    they did not come, so that its mean is how often "never" is right. `edge` is 1 where an
    inequality is an equality, so that the window says neither.
    """
    found = dict(figure_3_trial(params, generator).numbers)
    found |= _phases({name: found[name][1:] for name in PHASE_CURVES})
    predicted = theory.patch_window(
        params["robust"],
        params["dense"],
        sum(params["alpha"]) / 2,
        sum(params["beta"]) / 2,
        params["radius"],
        params["q"],
    )
    both = float(found["phase_one"] > 0 and found["phase_two"] == 1.0)
    return Outcome(
        {
            **found,
            "denser": predicted.denser,
            "breakable": predicted.breakable,
            "learnable": predicted.learnable,
            "predicted": float(predicted.inside),
            "edge": float(predicted.edge),
            "both_phases": both,
            "never": 1.0 - both,
            "agrees": float(both == float(predicted.inside)),
        }
    )


def _source(params: Mapping[str, Any]) -> PatchData:
    return PatchData(
        params["classes"],
        params["dim"],
        params["robust"],
        params["dense"],
        alpha=tuple(params["alpha"]),
        beta=tuple(params["beta"]),
        noise=params["noise"],
    )


def _trained(
    net: models.PatchCNN,
    learn: Dataset,
    test: Dataset,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> train.Trajectory:
    """Full-batch descent, recorded every so many epochs.

    Standard training is that of radius 0, and is watched at the radius of the other. Also kept is
    what the attack trained with leaves of the test points, which is no evidence.
    """
    _check.choice("training", params["training"], TRAINING_KINDS)
    standard = params["training"] == "standard"
    radius, step = params["radius"], params["inner_step"]
    inner = train.InnerAttack("linf", radius, params["inner_steps"], step, "plain")
    unmoved = train.InnerAttack("linf", 0.0)
    source = test.source
    assert isinstance(source, PatchData)

    def learned(seen: nn.Module) -> measure.PatchFeatures:
        assert isinstance(seen, models.PatchCNN)
        return measure.patch_features(seen, source)

    every, last = params["recorded_every"], params["epochs"]
    early = [epoch for epoch in params.get("recorded_also", ()) if epoch < last]
    record = train.Record(
        at=sorted({*early, *range(every, last, every)}),
        watch={
            "robust_feature": lambda seen: float(learned(seen).robust.mean()),
            "dense_feature": lambda seen: float(learned(seen).dense.mean()),
            "by_trained_attack": lambda seen: _by_inner(seen, test, inner),
        },
    )
    return train.adversarial(
        net,
        learn,
        inner=unmoved if standard else inner,
        lr=params["lr"],
        epochs=params["epochs"],
        watch=train.RobustValidation(
            params["watched_points"], params["watched_steps"], radius, test, training=False
        ),
        record=record,
        generator=generator,
    )


def _by_inner(net: nn.Module, test: Dataset, inner: train.InnerAttack) -> float:
    """Accuracy on the test points as the attack of training moves them."""
    slope = loss_slope(train.Loss("cross-entropy"), test.y)
    moved = inner.perturbed(net, test.x, slope, generator=torch.Generator().manual_seed(0))
    return measure.accuracy(net, Dataset(moved, test.y))


def _curves(path: train.Trajectory) -> dict[str, Any]:
    """What was recorded, by epoch."""
    names = {
        "clean": "validation_accuracy",
        "robust": "validation_robust",
        "by_trained_attack": "by_trained_attack",
        "robust_feature": "robust_feature",
        "dense_feature": "dense_feature",
    }
    values = {name: path.values[key].tolist() for name, key in names.items()}
    return {"epoch": [round(time) for time in path.times.tolist()], **values}


def _phases(curves: Mapping[str, Any]) -> dict[str, float]:
    """The phases that the curves show."""
    epochs, robust = curves["epoch"], curves["robust"]
    first = [
        epoch
        for epoch, clean, left in zip(epochs, curves["clean"], robust, strict=True)
        if clean >= _PERFECT_ACCURACY and left < _BROKEN_ACCURACY
    ]
    below = [epoch for epoch, left in zip(epochs, robust, strict=True) if left <= 0.5]
    after = [epoch for epoch in epochs if not below or epoch > below[-1]]
    return {
        "phase_one": float(len(first)),
        "phase_one_ends": float(first[-1]) if first else math.nan,
        "transition": float(after[0]) if after else math.inf,
        "masked": max(
            (seen - left for seen, left in zip(curves["by_trained_attack"], robust, strict=True)),
            default=0.0,
        ),
    }


def _end(
    net: models.PatchCNN,
    test: Dataset,
    source: PatchData,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """The network after training, under all attacks and under those that know no network."""
    radius = params["radius"]
    found = attack.run(
        net,
        test.x,
        test.y,
        norm="linf",
        radius=radius,
        steps=params["attack_steps"],
        generator=generator,
    )
    left = 1.0 - float(found.success.double().mean())
    features = measure.patch_features(net, source)
    robust, dense = float(features.robust.mean()), float(features.dense.mean())
    return {
        "clean_accuracy": measure.accuracy(net, test),
        "robust_accuracy": left,
        "phase_two": float(left > _ROBUST_ACCURACY),
        "inside_accuracy": measure.accuracy(net, source.perturbed_by_features(test, radius)),
        "replaced_accuracy": measure.accuracy(
            net, source.perturbed_by_features(test, radius, kind="replaced")
        ),
        "robust_correlation": robust,
        "dense_correlation": dense,
        "dense_over_robust": dense / robust if robust > 0 else math.inf,
    }
