"""What gradient attacks ascend: functions of a network's outputs that rise toward a mistake."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import RowRecord
from extremal.models import HasInputGradient, check_outputs, output_margins

OBJECTIVES = ("cross-entropy", "margin", "dlr")
"""The objectives of `objective_values`, by name."""


@dataclass(frozen=True, eq=False)
class ObjectiveValues(RowRecord):
    """An objective at n points."""

    value: Tensor  # (n,)
    gradient: Tensor  # (n, dim), of the value; zero where it is not finite
    margin: Tensor  # (n,): broken where it is <= 0, whatever the objective


def objective_gradient(
    net: nn.Module, x: Tensor, y: Tensor, objective: str, target: Tensor | None = None
) -> ObjectiveValues:
    """`objective_values` at x (n, dim), their gradient in x and the margins, by one forward pass.

    Analytic for a `PReLUNet` or a `PatchCNN`, by autograd for any other module.
    """
    _check.choice("objective", objective, OBJECTIVES)
    if isinstance(net, HasInputGradient):
        out, gradient = net.input_gradient(
            x, lambda out: _output_gradient(out, y, objective, target)
        )
        out = out.squeeze(1) if net.outputs == 1 else out
        value = objective_values(out, y, objective, target)
    else:
        with torch.enable_grad():
            point = x.detach().requires_grad_(True)
            out = net(point)
            value = objective_values(out, y, objective, target)
            (gradient,) = torch.autograd.grad(value.sum(), point)
        out, value = out.detach(), value.detach()
    gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
    return ObjectiveValues(value, gradient, output_margins(out, y))


def objective_values(
    out: Tensor, y: Tensor, objective: str, target: Tensor | None = None
) -> Tensor:
    """The objective (n,) of outputs (n,) or (n, C), with labels y and perhaps target classes (n,).

    "margin": max over t != y of f_t - f_y (the loss of Carlini & Wagner 2017); f_target - f_y.
    "cross-entropy": the log-odds log sum over t != y of exp(f_t) - f_y; those of the target. The
    cross-entropy is softplus(log-odds), and log p_target is -softplus(-log-odds): the same order
    and the same steepest directions, but these do not vanish where probabilities round to 0 or 1.
    "dlr": the margin's objective over a spread of the outputs, so that scaling the network changes
    nothing (Croce & Hein 2020, eqs. 6, 7): f_(1) - f_(3) in order of size, with a target
    f_(1) - (f_(3) + f_(4))/2.

    With one output (labels -1 / +1) all are -y f. "dlr" is the margin's objective with two outputs,
    and with three and a target: a spread of so few outputs is made of f_y and f_target themselves,
    and dividing by it gives a constant, or rewards moving one of them the wrong way. Nothing is
    lost: the ascent uses directions and the order of values, and needs no scale.
    """
    check_outputs(out)
    if out.ndim == 1:
        return -y * out
    own = out.gather(1, y.unsqueeze(1)).squeeze(1)
    if target is None:
        others = _without_class(out, y)
        soft = objective == "cross-entropy"
        gap = (others.logsumexp(1) if soft else others.amax(1)) - own
    else:
        wanted = out.gather(1, target.unsqueeze(1)).squeeze(1)
        soft = objective == "cross-entropy"
        gap = wanted - (_without_class(out, target).logsumexp(1) if soft else own)
    few = out.shape[1] < (3 if target is None else 4)
    return gap if few or objective != "dlr" else gap / _output_spread(out, target is not None)


def likely_targets(out: Tensor, y: Tensor, count: int) -> list[Tensor | None]:
    """The `count` most likely wrong classes of each point, each (n,), the likeliest first.

    No more than there are. [None], no target, where the count is zero or only one class is wrong.
    """
    if count == 0 or out.ndim == 1 or out.shape[1] == 2:
        return [None]
    ranked = _without_class(out, y).argsort(dim=1, descending=True, stable=True)
    return list(ranked[:, : min(count, out.shape[1] - 1)].unbind(1))


def _output_gradient(out: Tensor, y: Tensor, objective: str, target: Tensor | None) -> Tensor:
    """The derivative of the objective in the outputs, of their shape."""
    with torch.enable_grad():
        point = out.detach().requires_grad_(True)
        value = objective_values(point, y, objective, target)
        (slope,) = torch.autograd.grad(value.sum(), point)
    return slope


def _output_spread(out: Tensor, targeted: bool) -> Tensor:
    top = out.topk(4 if targeted else 3, dim=1).values
    size: Tensor = top[:, 0] - (0.5 * (top[:, 2] + top[:, 3]) if targeted else top[:, 2])
    return size.clamp(min=torch.finfo(out.dtype).tiny)


def _without_class(out: Tensor, label: Tensor) -> Tensor:
    chosen = nn.functional.one_hot(label, out.shape[1]).bool()
    return out.masked_fill(chosen, -torch.inf)
