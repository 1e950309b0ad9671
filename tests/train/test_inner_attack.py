"""The attack inside adversarial training, and the divergence that TRADES adds."""

import math

import pytest
import torch
from torch import nn

from extremal import attack, train
from extremal.train import InnerAttack
from extremal.train.inner_attack import divergence, loss_slope
from tests.train.adversarial_problem import generator, module, points


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("ascent", ["steepest", "plain"])
@pytest.mark.parametrize("start", ["zero", "random"])
def test_the_inner_attack_stays_in_ball_and_box_and_raises_the_loss(norm, ascent, start):
    net, data = module(), points(signed=False)
    box = (float(data.x.min()), float(data.x.max()))
    inner = InnerAttack(norm, 0.5, 4, 0.3, ascent, start, box)
    slope = loss_slope(train.Loss("cross-entropy"), data.y)
    moved = inner.perturbed(net, data.x, slope, share=0.5, generator=generator())
    norms = attack.Ball(norm, 0.25).norms(moved - data.x)
    assert float(norms.max()) <= 0.25 * (1 + 1e-9)
    assert float(moved.min()) >= box[0]
    assert float(moved.max()) <= box[1]
    with torch.no_grad():
        after, before = (
            float(nn.functional.cross_entropy(net(x), data.y)) for x in (moved, data.x)
        )
    assert after > before


def test_the_divergence_of_trades_is_kl():
    a, b = torch.randn(2, 9, 4, generator=generator(), dtype=torch.float64)
    p, q = torch.softmax(a, 1), torch.softmax(b, 1)
    torch.testing.assert_close(divergence(a, b), (p * (p / q).log()).sum(1))
    p, q = torch.sigmoid(a[:, 0]), torch.sigmoid(b[:, 0])
    wanted = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    torch.testing.assert_close(divergence(a[:, 0], b[:, 0]), wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("l3", 0.1), "norm must"),
        (("l2", -1.0), "radius must"),
        (("l2", math.nan), "radius must"),
        (("l2", 0.1, 0), "steps must"),
        (("l2", 0.1, 1, 0.0), "step must"),
        (("l2", 0.1, 1, None, "plain"), "step must be given for plain ascent"),
        (("l2", 0.1, 1, None, "up"), "ascent must"),
        (("l2", 0.1, 1, None, "steepest", "far"), "start must"),
        (("l2", 0.1, 1, None, "steepest", "zero", (1.0, 0.0)), "box must"),
    ],
)
def test_a_bad_inner_attack_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        InnerAttack(*arguments)
