"""Adversarial training: closed form on a linear model, plain training at radius 0, its steps."""

import copy
import math
from functools import cache

import pytest
import torch
from torch import nn

from extremal import attack, train
from extremal.data import Dataset
from extremal.train import InnerAttack, RobustValidation
from extremal.train.inner_attack import divergence_slope, loss_slope
from tests.train.adversarial_problem import DIM, generator, module, network, points, trained

BRIEF = RobustValidation(points=2, steps=1)


class Linear(nn.Module):
    """f(x) = <w, x>, from w = (1, 1, ..., 1) / 10."""

    def __init__(self):
        super().__init__()
        self.outputs = 1
        self.weight = nn.Parameter(torch.full((DIM,), 0.1, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


@pytest.mark.parametrize(("norm", "dual"), [("l2", 2.0), ("linf", 1.0), ("l1", math.inf)])
def test_a_linear_model_agrees_with_its_closed_form(norm, dual):
    """The worst loss within radius r is that of margins y <w, x> - r ||w||_*: descend on it."""
    data, radius, lr = points(), 0.4, 0.1
    net = Linear()
    inner = InnerAttack(norm, radius, steps=1, step=radius)
    train.adversarial(
        net,
        data,
        inner=inner,
        loss="logistic",
        lr=lr,
        epochs=60,
        watch=BRIEF,
        generator=generator(),
    )
    w = Linear().weight.detach().clone().requires_grad_(True)
    for _ in range(60):
        margins = data.y * (data.x @ w) - radius * torch.linalg.vector_norm(w, ord=dual)
        (slope,) = torch.autograd.grad(torch.nn.functional.softplus(-margins).mean(), w)
        w = (w - lr * slope).detach().requires_grad_(True)
    torch.testing.assert_close(net.weight.detach(), w.detach(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("make", [lambda: network(2), module])
@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_radius_0_is_plain_training_to_the_bit(make, method):
    data, plain, robust = points(signed=False), make(), make()
    others = {"loss": "cross-entropy", "lr": 0.01, "batch": 16}
    if method == "adam":
        train.adam(plain, data, epochs=4, generator=generator(), **others)
    else:
        momentum = 0.9 if method == "momentum" else 0.0
        others["momentum"] = momentum
        train.sgd(plain, data, steps=12, generator=generator(), **others)
    train.adversarial(
        robust,
        data,
        inner=InnerAttack("l2", 0.0),
        method="adam" if method == "adam" else "sgd",
        epochs=4,
        watch=BRIEF,
        generator=generator(),
        **others,
    )
    for ours, theirs in zip(robust.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


SETTINGS = {
    "plain": {},
    "random start": {"inner": InnerAttack("linf", 0.3, steps=3, start="random")},
    "mixed": {"clean_share": 0.5},
    "trades": {"trades": 2.0},
    "warm-up": {"warm_up": 3},
    "ascent": {"inner": InnerAttack("linf", 0.3, steps=3, ascent="plain", step=1.0)},
    "adam": {"method": "adam", "lr": 0.01},
}


@cache
def plainly_trained(make):
    """The weights that no change of the settings leads to."""
    net = make()
    trained(net, watch=RobustValidation(2, 1))
    return list(net.parameters())


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("make", [lambda: network(2), module])
def test_one_seed_gives_the_same_weights_and_other_settings_other_ones(name, make):
    settings = {"watch": RobustValidation(2, 1), **SETTINGS[name]}
    nets = [make() for _ in range(3)]
    trained(nets[0], **settings)
    trained(nets[1], **settings)
    trained(nets[2], seed=7, **settings)
    first, second, third = (list(net.parameters()) for net in nets)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, third, strict=True))
    if name != "plain":
        pairs = zip(first, plainly_trained(make), strict=True)
        assert not all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_the_feature_that_an_attack_cannot_turn():
    """One strong feature that is right for 19 points in 20, and weak ones that are always right."""
    y = torch.where(torch.arange(200) % 2 == 0, 1, -1)
    x = 0.2 * y.unsqueeze(1) + 0.05 * torch.randn(200, DIM, generator=generator()).double()
    x[:, 0] = torch.where(torch.arange(200) % 20 < 19, y, -y)
    data = Dataset(x, y)
    plain, robust = Linear(), Linear()
    train.gd(plain, data, loss="logistic", lr=1.0, steps=500)
    inner, g = InnerAttack("linf", 0.3, steps=2), generator()
    settings = {"loss": "logistic", "lr": 1.0, "epochs": 500, "watch": BRIEF, "generator": g}
    train.adversarial(robust, data, inner=inner, **settings)
    standing = []
    for net in (plain, robust):
        found = attack.run(net, x, y, norm="linf", radius=0.3, generator=generator())
        standing.append(1 - float(found.success.double().mean()))
    assert standing[0] < 0.05
    assert standing[1] == pytest.approx(0.95)


def test_a_step_of_the_mixed_losses_is_that_of_autograd():
    """One step of full-batch descent, with the attack's points found once more."""
    data, inner = points(signed=False), InnerAttack("linf", 0.3, steps=2, step=0.2)
    for changes in ({"clean_share": 0.3}, {"trades": 2.0}):
        net, before = module(), module()
        trained(net, inner=inner, batch=None, epochs=1, **changes)
        clean = before(data.x).detach()
        slope = loss_slope(train.Loss("cross-entropy"), data.y)
        nudge = 0.0
        if "trades" in changes:
            slope, nudge = divergence_slope(clean), 1e-3
        moved = inner.perturbed(
            before, data.x, slope, start_radius_share=nudge, generator=generator()
        )
        loss = nn.functional.cross_entropy
        if "trades" in changes:
            own, other = (before(x).log_softmax(1) for x in (data.x, moved))
            gap = nn.functional.kl_div(other, own, log_target=True, reduction="batchmean")
            value = loss(before(data.x), data.y) + 2.0 * gap
        else:
            value = 0.7 * loss(before(moved), data.y) + 0.3 * loss(before(data.x), data.y)
        slopes = torch.autograd.grad(value, list(before.parameters()))
        for part, start, step in zip(net.parameters(), before.parameters(), slopes, strict=True):
            torch.testing.assert_close(part, start - 0.1 * step)


def test_the_radius_grows_over_the_warm_up():
    """Two steps of full-batch descent, at half of the radius and at all of it."""
    data, inner = points(signed=False), InnerAttack("linf", 0.3, steps=2, step=0.2)
    net, other = module(), module()
    trained(net, inner=inner, batch=None, epochs=2, warm_up=2)
    slope = loss_slope(train.Loss("cross-entropy"), data.y)
    for share in (0.5, 1.0):
        moved = inner.perturbed(other, data.x, slope, share=share, generator=generator())
        assert float((moved - data.x).abs().max()) <= share * 0.3 + 1e-12
        value = nn.functional.cross_entropy(other(moved), data.y)
        slopes = torch.autograd.grad(value, list(other.parameters()))
        with torch.no_grad():
            for part, step in zip(other.parameters(), slopes, strict=True):
                part.sub_(0.1 * step)
    for part, wanted in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(part, wanted)


def test_perturbed_points_stay_in_the_box_of_the_data():
    """An attack without a box takes the data's; one with the same box is the same training."""
    data = points(signed=False)
    box = (float(data.x.min()), float(data.x.max()))
    kept = Dataset(data.x, data.y, box=box)
    nets = [module() for _ in range(3)]
    settings = {"lr": 0.1, "epochs": 2, "watch": BRIEF}
    for net, given, learned in zip(nets, (None, box, None), (kept, kept, data), strict=True):
        inner = InnerAttack("linf", 2.0, steps=2, box=given)
        train.adversarial(net, learned, inner=inner, generator=generator(), **settings)
    free, same, unbounded = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(free, same)
    assert not torch.equal(free, unbounded)
    for other in ((box[0], box[1] + 1.0), (torch.full((3,), -9.0), torch.full((3,), 9.0))):
        with pytest.raises(ValueError, match="box must be the data's"):
            train.adversarial(
                module(),
                kept,
                inner=InnerAttack("linf", 2.0, box=other),
                generator=generator(),
                **settings,
            )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner": 0.3}, "inner must be an InnerAttack"),
        ({"method": "lbfgs"}, "method must be one of"),
        ({"epochs": 0}, "epochs must"),
        ({"lr": 0.0}, "lr must"),
        ({"batch": 99}, "batch must be at most"),
        ({"warm_up": -1}, "warm_up must"),
        ({"warm_up": 5}, "warm_up must be at most epochs, 4, got 5"),
        ({"clean_share": 1.5}, "clean_share must"),
        ({"trades": 0.0}, "trades must"),
        ({"trades": 1.0, "clean_share": 0.5}, "clean_share must be 0 with trades"),
        ({"method": "adam", "momentum": 0.9}, "momentum must be 0 for Adam"),
        ({"watch": 3}, "watch must be a RobustValidation"),
        ({"loss": "exp"}, "loss must"),
        ({"checkpoint": "/nowhere/at/all"}, "checkpoint must lie in a folder"),
        ({"record": 3}, "record must"),
        ({"watch": RobustValidation(validation=points(10))}, "validation.y must"),
    ],
)
def test_bad_input_is_named_before_any_work(changes, message):
    net = module()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=message):
        trained(net, **changes)
    assert all(torch.equal(part, before[name]) for name, part in net.state_dict().items())


@pytest.mark.parametrize("batch", [0, 99])
def test_at_radius_0_adam_checks_its_batches_too(batch):
    net, inner = network(2), InnerAttack("l2", 0.0)
    with pytest.raises(ValueError, match="batch must be"):
        trained(net, inner=inner, method="adam", batch=batch)
