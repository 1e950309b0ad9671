"""PGD against exact distances of linear networks, and its behaviour at the edges."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn

from extremal.attack import Ball, accuracy_curve, pgd, published_pgd
from extremal.attack.projected_gradient_descent import radii_pgd
from extremal.data import Dataset
from extremal.models import Explicit, Gaussian, PReLUNet, Preparation, margin
from tests.attack.networks import Several, linear

NORMS = ("l1", "l2", "linf")
DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}


def separated(generator, count=20, dim=6, dtype=torch.float64):
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    net = linear(w, 0.3)
    with torch.no_grad():
        f = net(x)
    return net.to(dtype), w, x.to(dtype), torch.where(f > 0, 1, -1), f.abs()


@pytest.mark.parametrize("start", ["zero", "random"])
@pytest.mark.parametrize("norm", NORMS)
def test_linear_network_breaks_at_its_distance(norm, start, generator):
    """At |<w, x> + b| / ||w||_dual: a thousandth more breaks, a thousandth less does not."""
    net, w, x, y, size = separated(generator)
    distance = size / torch.linalg.vector_norm(w, DUAL[norm])
    for factor, broken in ((0.999, False), (1.001, True)):
        radius = factor * distance
        settings = {"steps": 200, "step": radius / 20, "start": start, "generator": generator}
        result = pgd(net, x, y, ball=Ball(norm, radius), **settings)
        assert result.success.tolist() == [broken] * len(x)
    assert bool((result.radius >= distance * (1 - 1e-9)).all())
    assert bool((result.radius <= radius).all())
    assert set(result.name) == {f"pgd-{start}"}


@pytest.mark.parametrize("norm", NORMS)
def test_several_outputs_break_at_the_nearest_boundary(norm, generator):
    """The distance is the least of (f_y - f_t) / ||w_y - w_t||_dual over t."""
    w = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    b = torch.randn(4, generator=generator, dtype=torch.float64)
    x = torch.randn(15, 6, generator=generator, dtype=torch.float64)
    net = Several(w, b)
    f = x @ w.T + b
    y = f.argmax(1)
    gap = f.gather(1, y[:, None]) - f
    size = torch.linalg.vector_norm(w[y][:, None] - w, DUAL[norm], dim=2)
    distance = torch.where(gap > 0, gap / size, torch.inf).amin(1)
    safe = pgd(net, x, y, ball=Ball(norm, 0.999 * distance), steps=100, step=distance / 10)
    assert safe.accuracy == 1.0
    # Not every boundary is met first by the steepest descent on the least margin.
    far = pgd(net, x, y, ball=Ball(norm, 1.5 * distance), steps=100, step=distance / 10)
    assert far.accuracy <= 0.2


@pytest.mark.parametrize("norm", NORMS)
def test_box_decides_where_a_linear_network_breaks(norm, generator):
    """The least value over ball and box is that of the linear maximum, and PGD comes to it."""
    dim = 12
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.rand(10, dim, generator=generator, dtype=torch.float64)
    x[:, ::3] = x[:, ::3].round()
    radius = {"l1": 1.5, "l2": 0.8, "linf": 0.3}[norm]
    ball = Ball(norm, radius, (0.0, 1.0))
    lowest = ((x + ball.linear_maximum(-w.expand_as(x), x)) @ w).max()
    net = linear(w, float(-lowest) + 1e-6)  # every point just safe ...
    y = torch.where(net(x).detach() > 0, 1, -1)
    positive = y > 0
    x, y = x[positive], y[positive]
    assert len(x) >= 3
    result = pgd(net, x, y, ball=ball, steps=300, step=radius / 50)
    reachable = net(x + ball.linear_maximum(-w.expand_as(x), x)).detach()
    assert torch.equal(result.success, reachable <= 0)
    standing = ~result.success
    torch.testing.assert_close(
        result.margin[standing], reachable[standing], rtol=0, atol=3e-3 * radius
    )


def test_least_margin_iterate_is_returned():
    """A long step jumps over the valley of |x| + 0.1 and back: the best point is in between."""

    class Valley(nn.Module):
        def forward(self, x):
            return (x[:, 0] - 0.35).abs() + 0.1

    x, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([1])
    result = pgd(Valley(), x, y, ball=Ball("l2", 1.0), steps=6, step=0.5)
    assert float(result.margin) == pytest.approx(0.25)  # iterates 0, 0.5, 0, ...
    assert result.accuracy == 1.0


@pytest.mark.parametrize("norm", NORMS)
def test_zero_and_nan_gradients_stand_still(norm):
    class Flat(nn.Module):
        def forward(self, x):
            return torch.relu(x[:, 0] - 5.0) + 1.0

    class Kink(nn.Module):
        """The gradient of sqrt(0 * x) is NaN."""

        def forward(self, x):
            return torch.sqrt(0.0 * x[:, 0]) + 1.0

    x, y = torch.ones(3, 2), torch.ones(3)
    for net in (Flat(), Kink()):
        result = pgd(net, x, y, ball=Ball(norm, 0.5), steps=5, step=0.1)
        assert torch.equal(result.x_adv, x)
        assert result.accuracy == 1.0


def test_points_leave_the_batch_once_broken_or_still():
    seen = []

    class Counts(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x[:, 0].clamp(max=2.0)

    x = torch.tensor([[0.15], [0.35], [3.0], [1.9]], dtype=torch.float64)
    pgd(Counts(), x, torch.ones(4), ball=Ball("l2", 10.0), steps=5, step=0.1)
    # 3.0 has a zero gradient; 0.15 is broken at its second step, 0.35 at its fourth.
    assert seen[:6] == [4, 3, 3, 2, 2, 1]


def test_radius_is_kept_by_float32_points_of_any_size(generator):
    """A radius of 1e-3 around points of size 10, where float32 rounds by 1e-6."""
    for norm in NORMS:
        net, _, x, y, _ = separated(generator, count=40, dim=30, dtype=torch.float32)
        x = x * 10
        y = torch.where(net(x).detach() > 0, 1, -1)
        result = pgd(net, x, y, ball=Ball(norm, 1e-3), steps=10, step=3e-4)
        size = Ball(norm, 1e-3).norms(result.x_adv.double() - x.double())
        assert result.x_adv.dtype == torch.float32
        assert bool((size <= 1e-3).all())
        assert bool((size > 0.5e-3).any())


def test_batches_do_not_change_the_result(generator):
    net, _, x, y, size = separated(generator, count=23)
    radius = size / 2 + 0.1
    whole = pgd(net, x, y, ball=Ball("l2", radius), steps=20, step=radius / 8)
    parts = pgd(net, x, y, ball=Ball("l2", radius), steps=20, step=radius / 8, batch=5)
    torch.testing.assert_close(whole.x_adv, parts.x_adv, rtol=0, atol=1e-12)
    assert whole.name == parts.name


def test_network_of_another_dtype_is_left_alone(generator):
    net, _, x, y, _ = separated(generator, dtype=torch.float32)
    result = pgd(net, x.double(), y, ball=Ball("l2", 0.2), steps=5, step=0.1)
    assert result.x_adv.dtype == torch.float64
    assert net.w.dtype == torch.float32
    assert net.w.grad is None


def test_same_seed_gives_the_same_bytes(generator):
    net, _, x, y, _ = separated(generator, dtype=torch.float32)

    def attack(seed):
        g = torch.Generator().manual_seed(seed)
        settings = {"ball": Ball("l2", 0.3), "steps": 3, "step": 0.01, "generator": g}
        return pgd(net, x, y, start="random", **settings).x_adv

    assert attack(1).numpy().tobytes() == attack(1).numpy().tobytes()
    assert not torch.equal(attack(1), attack(2))


class Opaque(nn.Module):
    """A network whose neurons nobody sees, so that it is attacked in the data's coordinates."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("normalize", [0.0, 0.5])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_descent_in_the_span_is_the_descent_in_the_data(p, normalize, outputs, generator):
    """6 neurons in 20 dimensions: as without a look at them, point by point."""
    net = PReLUNet(
        20,
        6,
        p,
        outputs,
        preparation=Preparation(
            2.0, torch.randn(20, generator=generator, dtype=torch.float64) / 9, normalize
        ),
        init=Gaussian(1.0),
        dtype=torch.float64,
        generator=generator,
    )
    x = torch.randn(40, 20, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        f = net(x)
    y = torch.where(f > 0, 1, -1) if outputs == 1 else f.argmax(1)
    radius = torch.linspace(0.1, 2.0, 40, dtype=torch.float64)
    settings = {"ball": Ball("l2", radius), "steps": 60, "step": 0.03}
    small, large = (pgd(one, x, y, **settings) for one in (net, Opaque(net)))
    assert 3 < int(small.success.sum()) < 37
    assert torch.equal(small.success, large.success)
    torch.testing.assert_close(small.radius, large.radius, rtol=0, atol=1e-5)
    torch.testing.assert_close(small.x_adv, large.x_adv, rtol=0, atol=1e-5)


@pytest.mark.parametrize("opaque", [False, True])
def test_radii_one_after_the_other(opaque, generator):
    """The radius of each point is that of `pgd` at rising radii, and a wrong point has 0."""
    dtype = torch.float64
    net = PReLUNet(15, 4, 3.0, init=Gaussian(1.0), dtype=dtype, generator=generator)
    x = torch.randn(30, 15, generator=generator, dtype=dtype)
    y = torch.where(net(x).detach() > 0, 1, -1)
    y[3] = -y[3]
    net = Opaque(net) if opaque else net
    radii = [0.9, 0.0, 0.3, 0.6]

    def one(net, data, ball, _):
        return pgd(net, data.x, data.y, ball=ball, steps=40, step=0.05)

    wanted = accuracy_curve(net, Dataset(x, y), radii, attack=one, generator=generator)
    found = radii_pgd(net, x, y, radii=radii, steps=40, step=0.05)
    assert float(found.radius[3]) == 0.0
    assert 0.2 < found.accuracy < 0.8
    torch.testing.assert_close(found.radius, wanted.radius, rtol=1e-5, atol=1e-7)


def test_neurons_of_no_effect_lead_on_where_the_others_are_silent():
    """Past x_1 = 0 a margin of 1e-9 x_2 is left, which a search without that neuron takes for 0."""
    net = PReLUNet(
        3,
        2,
        1.0,
        init=Explicit(torch.eye(3)[:2], torch.tensor([[1.0, 1e-9]])),
        generator=torch.Generator(),
    )
    x, y = torch.tensor([[0.15, 1.0, 0.0]]), torch.tensor([1])
    assert net.effective(1e-7).width == 1
    for norm in ("l2", "linf"):
        result = pgd(net, x, y, ball=Ball(norm, 1.5), steps=50, step=0.1)
        assert result.success.tolist() == [True]
        assert float(result.radius) > 0.95
    assert radii_pgd(net, x, y, radii=[0.5, 1.5], steps=50, step=0.1).success.tolist() == [True]


def test_points_that_go_round_in_a_circle_leave():
    seen = []

    class Valley(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return (x[:, 0] - 0.35).abs() + 0.1

    x = torch.zeros(1, 1, dtype=torch.float64)
    pgd(Valley(), x, torch.ones(1), ball=Ball("l2", 1.0), steps=1000, step=0.5)
    assert len(seen) < 10  # two of them are the re-check's


def test_published_settings(monkeypatch):
    seen = {}

    def spy(net, x, y, **settings):
        seen.update(settings)

    # The package's name `pgd` is the function, which hides the module of that name.
    monkeypatch.setattr(
        importlib.import_module("extremal.attack.projected_gradient_descent"), "pgd", spy
    )
    published_pgd(None, None, None, radius=0.3)
    assert (seen["steps"], seen["step"], seen.get("start", "zero")) == (2000, 0.1, "zero")
    assert (seen["ball"].norm, seen["ball"].radius, seen["ball"].box) == ("l2", 0.3, None)


def test_margin_is_the_one_of_the_returned_point(generator):
    net, _, x, y, _ = separated(generator)
    result = pgd(net, x, y, ball=Ball("l2", 0.1), steps=5, step=0.05)
    with torch.no_grad():
        torch.testing.assert_close(margin(net, result.x_adv, y), result.margin)
