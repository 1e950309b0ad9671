"""Robust accuracy between an attack and a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Progress
from extremal.attack import NORMS, AttackResult
from extremal.certify import CERTIFY_BATCH_POINTS, EFFORTS, Certificate, can_certify
from extremal.data import Dataset
from extremal.evaluate import health_checks
from extremal.evaluate.evaluation_task import EvaluationTask
from extremal.evaluate.health_checks import probed
from extremal.evaluate.robustness import Robustness
from extremal.evaluate.robustness_curve import checked_radii

# Steps of attacks on networks that are not shallow, for each effort of the certificate.
ATTACK_STEPS = {"tight": 100, "fast": 30}


def evaluate(
    net: nn.Module,
    test: Dataset,
    *,
    norm: str = "l2",
    radii: Sequence[float] | None = None,
    effort: Literal["tight", "fast"] = "tight",
    certify: bool = True,
    sampled: bool = True,
    generator: torch.Generator,
    batch: int = CERTIFY_BATCH_POINTS,
    progress: bool | Progress = False,
) -> Robustness:
    """For each point of `test` a radius that no attack reaches, and one at which it breaks.

    `lower` is `certify.certificate`'s, `upper` the smallest that attacks within `test.box` found:
    `attack.minimal` for each point, then `attack.run` at each of `radii` against the points that
    are undecided there. Health checks look for signs that the attacks were misled (zero gradients,
    a loss that does not change, a random search or plain PGD that disagree, probabilities for
    outputs, margins of rounding, wide brackets); they end up in `warnings`, and what their probes
    break counts. A network of which no certificate is known gets lower = 0 and a warning. Where the
    points are no random sample, say `sampled=False`: the headline then claims nothing of the
    population. One seed, one result.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `test`: points (n, dim) and labels, a `Dataset`; attacks stay in its box, where it has one.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `radii`: a sequence of radii >= 0; None for no attacks beyond the smallest ones.
    - `effort`: that of the certificate, and of attacks on networks that are not a `PReLUNet` or a
      `Grouped` one: 100 steps with "tight", 30 with "fast".
    - `certify`: False leaves the certificate out; lower radii are then 0, without a warning.
    - `sampled`: whether the points are a random sample, for the headline and the table.
    - `generator`: source of all random numbers; the same seed gives the same result.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    _check_settings(net, test, norm, effort, generator, batch)
    asked = None if radii is None else sorted(set(checked_radii(radii)))
    task = EvaluationTask(net, test, norm, ATTACK_STEPS[effort], batch, generator)
    out = task.outputs()
    found, lower, proof = _attack_and_certify(task, asked, effort, certify, progress)
    found, warnings = probed(task, out, found)
    if proof is not None:
        warnings.append(health_checks.wide_brackets(lower, found.radius))
    elif certify:
        warnings.append(health_checks.uncertified(type(net).__name__))
    return Robustness(
        lower=lower,
        upper=found.radius,
        norm=norm,
        box=test.box,
        certified=proof is not None,
        boxed=proof is not None and proof.boxed,
        attack=found.name,
        certificate=_certificate_names(proof, len(test)),
        warnings=tuple(warning for warning in warnings if warning is not None),
        settings=_settings(task, effort, certify, asked),
        sampled=sampled,
    )


def _check_settings(
    net: object, test: object, norm: object, effort: object, generator: object, batch: object
) -> None:
    _check.module("net", net)
    _check.instance("test", test, Dataset, "be a Dataset")
    _check.choice("norm", norm, NORMS)
    _check.choice("effort", effort, EFFORTS)
    _check.generator("generator", generator)
    _check.integer("batch", batch, minimum=1)


def _attack_and_certify(
    task: EvaluationTask,
    radii: list[float] | None,
    effort: Literal["tight", "fast"],
    certify: bool,
    progress: bool | Progress,
) -> tuple[AttackResult, Tensor, Certificate | None]:
    """What attacks found, the certified radii (n,), and the certificate where one is known."""
    found = task.minimal_attack(progress)
    known = certify and can_certify(task.net)
    proof = task.certified(found, effort, progress) if known else None
    lower = torch.zeros_like(found.radius) if proof is None else proof.radius
    for radius in radii or []:
        found = task.attack_undecided(found, lower, radius)
    return found, lower, proof


def _settings(
    task: EvaluationTask, effort: str, certify: bool, radii: list[float] | None
) -> dict[str, Any]:
    return {
        "network": type(task.net).__name__,
        "dtype": str(task.dtype).removeprefix("torch."),
        "points": len(task.test),
        "effort": effort,
        "certify": certify,
        "radii": radii,
        "seed": task.generator.initial_seed(),
        "batch": task.batch,
    }


def _certificate_names(proof: Certificate | None, count: int) -> tuple[str, ...]:
    if proof is None:
        return ("",) * count
    return tuple("" if index < 0 else proof.methods[index] for index in proof.method.tolist())
