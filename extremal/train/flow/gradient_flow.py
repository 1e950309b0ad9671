"""Gradient flow: theta' = -grad L(theta), integrated with control of the error."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from extremal import _check
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import PReLUNet, float64_copy
from extremal.train.checkpoint import Checkpoint
from extremal.train.flow.driver import (
    Flow,
    FlowProgress,
    check_progress,
    follow,
    read_state,
    resume,
)
from extremal.train.flow.end_condition import Until, as_until
from extremal.train.flow.shallow_flow import ShallowFlow
from extremal.train.flow.staged_flow import StagedFlow
from extremal.train.flow.weight_flow import WeightFlow
from extremal.train.flow_verification import UnverifiedFlowWarning, compared
from extremal.train.gradient_descent import check_fit
from extremal.train.losses import Function, Loss, LossName, as_loss, outputs_on
from extremal.train.recording import DivergenceError, Record, Recorder, Trajectory

# The ways to follow a flow, of which "auto" chooses one.
Method = Literal["auto", "general", "mixture"]
# Errors about a network that can't be followed in stages say this rule.
_STAGED_NET_RULE = (
    "be a one-output PReLUNet with nothing frozen, no biases, no preparation and no zero neuron"
)
# What integrates a flow: `StagedFlow`, `ShallowFlow` or `WeightFlow`.
Engine = Literal["stages", "shallow", "weights"]
# Up to so many products of neurons and samples "auto" takes the samples as they are: it is cheap.
_MOST_GENERAL_PRODUCTS = 1_000_000
# The tightest tolerance in polar coordinates; below it the weights themselves are followed.
_LEAST_POLAR_TOLERANCE = 1e-4
# The last of the stages has smaller errors of its own. On digits outputs of other two-layer nets
# were off by .1 % at 3e-4 and by up to 4 % at 1e-3.
_DEFAULT_TOLERANCES: dict[Engine, float] = {"stages": 1e-3, "shallow": 3e-4, "weights": 1e-6}


@dataclass(frozen=True)
class _Way:
    """How a flow is followed: by which method and engine, at which tolerance."""

    method: str
    engine: Engine
    tolerance: float


def gradient_flow(
    net: nn.Module,
    train: Dataset,
    *,
    loss: LossName | Function | Loss = "exp",
    until: float | Until,
    method: Method = "auto",
    tolerance: float | None = None,
    max_steps: int = 100_000,
    record: Record | None = None,
    progress: bool | FlowProgress | None = None,
    checkpoint: str | Path | None = None,
    verify: bool = False,
    generator: torch.Generator | None = None,
) -> Trajectory:
    """Follow theta' = -grad L(theta) from the network's weights to flow time `until`.

    Min & Vidal 2024, Section 2 (the paper writes the inclusion with the opposite sign; it is
    descent). The network is trained in place and keeps its dtype. With a summed loss, time runs n
    times faster.

    "general" makes no assumption on the data and converges to the sample's flow as `tolerance` goes
    to 0. Two-layer networks have polar coordinates, in which no small number occurs, and are
    followed in them where `tolerance` is at least 1e-4. With one output, all of it trained and no
    biases, the flow goes in stages (`flow.staged_flow`, 1e-3 unless said): neurons by themselves
    while they align, then the few directions that are left. With several outputs, biases, frozen
    parts, a preparation or a loss of one's own, all neurons are followed to the end in stabilised
    steps (`flow.shallow_flow`, 3e-4 unless said), whose number grows like the logarithm of time
    once the loss falls. Any other network, one with a neuron that is zero, and any tolerance below
    1e-4 (1e-6 unless said) is followed on the weights in float64 by Dormand & Prince 5(4), with
    errors below `tolerance` of each neuron's own length per step. At kinks (p = 1) the slope of
    relu at 0 is 0; in stages, once neurons interact, it rises to 1 within .6 of the `tolerance`
    times a sample's length, and for the other networks in polar coordinates within twice the
    `tolerance` times that, so that neurons can slide along kinks. Slides are stiff: stages go on in
    stabilised steps where stability bounds the late steps of all neurons.

    "mixture" (1e-3 unless said) is for such one-output networks on data whose groups are known
    Gaussian clusters: alignment costs nothing that grows with the samples or the dimension. Each
    cluster's noise is replaced by a Gaussian until few directions are left, so it does not converge
    to the sample's flow as the tolerance goes to 0.

    "auto" takes "mixture" where it applies, the data say that they are an `OrthonormalMixture`, and
    neurons times samples are more than a million, else "general"; the trajectory's info says which.
    Denormal numbers are flushed from here on in this process (`torch.set_flush_denormal`).

    With "mixture", recorded losses and accuracies are the clusters' until few directions are left
    (`info["gathered"]`), those of the samples from then on; goals of `until` are always the
    samples', and where there are any, so is what is recorded. What the stages report as `change`
    and `bound` is what dropping and merging neurons changed when it was done, and `missed` what it
    was seen to change later: before the few are taken they are run ahead beside all neurons, on a
    part of the samples at least, and their outputs stay within ten tolerances of each other. Where
    they do not, all go on. Alignment and the subspace in which it is followed are common to both:
    `verify` looks at those as well.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset`.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `until`: the flow time to end at, or an `Until` with a loss or a margin to reach.
    - `method`: "auto", "general" or "mixture", see above; one that does not apply is refused.
    - `tolerance`: the error allowed in a step, above 0, see above; None for the default of the
      method.
    - `max_steps`: the most steps, rejected ones included, 100,000 by default. Where they are not
      enough a `DivergenceError` says how far the flow has come; the network is left there.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone.
    - `progress`: None (the default) for a line on the standard error where that is a terminal and
      the run takes longer than 3 seconds; True for one in any case, False for none, or a function
      of (flow time, loss, phase).
    - `checkpoint`: a file that keeps the state every 15 seconds, on Ctrl-C and where `max_steps`
      were not enough, and is removed at the end; a later call with the network as it was at the
      start goes on from there.
    - `verify`: True follows the flow once more, in float64 at a tenth of the tolerance;
      `info["verified"]` then has the change of outputs, of the loss and of the dominant directions,
      and a change of more than 1 % or another set of directions is an `UnverifiedFlowWarning`.
      Below 1e-4 that flow follows the weights, which is slow for large problems.
    - `generator`: not used, since the flow is deterministic.
    """
    end = as_until(until)
    check_progress(progress)
    _check.choice("method", method, ("auto", "general", "mixture"))
    if tolerance is not None:
        _check.number("tolerance", tolerance, above=0.0, maximum=0.1)
    _check.integer("max_steps", max_steps, minimum=1)
    _check.instance("verify", verify, bool, "be True or False")
    used = as_loss(loss)
    check_fit(net, train, used)
    _require_a_neuron(net)
    del generator
    torch.set_flush_denormal(True)
    way = _chosen_way(net, train, used, method, tolerance)
    twin, start = _float64_twin(net), _float64_twin(net)
    data = train.to(torch.float64) if way.engine == "weights" else train
    recorder = Recorder(record, twin, data, used, end.time)
    saved: Checkpoint | None = None
    state: dict[str, Any] = {"time": 0.0}
    if checkpoint is not None:
        saved = _checkpoint(checkpoint, twin, train, recorder, [way.tolerance, way.method])
        state = read_state(saved, recorder, end.time)
    flow = _flow(way, twin, data, used, end, state["time"])
    resume(flow, state)
    try:
        trajectory = follow(flow, recorder, end, max_steps, progress, saved, way.method)
    finally:
        _copy_back(twin, net)
    trajectory.info["tolerance"] = way.tolerance  # type: ignore[index]
    if verify:
        trajectory.info["verified"] = _verified(  # type: ignore[index]
            twin,
            start,
            train,
            used,
            trajectory.info,
            method=method,
            max_steps=max_steps,
            progress=False if callable(progress) else progress,
        )
    return trajectory


def _verified(
    net: nn.Module,
    start: nn.Module,
    train: Dataset,
    loss: Loss,
    info: Mapping[str, Any],
    **settings: Any,
) -> dict[str, Any] | None:
    """What a finer flow from the start, which is trained, changes; None where it did not end."""
    finer = 0.1 * info["tolerance"]
    if info["reached"] > 0.0:
        given = {"loss": loss, "until": info["reached"], "tolerance": finer, **settings}
        try:
            gradient_flow(start, train.to(torch.float64), **given)
        except DivergenceError as error:
            message = f"the flow could not be verified: at tolerance {finer:g} {error}"
            warnings.warn(message, UnverifiedFlowWarning, stacklevel=3)
            return None
    return asdict(compared(net, start, train, loss, finer))


def _require_a_neuron(net: nn.Module) -> None:
    zero = isinstance(net, PReLUNet) and not bool(net.neurons.detach().any())
    rule = "have a neuron that is not zero (tiny ones need dtype=torch.float64)"
    _check.require(not zero, "net", rule, "zeros alone")


def _chosen_way(
    net: nn.Module, train: Dataset, loss: Loss, method: Method, tolerance: float | None
) -> _Way:
    """How to follow a flow; a ValueError where the method asked for does not apply."""
    stageable = can_be_staged(net) and loss.function is None
    if method == "mixture":
        named = loss.function is None
        _check.require(named, "loss", "be 'exp' or 'logistic' for method 'mixture'", loss.name)
        _check.require(stageable, "net", _STAGED_NET_RULE, repr(net))
        return _Way("mixture", "stages", tolerance or _DEFAULT_TOLERANCES["stages"])
    engine: Engine = "weights"
    if tolerance is None or tolerance >= _LEAST_POLAR_TOLERANCE:
        engine = "stages" if stageable else "shallow" if has_directions(net) else "weights"
    known = train.group is not None and isinstance(train.source, OrthonormalMixture)
    large = isinstance(net, PReLUNet) and net.width * len(train) > _MOST_GENERAL_PRODUCTS
    takes_mixture = method == "auto" and engine == "stages" and known and large
    name = "mixture" if takes_mixture else "general"
    return _Way(name, engine, tolerance or _DEFAULT_TOLERANCES[engine])


def _flow(way: _Way, net: nn.Module, data: Dataset, loss: Loss, end: Until, time: float) -> Flow:
    """The flow of a network that is at flow time `time`, in the way that was chosen."""
    if way.engine == "weights" or not isinstance(net, PReLUNet):
        return WeightFlow(net, data, loss, way.tolerance, end.time, time=time)
    if way.engine == "shallow":
        return ShallowFlow(net, data, loss, way.tolerance, time=time)
    known, horizon = way.method == "mixture", _horizon(end, loss, len(data))
    return StagedFlow(
        net, data, loss, way.tolerance, horizon, known=known, exact=end.goals, time=time
    )


def can_be_staged(net: nn.Module) -> bool:
    """Whether a network is one that the stages can follow, apart from its loss."""
    if not isinstance(net, PReLUNet):
        return False
    trained = all(part.requires_grad for part in net.parameters())
    simple = net.outputs == 1 and net.bias is None and net.hidden_bias is None
    return trained and simple and has_directions(net) and net.preparation.is_identity


def has_directions(net: nn.Module) -> bool:
    """Whether a network is a two-layer one all of whose neurons have a direction."""
    return isinstance(net, PReLUNet) and bool(net.neurons.detach().any(1).all())


def _checkpoint(
    path: str | Path, net: nn.Module, train: Dataset, recorder: Recorder, settings: list[Any]
) -> Checkpoint:
    """The file of a flow that starts at a network."""
    record, loss = recorder.record, recorder.loss
    asked = [sorted(record.watch), record.snapshots, record.phases]
    named = [loss.name, loss.reduction, _value_at_some_outputs(loss, net, train)]
    problem = [*settings, *named, asked, train.x, train.y, train.group, net]
    parts = "network, data, settings and record"
    return Checkpoint(path, problem, training="gradient_flow", parts=parts)


def _value_at_some_outputs(loss: Loss, net: nn.Module, train: Dataset) -> float | None:
    """What tells two functions of one name apart, say lambdas; None for a loss known by name."""
    if loss.function is None:
        return None
    out = outputs_on(net, train.to(torch.float64))
    return float(loss.value(torch.linspace(-1.0, 1.0, out.numel()).to(out).view_as(out), train.y))


def _horizon(until: Until, loss: Loss, count: int) -> float:
    """A time by which the flow will have ended: the loss falls like 1/t."""
    if math.isfinite(until.time):
        return until.time
    lowest = min(
        until.loss if until.loss is not None else 1.0,
        math.exp(-min(max(until.margin or 0.0, 0.0), 50.0)),
    )
    return 1e3 / lowest / (count if loss.reduction == "sum" else 1.0)


def _float64_twin(net: nn.Module) -> nn.Module:
    """A float64 copy whose parameters are trainable where the original's are."""
    twin = float64_copy(net)
    for copied, original in zip(twin.parameters(), net.parameters(), strict=True):
        copied.requires_grad_(original.requires_grad)
    return twin


def _copy_back(twin: nn.Module, net: nn.Module) -> None:
    with torch.no_grad():
        for copied, original in zip(twin.parameters(), net.parameters(), strict=True):
            original.copy_(copied)
