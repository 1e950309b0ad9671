"""Lemma 1: the error of the alignment flow against the initialisation's scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from extremal import models, theory, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments import SCALES, Experiment, Line, Setting
from extremal.experiments.papers.shared.claim_rows import claims
from extremal.experiments.trial import Outcome

# Weights in float64 leave |v|/||w|| of balanced neurons within some 3 rounding errors of 1.
_BALANCED_GAP = 8.0 * torch.finfo(torch.float64).eps

lemma_1 = Experiment(
    name="min-vidal-2024/lemma-1",
    title="Lemma 1: how well eq. 6 describes the neurons while they are small",
    source="Min & Vidal 2024, Lemma 1 and eq. 60",
    study="extremal.experiments.studies.alignment:alignment",
    settings={
        "dim": Setting(20, "O"),
        "positive": Setting(6, "O", "K1 of Section 5.1"),
        "negative": Setting(4, "O", "K - K1 of Section 5.1"),
        "width": Setting(50, "O", "h"),
        "p": Setting([1.0, 3.0], "O", "the lemma takes any p >= 1"),
        "scale": Setting([10.0**-k for k in range(2, 9)], "O", "epsilon of eq. 4"),
        "moments": Setting(40, "O", "times in [0, T] at which the error is taken"),
        "tolerance": Setting(1e-9, "O", "relative error of a step of the flow"),
        "seeds": Setting(5, "O"),
    },
    quick={"scale": [1e-2, 1e-4, 1e-6], "seeds": 2},
    smoke={"scale": [1e-2, 1e-3], "moments": 5, "seeds": 1, "tolerance": 1e-6},
    version=3,
    axes=("p", "scale"),
    columns=1,
    panels=(
        Line(
            "Error of the alignment flow until T",
            "scale",
            {"error": "measured", "bound": "bound of Lemma 1"},
            "initialisation scale ε",
            "largest error",
            by="p",
            styles={"bound": "dashed"},
            log="xy",
        ),
    ),
    claims=(
        *claims(
            "eq. 60, its first step",
            {},
            ("error as a share of 2 K p max |f|", "share_of_first_step", 1.0, 0.0),
            rule="below",
            scales=SCALES,
            against="theory",
        ),
    ),
    notes=(
        "The sum of exponential losses on the exact centres, balanced start with M = 1. The "
        "lemma's final bound is over ten thousand times larger than the error, and tests hold it; "
        "the row has the proof's first step, which is nearer to it."
    ),
)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
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
    """max_j || d/dt w_j/||w_j|| - sign(v_j) P_perp x^(p)(w_j) || by the true gradient; max |f|.

    The slope of the loss, -y exp(-y f), is -y and the rest -y expm1(-y f), and the gradient is
    linear in it. The first part turns a neuron by v/||w|| times the predicted field. So no small
    difference of large numbers is formed, where f is far smaller than the rounding of 1; for the
    same reason, neurons whose |v| is ||w|| up to rounding count as balanced, as the lemma has them.
    """
    assert isinstance(net, models.PReLUNet)
    w, v = net.neurons.detach(), net.votes.detach()[0]
    norm = w.norm(dim=1, keepdim=True)
    with torch.no_grad():
        output = net(data.x)
    rest = net.parameter_gradient(data.x, -data.y * torch.expm1(-data.y * output)).neurons
    velocity = -rest / norm
    turning = velocity - (velocity * w).sum(1, keepdim=True) * w / norm**2
    gap = (v.abs()[:, None] - norm) / norm
    gap = torch.where(gap.abs() <= _BALANCED_GAP, 0.0, gap)
    predicted = v.sign()[:, None] * theory.projected_field(w, data.x, data.y, net.p)
    error = turning + gap * predicted
    return float(error.norm(dim=1).max()), float(output.abs().max())
