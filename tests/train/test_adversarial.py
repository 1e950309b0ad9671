"""Adversarial training: closed form on a linear model, plain training at radius 0, its records."""

import copy
import math

import pytest
import torch
from torch import nn

from extremal import attack, measure, train
from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet, mlp
from extremal.train import Inner
from extremal.train.epochs import Epochs
from extremal.train.inner import divergence, divergence_slope, loss_slope

DIM = 6


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points(count=40, signed=True, seed=1):
    """Two overlapping Gaussians."""
    x = torch.randn(count, DIM, generator=generator(seed), dtype=torch.float64)
    y = torch.where(torch.arange(count) % 2 == 0, 1, -1)
    x[:, 0] += 1.5 * y
    return Dataset(x, y if signed else (y + 1) // 2)


class Linear(nn.Module):
    """f(x) = <w, x>, from w = (1, 1, ..., 1) / 10."""

    def __init__(self):
        super().__init__()
        self.outputs = 1
        self.weight = nn.Parameter(torch.full((DIM,), 0.1, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


def network(outputs=1, p=3.0):
    return PReLUNet(
        DIM, 8, p, outputs, init=Gaussian(0.3), dtype=torch.float64, generator=generator(5)
    )


def module():
    return mlp(DIM, [7], "tanh", outputs=2, generator=generator(2)).double()


@pytest.mark.parametrize(("norm", "dual"), [("l2", 2.0), ("linf", 1.0), ("l1", math.inf)])
def test_a_linear_model_agrees_with_its_closed_form(norm, dual):
    """The worst loss within radius r is that of margins y <w, x> - r ||w||_*: descend on it."""
    data, radius, lr = points(), 0.4, 0.1
    net = Linear()
    inner = Inner(norm, radius, steps=1, step=radius)
    train.adversarial(
        net, data, inner=inner, loss="logistic", lr=lr, epochs=60, watched=2, generator=generator()
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
        inner=Inner("l2", 0.0),
        method="adam" if method == "adam" else "sgd",
        epochs=4,
        watched=2,
        generator=generator(),
        **others,
    )
    for ours, theirs in zip(robust.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


SETTINGS = {
    "plain": {},
    "random start": {"inner": Inner("linf", 0.3, steps=3, start="random")},
    "mixed": {"clean_share": 0.5},
    "trades": {"trades": 2.0},
    "warm-up": {"warm_up": 3},
    "ascent": {"inner": Inner("linf", 0.3, steps=3, ascent="plain", step=1.0)},
    "adam": {"method": "adam", "lr": 0.01},
}


def trained(net, seed=0, **changes):
    settings = {
        "inner": Inner("linf", 0.3, steps=3),
        "loss": "cross-entropy",
        "lr": 0.1,
        "batch": 10,
        "epochs": 4,
        "watched": 6,
        "watch_steps": 5,
        "generator": generator(seed),
    }
    return train.adversarial(net, points(signed=False), **(settings | changes))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("make", [lambda: network(2), module])
def test_one_seed_gives_the_same_weights_and_other_settings_other_ones(name, make):
    nets = [make() for _ in range(3)]
    trained(nets[0], **SETTINGS[name])
    trained(nets[1], **SETTINGS[name])
    trained(nets[2], seed=7, **SETTINGS[name])
    first, second, third = (list(net.parameters()) for net in nets)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, third, strict=True))
    if name != "plain":
        other = make()
        trained(other)
        pairs = zip(first, other.parameters(), strict=True)
        assert not all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_the_feature_that_an_attack_cannot_turn():
    """One strong feature that is right for 19 points in 20, and weak ones that are always right."""
    y = torch.where(torch.arange(200) % 2 == 0, 1, -1)
    x = 0.2 * y.unsqueeze(1) + 0.05 * torch.randn(200, DIM, generator=generator()).double()
    x[:, 0] = torch.where(torch.arange(200) % 20 < 19, y, -y)
    data = Dataset(x, y)
    plain, robust = Linear(), Linear()
    train.gd(plain, data, loss="logistic", lr=1.0, steps=2000)
    inner, g = Inner("linf", 0.3, steps=2), generator()
    settings = {"loss": "logistic", "lr": 1.0, "epochs": 2000, "watched": 2, "generator": g}
    train.adversarial(robust, data, inner=inner, **settings)
    standing = []
    for net in (plain, robust):
        found = attack.run(net, x, y, norm="linf", radius=0.3, generator=generator())
        standing.append(1 - float(found.success.double().mean()))
    assert standing[0] < 0.05
    assert standing[1] == pytest.approx(0.95)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("ascent", ["steepest", "plain"])
@pytest.mark.parametrize("start", ["zero", "random"])
def test_the_inner_attack_stays_in_ball_and_box_and_raises_the_loss(norm, ascent, start):
    net, data = module(), points(signed=False)
    box = (float(data.x.min()), float(data.x.max()))
    inner = Inner(norm, 0.5, 4, 0.3, ascent, start, box)
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


def test_records_are_of_an_attack_that_is_not_the_training_one():
    net, held = module(), points(30, signed=False, seed=4)
    path = trained(net, validation=held, record=train.Record(at=[1, 2]))
    assert path.times.tolist() == [0.0, 1.0, 2.0, 4.0]
    wanted = {"loss", "accuracy", "robust_accuracy", "validation_accuracy", "validation_robust"}
    assert set(path.values) == wanted
    assert float(path.values["validation_accuracy"][-1]) == measure.accuracy(net, held)
    found = attack.run(
        net, held.x[:6], held.y[:6], norm="linf", radius=0.3, steps=5, generator=generator()
    )
    assert float(path.values["validation_robust"][-1]) == 1 - float(found.success.double().mean())


def test_robustness_is_watched_at_another_radius_where_asked():
    net = module()
    path = trained(net, inner=Inner("l2", 0.0), watch_radius=0.7)
    data = points(signed=False)
    found = attack.run(net, data.x[:6], data.y[:6], radius=0.7, steps=5, generator=generator())
    assert float(path.values["robust_accuracy"][-1]) == 1 - float(found.success.double().mean())


def test_patience_ends_training_and_leaves_the_best_weights():
    net, held = module(), points(30, signed=False, seed=4)
    record = train.Record(at=range(1, 40), snapshots=True)
    path = trained(net, validation=held, record=record, patience=3, epochs=40, lr=1.0, watched=30)
    robust, losses = path.values["validation_robust"], path.values["loss"]
    order = sorted(range(1, len(path)), key=lambda i: (-float(robust[i]), float(losses[i])))
    assert path.info["best_epoch"] == int(path.times[order[0]])
    assert path.info["best_validation_robust"] == float(robust[order[0]])
    assert path.info["stopped_early"]
    first = 1 + int(robust[1:].argmax())
    assert len(path) == first + 1 + 3
    for name, part in net.named_parameters():
        assert torch.equal(part, path.snapshots[name][order[0]])


def test_with_patience_every_epoch_is_recorded_and_the_start_is_no_candidate():
    path = trained(module(), validation=points(10, signed=False), patience=2, lr=1e-9, epochs=9)
    assert path.times.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert path.info["best_epoch"] >= 1


def test_watched_points_are_of_all_classes():
    """Data in the order of their classes, and a network that knows the first one alone."""
    data = points(60, signed=False)
    ordered = data.take(data.y.argsort(stable=True))
    net = module()
    with torch.no_grad():
        for part in net.parameters():
            part.zero_()
        list(net.parameters())[-1].copy_(torch.tensor([1.0, 0.0]))
    path = train.adversarial(
        net,
        ordered,
        inner=Inner("l2", 0.1, 1),
        lr=1e-9,
        epochs=1,
        watched=6,
        validation=ordered,
        generator=generator(),
    )
    assert path.values["robust_accuracy"].tolist() == [0.5, 0.5]
    assert path.values["validation_robust"].tolist() == [0.5, 0.5]


class Normed(nn.Module):
    """A network with buffers."""

    def __init__(self):
        super().__init__()
        self.outputs = 2
        self.norm = nn.BatchNorm1d(DIM).double()
        self.inside = module()

    def forward(self, x):
        return self.inside(self.norm(x))


def test_buffers_are_part_of_the_state(tmp_path, monkeypatch):
    monkeypatch.setattr(Epochs, "every", 0.0)
    whole, cut, again = Normed(), Normed(), Normed()
    trained(whole)

    def stop(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(cut, checkpoint=tmp_path / "state", progress=stop)
    trained(again, checkpoint=tmp_path / "state")
    for name, part in whole.state_dict().items():
        assert torch.equal(part, again.state_dict()[name]), name


@pytest.mark.parametrize("method", ["sgd", "adam"])
def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path, monkeypatch, method):
    monkeypatch.setattr(Epochs, "every", 0.0)
    file = tmp_path / "state.safetensors"
    settings = {
        "method": method,
        "lr": 0.05,
        "epochs": 6,
        "inner": Inner("l2", 0.3, 2, start="random"),
        "record": train.Record(at=[1, 3, 5]),
        "validation": points(10, signed=False, seed=4),
        "patience": 10,
    }
    if method == "sgd":
        settings["momentum"] = 0.5
    whole, cut = module(), module()
    path = trained(whole, **settings)

    def stop(what, done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(cut, checkpoint=file, progress=stop, **settings)
    assert file.exists()
    again = module()
    rest = trained(again, checkpoint=file, **settings)
    assert not file.exists()
    for ours, theirs in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(rest.times, path.times)
    for name, values in path.values.items():
        assert torch.equal(rest.values[name], values), name
    assert rest.info["best_epoch"] == path.info["best_epoch"]


def test_a_file_of_another_training_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Epochs, "every", 0.0)
    file = tmp_path / "state"

    def stop(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(module(), checkpoint=file, progress=stop)
    others = [
        {"lr": 0.2},
        {"seed": 3},
        {"inner": Inner("linf", 0.2, steps=3)},
        {"loss": train.Loss("cross-entropy", "sum")},
        {"validation": points(10, signed=False)},
    ]
    for changes in others:
        with pytest.raises(ValueError, match="checkpoint must belong to the same"):
            trained(module(), checkpoint=file, **changes)
    with pytest.raises(ValueError, match="epochs must not be below"):
        trained(module(), checkpoint=file, epochs=1)
    file.write_bytes(b"broken")
    with pytest.raises(ValueError, match="checkpoint must name a state"):
        trained(module(), checkpoint=file)


def test_divergence_is_an_error_with_what_was_recorded():
    with pytest.raises(train.DivergenceError, match="smaller lr") as caught:
        trained(network(2), lr=1e6, epochs=30, inner=Inner("linf", 3.0, 2))
    assert len(caught.value.trajectory) >= 1


def test_weights_that_are_not_finite_are_a_divergence_too():
    with pytest.raises(train.DivergenceError, match="smaller lr"):
        trained(network(2), lr=1e200, epochs=2, batch=40, record=train.Record(at=[1]))


def test_a_step_of_the_mixed_losses_is_that_of_autograd():
    """One step of full-batch descent, with the attack's points found once more."""
    data, inner = points(signed=False), Inner("linf", 0.3, steps=2, step=0.2)
    for changes in ({"clean_share": 0.3}, {"trades": 2.0, "warm_up": 2}):
        net, before = module(), module()
        trained(net, inner=inner, batch=None, epochs=1, **changes)
        share = 0.5 if "warm_up" in changes else 1.0
        clean = before(data.x).detach()
        slope = loss_slope(train.Loss("cross-entropy"), data.y)
        nudge = 0.0
        if "trades" in changes:
            slope, nudge = divergence_slope(clean), 1e-3
        moved = inner.perturbed(
            before, data.x, slope, share=share, nudge=nudge, generator=generator()
        )
        assert float((moved - data.x).abs().max()) <= share * 0.3 + 1e-12
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


def test_the_divergence_of_trades_is_kl():
    a, b = torch.randn(2, 9, 4, generator=generator(), dtype=torch.float64)
    p, q = torch.softmax(a, 1), torch.softmax(b, 1)
    torch.testing.assert_close(divergence(a, b), (p * (p / q).log()).sum(1))
    p, q = torch.sigmoid(a[:, 0]), torch.sigmoid(b[:, 0])
    wanted = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    torch.testing.assert_close(divergence(a[:, 0], b[:, 0]), wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner": 0.3}, "inner must be an Inner"),
        ({"method": "lbfgs"}, "method must be one of"),
        ({"epochs": 0}, "epochs must"),
        ({"lr": 0.0}, "lr must"),
        ({"batch": 99}, "batch must be at most"),
        ({"warm_up": -1}, "warm_up must"),
        ({"clean_share": 1.5}, "clean_share must"),
        ({"trades": 0.0}, "trades must"),
        ({"trades": 1.0, "clean_share": 0.5}, "clean_share must be 0 with trades"),
        ({"patience": 2}, "patience must come with a validation set"),
        ({"method": "adam", "momentum": 0.9}, "momentum must be 0 for Adam"),
        ({"watched": 0}, "watched must"),
        ({"watch_radius": -1.0}, "watch_radius must"),
        ({"loss": "exp"}, "loss must"),
        ({"checkpoint": "/nowhere/at/all"}, "checkpoint must lie in a folder"),
        ({"record": 3}, "record must"),
        ({"validation": points(10)}, "validation.y must"),
    ],
)
def test_bad_input_is_named_before_any_work(changes, message):
    net = module()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=message):
        trained(net, **changes)
    assert all(torch.equal(part, before[name]) for name, part in net.state_dict().items())


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
        Inner(*arguments)
