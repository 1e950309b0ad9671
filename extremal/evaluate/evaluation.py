"""Robust accuracy between an attack and a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Progress
from extremal.attack import NORMS, AttackResult, known_clusters
from extremal.certify import CERTIFY_BATCH_POINTS, EFFORTS, Certificate, can_certify
from extremal.data import Dataset, GaussianClusters
from extremal.evaluate import health_checks
from extremal.evaluate.evaluation_task import EvaluationTask
from extremal.evaluate.health_checks import HealthWarning, probed
from extremal.evaluate.robustness import Robustness
from extremal.evaluate.robustness_curve import checked_radii
from extremal.models import network_name, recognised

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
    are undecided there, both with the clusters that the points come from where `test` knows them.
    Health checks look for signs that the attacks were misled (zero gradients, a loss that does not
    change, a random search or plain PGD that disagree, probabilities for outputs, outputs that
    change from call to call, margins of rounding, wide brackets); they end up in `warnings`, and
    what their probes break counts. A network of which no certificate is known gets lower = 0 and a
    warning. An nn.Sequential of Linear, ReLU, Linear is read as the `PReLUNet` that computes the
    same, and a warning named `converted` says so. Where the points are no random sample, say
    `sampled=False`: the headline then claims nothing of the population. One seed, one result.

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
    known, read = known_clusters(test), recognised(net)
    task = EvaluationTask(read, test, norm, ATTACK_STEPS[effort], batch, generator, known)
    out = task.outputs()
    first = task.minimal_attack(progress)
    count = None if certify else 0
    found, lower, proof = _attack_and_certify(task, first, asked, count, effort, progress)
    found, warnings = probed(task, out, found)
    warnings.append(health_checks.random_outputs(net, test.x))
    if read is not net:
        warnings.append(health_checks.converted(network_name(net)))
    if proof is not None:
        warnings.append(health_checks.wide_brackets(lower, found.radius))
    elif certify:
        warnings.append(health_checks.uncertified(type(net).__name__))
    kept = tuple(warning for warning in warnings if warning is not None)
    settings = _settings(task, network_name(net), effort, certify, asked)
    return replace(_robustness(task, found, lower, proof, settings, kept), sampled=sampled)


def bracket(
    net: nn.Module,
    test: Dataset,
    *,
    norm: str = "l2",
    radii: Sequence[float] | None = None,
    mixture: GaussianClusters | None = None,
    rays: Sequence[Tensor] = (),
    certified: int | None = None,
    effort: Literal["tight", "fast"] = "tight",
    sampled: bool = True,
    generator: torch.Generator,
    batch: int = CERTIFY_BATCH_POINTS,
    progress: bool | Progress = False,
) -> Robustness:
    """Radii from both sides without health checks: what `evaluate` does before it doubts them.

    A network of which no certificate is known is a ValueError, unless none is asked for.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `test`: points (n, dim) and labels, a `Dataset`; attacks stay in its box, where it has one.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `radii`: all attacks meet the points that are undecided at these radii >= 0; None for none.
    - `mixture`: searches the rays between the centres of these `GaussianClusters`, of which the
      points' `group` is the subclass; None (the default) searches none. `evaluate` takes the
      points' own source.
    - `rays`: more directions, each (n, dim), to search, such as what broke another network.
    - `certified`: so many of the first points are certified, the others' lower radius is 0; None
      for all. `gap`, `curve` and `headline` of the result take these others as not proven.
    - `effort`: that of the certificate, and of attacks on networks that are not a `PReLUNet` or a
      `Grouped` one: 100 steps with "tight", 30 with "fast".
    - `sampled`: whether the points are a random sample, for the headline and the table.
    - `generator`: source of all random numbers; the same seed gives the same result.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    _check_settings(net, test, norm, effort, generator, batch)
    asked = None if radii is None else sorted(set(checked_radii(radii)))
    if certified is not None:
        _check.integer("certified", certified, minimum=0)
    if certified != 0:
        rule = "be a network with a certificate, or `certified` be 0"
        _check.require(can_certify(net), "net", rule, type(net).__name__)
    _check_rays(mixture, rays, test)
    name, net = network_name(net), recognised(net)
    task = EvaluationTask(net, test, norm, ATTACK_STEPS[effort], batch, generator, mixture)
    task.outputs()  # which says early whether network and data fit
    first = task.minimal_attack(progress, rays)
    found, lower, proof = _attack_and_certify(task, first, asked, certified, effort, progress)
    settings = _settings(task, name, effort, certified != 0, asked)
    settings |= {"certified": certified, "mixture": mixture is not None, "rays": len(rays)}
    return replace(_robustness(task, found, lower, proof, settings), sampled=sampled)


def _check_rays(mixture: object, rays: object, test: Dataset) -> None:
    """Whether the points can come from the mixture, and rays are of all points."""
    known = mixture is None or (
        isinstance(mixture, GaussianClusters)
        and mixture.dim == test.dim
        and set(mixture.labels.tolist()) == {-1, 1}
    )
    rule = f"be GaussianClusters of classes -1 and +1 in {test.dim} dimensions, or None"
    _check.require(known, "mixture", rule, mixture)
    each = isinstance(rays, list | tuple) and all(
        isinstance(ray, Tensor) and ray.shape == test.x.shape and ray.is_floating_point()
        for ray in rays
    )
    rule = f"be a list of tensors of shape {tuple(test.x.shape)}, as the points are"
    _check.require(each, "rays", rule, rays)


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
    found: AttackResult,
    radii: list[float] | None,
    certified: int | None,
    effort: Literal["tight", "fast"],
    progress: bool | Progress,
) -> tuple[AttackResult, Tensor, Certificate | None]:
    """What attacks found, the certified radii (n,), and the certificate where one is known."""
    lower, proof = torch.zeros_like(found.radius), None
    if certified != 0 and can_certify(task.net):
        proof = task.certified(found, certified, effort, progress)
        lower[:certified] = proof.radius
    for radius in radii or []:
        found = task.attack_undecided(found, lower, radius)
    return found, lower, proof


def _robustness(
    task: EvaluationTask,
    found: AttackResult,
    lower: Tensor,
    proof: Certificate | None,
    settings: dict[str, Any],
    warnings: tuple[HealthWarning, ...] = (),
) -> Robustness:
    return Robustness(
        lower=lower,
        upper=found.radius,
        norm=task.norm,
        box=task.test.box,
        certified=proof is not None,
        boxed=proof is not None and proof.boxed,
        attack=found.name,
        certificate=_certificate_names(proof, len(task.test)),
        warnings=warnings,
        settings=settings,
    )


def _settings(
    task: EvaluationTask, network: str, effort: str, certify: bool, radii: list[float] | None
) -> dict[str, Any]:
    return {
        "network": network,
        "dtype": str(task.dtype).removeprefix("torch."),
        "points": len(task.test),
        "effort": effort,
        "certify": certify,
        "radii": radii,
        "seed": task.generator.initial_seed(),
        "batch": task.batch,
    }


def _certificate_names(proof: Certificate | None, count: int) -> tuple[str, ...]:
    """What proved each point's radius; nothing did for those that were not asked for."""
    methods = [] if proof is None else proof.method.tolist()
    named = ["" if proof is None or index < 0 else proof.methods[index] for index in methods]
    return (*named, *[""] * (count - len(named)))
