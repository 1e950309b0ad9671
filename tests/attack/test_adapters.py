"""Other libraries' attacks on our points, and our networks in their shapes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from extremal.attack import Ball
from extremal.attack.adapters.autoattack import auto_attack
from extremal.attack.adapters.foolbox import foolbox_attack
from extremal.attack.adapters.unit_box import UnitBox, as_module, class_labels
from extremal.models import margin
from tests.attack.balls import BOXES, NORMS, make_box, make_points
from tests.attack.networks import Several, linear

DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}
LEFT = {("l1", "numbers"), ("l2", "tensors"), ("linf", "none")}  # of nine: six are each box twice
PARTS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")


def scene(kind, generator, count=20, dim=8, dtype=torch.float64):
    """A linear network, and the points' least values over a ball are known."""
    x = make_points(kind, count, dim, generator)
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    net = linear(w, -float((x @ w).median()) + 0.01)
    y = torch.where(net(x).detach() > 0, 1, -1)
    return net, w, x.to(dtype), y


def lowest(net, w, x, y, ball):
    """The least margin over ball and box, (n,)."""
    with torch.no_grad():
        return y * net(x + ball.linear_maximum(-y[:, None] * w, x))


@pytest.mark.parametrize(
    ("norm", "kind"), [(norm, kind) for norm in NORMS for kind in BOXES if (norm, kind) not in LEFT]
)
def test_autoattack_finds_what_there_is(norm, kind, generator):
    """Without a box and with one of unequal sides as well, which theirs knows nothing of."""
    net, w, x, y = scene(kind, generator)
    radius, box = {"l1": 0.5, "l2": 0.3, "linf": 0.12}[norm], make_box(kind, 8)
    least = lowest(net, w, x, y, Ball(norm, radius, box))
    settings = {"norm": norm, "radius": radius, "box": box, "version": "apgd-ce"}
    result = auto_attack(net, x, y, generator=generator, **settings)
    clear = least.abs() > 0.02
    assert torch.equal(result.success[clear], (least <= 0)[clear])
    assert 2 <= int(result.success.sum()) <= 18
    assert set(result.name) <= {"", "autoattack-apgd-ce"}


@pytest.mark.parametrize(
    ("classes", "version"),
    [(classes, version) for classes in (1, 3, 5) for version in PARTS]
    + [(2, "apgd-ce"), (2, "square")],  # one output is two for them
)
def test_every_part_runs_for_every_number_of_outputs(version, classes, generator):
    w = torch.randn(classes, 6, generator=generator)
    net = Several(w, torch.zeros(classes)) if classes > 1 else linear(w[0], 0.0).float()
    x = torch.rand(8, 6, generator=generator) - 0.5
    out = net(x).detach()
    y = torch.where(out > 0, 1, -1) if classes == 1 else out.argmax(1)
    settings = {"norm": "linf", "version": version, "queries": 60, "generator": generator}
    large = auto_attack(net, x, y, radius=2.0, **settings)
    assert large.accuracy <= (0.3 if version == "square" else 0.1)
    small = auto_attack(net, x, y, radius=1e-4, **settings)
    assert small.accuracy >= 0.8


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_square_takes_vectors(norm, generator):
    net, w, x, y = scene("numbers", generator)
    settings = {"norm": norm, "box": (0.0, 1.0), "version": "square", "queries": 150}
    radius = {"l1": 2.0, "l2": 0.8}[norm]
    result = auto_attack(net, x, y, radius=radius, generator=generator, **settings)
    least = lowest(net, w, x, y, Ball(norm, radius, (0.0, 1.0)))
    assert int((least <= 0).sum()) >= int(result.success.sum()) >= 5


def test_standard_version_goes_through_all_parts(generator):
    """Most points fall to the first part; the rest go on, and Square comes last."""
    net, w, x, y = scene("numbers", generator)
    ball = Ball("linf", 0.1, (0.0, 1.0))
    least = lowest(net, w, x, y, ball)
    settings = {"norm": "linf", "radius": 0.1, "box": (0.0, 1.0), "queries": 50}
    result = auto_attack(net, x, y, generator=generator, **settings)
    assert set(result.name) == {"", "autoattack-standard"}
    clear = least.abs() > 1e-3
    assert torch.equal(result.success[clear], (least <= 0)[clear])


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize(
    ("norm", "name"),
    [
        ("l1", "SparseL1DescentAttack"),
        ("l2", "L2ProjectedGradientDescentAttack"),
        ("linf", "LinfProjectedGradientDescentAttack"),
    ],
)
def test_foolbox_at_a_radius(norm, name, kind, generator):
    net, w, x, y = scene(kind, generator)
    radius, box = {"l1": 0.8, "l2": 0.3, "linf": 0.12}[norm], make_box(kind, 8)
    least = lowest(net, w, x, y, Ball(norm, radius, box))
    settings = {"norm": norm, "radius": radius, "box": box, "generator": generator}
    result = foolbox_attack(net, x, y, attack=name, options={"steps": 60}, **settings)
    assert not bool((result.success & (least > 0)).any())
    assert int(result.success.sum()) >= 0.5 * int((least <= 0).sum()) > 1
    assert set(result.name) <= {"", f"foolbox-{name}"}


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_foolbox_minimises_without_a_radius(norm, generator):
    net, w, x, y = scene("none", generator)
    distance = net(x).detach().abs() / torch.linalg.vector_norm(w, DUAL[norm])
    name = {"l1": "L1FMNAttack", "linf": "LInfFMNAttack"}[norm]
    options = {"steps": 150, "max_stepsize": 0.1, "min_stepsize": 1e-4}
    result = foolbox_attack(net, x, y, attack=name, options=options, norm=norm, generator=generator)
    ratio = result.radius / distance
    assert bool((ratio >= 1 - 1e-9).all())
    assert float(ratio.median()) < 1.02


def test_foolbox_takes_an_attack_object_and_refuses_other_norms(generator):
    net, _, x, y = scene("numbers", generator)
    settings = {"box": (0.0, 1.0), "generator": generator}
    named = foolbox_attack(net, x, y, attack="L2DeepFoolAttack", **settings)
    attack = sys.modules["foolbox"].attacks.L2DeepFoolAttack()
    result = foolbox_attack(net, x, y, attack=attack, **settings)
    assert result.accuracy <= 0.2
    assert torch.equal(result.x_adv, named.x_adv)
    assert "foolbox-L2DeepFoolAttack" in result.name
    cases = {
        "attack must be of the norm linf, got one of order 2": {"attack": attack, "norm": "linf"},
        "attack must be an attack of foolbox, .* got NoAttack": {"attack": "NoAttack"},
        "attack must be an attack of foolbox, .* got int": {"attack": 3},
        "options must come with the name": {"attack": attack, "options": {"steps": 3}},
    }
    for said, settings in cases.items():
        with pytest.raises(ValueError, match=said):
            foolbox_attack(net, x, y, generator=generator, **settings)


@pytest.mark.parametrize("library", ["foolbox", "pyautoattack"])
def test_a_missing_extra_says_what_to_install(library, monkeypatch, generator):
    monkeypatch.setitem(sys.modules, library, None)
    net, _, x, y = scene("none", generator)
    attack, settings, extra = {
        "foolbox": (foolbox_attack, {"attack": "L2PGD"}, "foolbox"),
        "pyautoattack": (auto_attack, {}, "autoattack"),
    }[library]
    with pytest.raises(ImportError, match=rf"pip install extremal\[{extra}\]"):
        attack(net, x, y, radius=0.1, generator=generator, **settings)


def test_global_random_states_and_tracing_are_left_alone(generator):
    net, _, x, y = scene("none", generator)

    def states():
        return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes()  # noqa: NPY002

    before, trace = states(), sys.gettrace()

    def tracer(*_):
        return None

    sys.settrace(tracer)
    try:
        auto_attack(net, x, y, radius=0.1, version="apgd-ce", generator=generator)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(trace)
    foolbox_attack(net, x, y, attack="L2PGD", radius=0.1, generator=generator)
    assert states() == before


def test_frame_keeps_norms_and_what_the_network_says(generator):
    """Also outside of a coordinate's own shorter side, where the network sees the end of it."""
    net, _, x, _ = scene("tensors", generator)
    low, high = make_box("tensors", 8)
    ball = Ball("l2", 0.3, (low, high))
    frame = UnitBox.around(x, ball, 0.3)
    assert frame.width == pytest.approx(float((high - low).max()))
    u = frame.inward(x, torch.float64)
    assert bool(((u >= 0) & (u <= 1)).all())
    inner = frame.network(net, torch.float64)
    torch.testing.assert_close(inner(u)[:, 1] - inner(u)[:, 0], net(x))
    there = torch.rand(u.shape, generator=generator, dtype=torch.float64)
    seen = torch.clamp(low + frame.width * there, low, high)
    torch.testing.assert_close(inner(there)[:, 1] - inner(there)[:, 0], net(seen))
    small = u + 0.01 * (0.5 * (high - low) / frame.width - u)
    moved = frame.outward(small, u, x, ball)
    torch.testing.assert_close(ball.norms(moved), frame.width * ball.norms(small - u))
    assert not frame.outward(u, u, x, ball).any()


def test_as_module_has_two_logits_and_takes_images(generator):
    net, _, x, y = scene("none", generator)
    module, labels = as_module(net), class_labels(y)
    out = module(x.reshape(-1, 1, 2, 4))
    assert out.shape == (len(x), 2)
    assert set(labels.tolist()) == {0, 1}
    torch.testing.assert_close(out.softmax(1)[:, 1], torch.sigmoid(net(x)))
    torch.testing.assert_close(margin(module, x, labels), margin(net, x, y))
    several = Several(torch.eye(3), torch.zeros(3))
    assert as_module(several)(torch.ones(2, 3, 1)).shape == (2, 3)
    assert class_labels(torch.tensor([0, 2, 1])).tolist() == [0, 2, 1]
