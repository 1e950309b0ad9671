"""What adversarial training records, when it ends, and how it goes on from its file."""

import pytest
import torch
from torch import nn

from extremal import attack, measure, train
from extremal.train import InnerAttack, RobustValidation
from extremal.train.checkpoint import Checkpoint
from extremal.train.inner_attack import loss_slope
from tests.train.adversarial_problem import DIM, generator, module, network, points, trained


def test_records_are_of_an_attack_that_is_not_the_training_one():
    net, held = module(), points(30, signed=False, seed=4)
    path = trained(
        net, watch=RobustValidation(6, 5, validation=held), record=train.Record(at=[1, 2])
    )
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
    path = trained(net, inner=InnerAttack("l2", 0.0), watch=RobustValidation(6, 5, 0.7))
    data = points(signed=False)
    found = attack.run(net, data.x[:6], data.y[:6], radius=0.7, steps=5, generator=generator())
    assert float(path.values["robust_accuracy"][-1]) == 1 - float(found.success.double().mean())


def test_patience_ends_training_and_leaves_the_best_weights():
    net, held = module(), points(30, signed=False, seed=4)
    record = train.Record(at=range(1, 40), snapshots=True)
    path = trained(
        net, watch=RobustValidation(30, 5, None, held, 3), record=record, epochs=40, lr=1.0
    )
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
    watch = RobustValidation(6, 5, validation=points(10, signed=False), patience=2)
    path = trained(module(), watch=watch, lr=1e-9, epochs=9)
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
        inner=InnerAttack("l2", 0.1, 1),
        lr=1e-9,
        epochs=1,
        watch=RobustValidation(6, 5, validation=ordered),
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


class Dropped(nn.Module):
    """A network that draws in training, and whose first part is frozen by its mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(DIM).double().eval()
        self.inside = nn.Sequential(nn.Dropout(0.3), nn.Linear(DIM, 2).double())

    def forward(self, x):
        return self.inside(self.norm(x))


@pytest.mark.parametrize("make", [Normed, Dropped, module])
@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_records_change_neither_weights_nor_buffers(make, radius):
    often, rarely = make(), make()
    often.load_state_dict(rarely.state_dict())
    held, inner = points(12, signed=False, seed=4), InnerAttack("linf", radius, steps=2)
    torch.manual_seed(0)  # of Dropout, which takes no generator
    trained(
        often,
        inner=inner,
        watch=RobustValidation(6, 3, 0.2, held),
        record=train.Record(at=[1, 2, 3]),
    )
    torch.manual_seed(0)
    trained(rarely, inner=inner, watch=RobustValidation(2, 1, 0.2, training=False))
    for name, part in often.state_dict().items():
        assert torch.equal(part, rarely.state_dict()[name]), name


@pytest.mark.parametrize("changes", [{}, {"trades": 2.0}])
def test_the_inner_attack_moves_no_running_means(changes):
    """One full-batch step: the means are moved by the step's own passes alone."""
    net, data = Normed(), points(signed=False)
    trained(net, batch=None, epochs=1, **changes)
    assert int(net.norm.num_batches_tracked) == (2 if changes else 1)
    own = Normed()
    own.eval()
    slope = loss_slope(train.Loss("cross-entropy"), data.y)
    moved = InnerAttack("linf", 0.3, steps=3).perturbed(own, data.x, slope, generator=generator())
    if not changes:
        torch.testing.assert_close(net.norm.running_mean, 0.1 * moved.mean(0))


def test_each_part_of_a_network_keeps_its_own_mode():
    net = Dropped()
    before = {name: part.training for name, part in net.named_modules()}
    seen = []
    record = train.Record(at=[1], watch={"mode": lambda net: seen.append(net.training) or 0.0})
    trained(net, record=record)
    assert seen == [False] * 3
    assert {name: part.training for name, part in net.named_modules()} == before
    assert torch.equal(net.norm.running_mean, torch.zeros(DIM, dtype=torch.float64))


def test_buffers_are_part_of_the_state(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds_between", 0.0)
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
    monkeypatch.setattr(Checkpoint, "seconds_between", 0.0)
    file = tmp_path / "state.safetensors"
    settings = {
        "method": method,
        "lr": 0.05,
        "epochs": 6,
        "inner": InnerAttack("l2", 0.3, 2, start="random"),
        "record": train.Record(at=[1, 3, 5]),
        "watch": RobustValidation(4, 2, None, points(10, signed=False, seed=4), 10),
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
    monkeypatch.setattr(Checkpoint, "seconds_between", 0.0)
    file = tmp_path / "state"

    def stop(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(module(), checkpoint=file, progress=stop)
    others = [
        {"lr": 0.2},
        {"seed": 3},
        {"inner": InnerAttack("linf", 0.2, steps=3)},
        {"loss": train.Loss("cross-entropy", "sum")},
        {"watch": RobustValidation(6, 5, validation=points(10, signed=False))},
        {"watch": RobustValidation(6, 4)},
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
        trained(network(2), lr=1e6, epochs=30, inner=InnerAttack("linf", 3.0, 2))
    assert len(caught.value.trajectory) >= 1


def test_weights_that_are_not_finite_are_a_divergence_too():
    with pytest.raises(train.DivergenceError, match="smaller lr"):
        trained(network(2), lr=1e200, epochs=2, batch=40, record=train.Record(at=[1]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": 0}, "points must"),
        ({"steps": 0}, "steps must"),
        ({"radius": -1.0}, "radius must"),
        ({"patience": 2}, "patience must come with a validation set"),
        ({"patience": 0, "validation": points(4)}, "patience must"),
        ({"validation": "a"}, "validation must be a Dataset or None, got str"),
        ({"training": "no"}, "training must be True or False, got str"),
    ],
)
def test_a_bad_watch_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        RobustValidation(**settings)


def test_the_training_data_need_not_be_attacked():
    held = points(30, signed=False, seed=4)
    both, one = (
        trained(module(), watch=RobustValidation(6, 5, validation=held, training=training))
        for training in (True, False)
    )
    assert set(both.values) - set(one.values) == {"robust_accuracy"}
    assert torch.equal(both.values["validation_robust"], one.values["validation_robust"])
