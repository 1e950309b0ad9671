"""Exact radii where a closed form exists: what attacks and certificates are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal import _check
from extremal.attack.attack_result import check_points
from extremal.attack.ball import Ball
from extremal.attack.linear_problems import smallest_move
from extremal.attack.projection import Bounds
from extremal.data import Box
from extremal.models import PReLUNet, TwoLayerForm, as_two_layer_form, group_margins


def two_neurons(
    net: PReLUNet, x: Tensor, y: Tensor, *, norm: str = "l2", box: Box | None = None
) -> Tensor:
    """The distance (n,) of each point of x (n, dim) to the boundary of a network of two neurons.

    One neuron votes for each class and there are no biases, so a point is broken where
    c_1 relu(s_1) <= c_2 relu(s_2), with s_i = <z, u_i>, c_i = |a_i|^(1/p) and 1 the point's own
    side. That is the union of two half-spaces, for any p and any normalisation of inputs:

        s_1 <= 0   and   c_1 s_1 <= c_2 s_2

    (where s_2 < 0 the second implies the first, and where s_2 >= 0 it is the statement itself). So
    the distance is the least of s_1 / ||u_1|| and (c_1 s_1 - c_2 s_2) / ||c_1 u_1 - c_2 u_2||, in
    the dual norm, or what `nearest` says of the two half-spaces within the box; 0 where a point is
    misclassified, inf where the box holds no broken point.
    """
    y = check_points(net, x, y)
    ball = Ball(norm, 0.0, box)
    form, x = _checked_form(net), x.double()
    own = form.own(y)
    a = (own.double() - (~own).double()) @ form.weights  # (n, 2): W_own - W_other
    apart = bool((a.amax(1) > 0).all() and (a.amin(1) < 0).all())
    _check.require(apart, "net", "have a neuron that votes for each class", "one sided votes")
    mine = a.argmax(1)
    c = a.abs() ** (1.0 / form.p)
    inner = form.preparation.scaled_offset(x) @ form.directions.T
    rows = form.directions * form.preparation.scale  # the gradients of s in x
    first, second = (
        (part.gather(1, at.unsqueeze(1)).squeeze(1), (c.gather(1, at.unsqueeze(1)) * rows[at]))
        for part, at in ((c * inner, mine), (c * inner, 1 - mine))
    )
    bounds = ball.bounds(x)
    silent = _distance(first[0], first[1], norm, bounds)
    beaten = _distance(first[0] - second[0], first[1] - second[1], norm, bounds)
    wrong = group_margins(form.outputs(x), own) <= 0
    return torch.where(wrong, 0.0, torch.minimum(silent, beaten))


def _distance(value: Tensor, normal: Tensor, norm: str, bounds: Bounds | None) -> Tensor:
    """The norm (n,) of the smallest d in the box with value + <normal, d> <= 0, inf if none."""
    move = smallest_move(-normal, value, norm, bounds)
    left = value + (normal * move).sum(1)
    reached = left <= 1e-9 * (value.abs() + 1e-300)
    return torch.where(reached, Ball(norm, 0.0).norms(move), torch.inf)


def _checked_form(net: PReLUNet) -> TwoLayerForm:
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    form = as_two_layer_form(net)
    assert form is not None
    rule = "have two neurons, one or two outputs, and no biases"
    plain = form.offsets is None and bool((form.constant == 0).all())
    good = plain and net.width == 2 and len(form.weights) == 2
    _check.require(good, "net", rule, net)
    return form
