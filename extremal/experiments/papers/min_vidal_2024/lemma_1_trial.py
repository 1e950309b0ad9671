"""How well the alignment flow describes the neurons' turning while they are small (Lemma 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from extremal import models, theory, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments.trial import Outcome


def alignment(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """The largest error of eq. 6 along the true flow until the lemma's time, beside its bound.

    On the K exact centres, with the sum of exponential losses and a balanced start whose entries
    before scaling are uniform in (-1/sqrt(D), 1/sqrt(D)), so that M = 1.
    """
    mixture = OrthonormalMixture(params["dim"], params["positive"], params["negative"], 0.0)
    data = mixture.simplified()
    width, p, scale = params["width"], params["p"], params["scale"]
    net = models.PReLUNet(
        mixture.dim,
        width,
        p,
        init=models.Balanced(scale),
        dtype=torch.float64,
        generator=generator,
    )
    stated = theory.alignment_error(scale, width, 1.0, mixture.count, p)
    times = torch.linspace(0.0, stated.time, params["moments"], dtype=torch.float64)[1:]
    flow = train.gradient_flow(
        net,
        data,
        loss=train.Loss("exp", "sum"),
        until=stated.time,
        tolerance=params["tolerance"],
        record=train.Record(at=tuple(times.tolist()), snapshots=True),
    )
    moments = [_moment(flow.at(index, net), data) for index in range(len(flow))]
    largest = max(error for error, _ in moments)
    # The proof's first step, before it replaces max |f| by its own bound.
    steps = [error / (2.0 * mixture.count * p * output) for error, output in moments]
    return Outcome(
        {
            "error": largest,
            "bound": stated.error,
            "share_of_bound": largest / stated.error,
            "share_of_first_step": max(steps),
            "largest_output": max(output for _, output in moments),
            "time": stated.time,
        }
    )


def _moment(net: torch.nn.Module, data: Dataset) -> tuple[float, float]:
    """max_j || d/dt w_j/||w_j|| - sign(v_j) P_perp x^(p)(w_j) || by the true gradient; max |f|."""
    assert isinstance(net, models.PReLUNet)
    _, gradient = train.loss_and_gradient(net, data.x, data.y, train.Loss("exp", "sum"))
    w = net.neurons.detach()
    norm = w.norm(dim=1, keepdim=True)
    velocity = -gradient["neurons"] / norm
    turning = velocity - (velocity * w).sum(1, keepdim=True) * w / norm**2
    predicted = theory.projected_field(w, data.x, data.y, net.p)
    sign = net.votes.detach()[0].sign()[:, None]
    error = float((turning - sign * predicted).norm(dim=1).max())
    with torch.no_grad():
        return error, float(net(data.x).abs().max())
