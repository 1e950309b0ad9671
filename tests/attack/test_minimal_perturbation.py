"""The minimal-radius attack on shallow networks: what it returns, and where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from extremal.attack import Ball, minimal, pgd, shortest
from extremal.attack.surrogate import reduced_problem
from extremal.attack.two_layer.extra_starts import silenced
from extremal.models import Explicit, PReLUNet, margin
from tests.attack.balls import NORMS
from tests.certify.networks import Kind, make, right_points, two_sided

KINDS = [
    Kind(2, 6, 1.0, 1, bias=True),
    Kind(6, 20, 3.0, 4, bias=True, center=True, normalize="p"),
    Kind(9, 4, 2.0, 6, grouped="yes", bias=True, scale="small"),
    Kind(15, 30, 1.5, 2, hidden_bias=True, bias=True),
]


@pytest.mark.parametrize("box", [None, (-1.0, 1.0)], ids=["free", "box"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_points_are_broken_in_the_box_and_just_so(kind, norm, box, generator):
    """Radii are the norms of the perturbations, and most shrunk ones are right again."""
    net = make(kind, generator)
    x, y = right_points(net, kind, 12, generator, box=box is not None)
    found = shortest(net, x, y, norm=norm, box=box)
    some = found.success
    assert int(some.sum()) >= 6
    delta = found.x_adv - x
    order = {"l1": 1, "l2": 2, "linf": torch.inf}[norm]
    size = torch.linalg.vector_norm(delta, order, dim=1)
    torch.testing.assert_close(found.radius[some], size[some], rtol=1e-12, atol=0)
    assert bool(found.radius[~some].isinf().all())
    assert bool((margin(net, found.x_adv, y)[some] <= 0).all())
    if box is not None:
        assert bool(((found.x_adv >= -1.0) & (found.x_adv <= 1.0)).all())
    back = margin(net, x + 0.99 * delta, y)[some] > 0
    assert float(back.double().mean()) > 0.8


def test_minimal_is_shortest_for_shallow_networks(generator):
    kind = KINDS[1]
    net = make(kind, generator)
    x, y = right_points(net, kind, 6, generator)
    both = minimal(net, x, y, generator=generator), shortest(net, x, y)
    assert torch.equal(both[0].radius, both[1].radius)
    assert torch.equal(both[1].x_adv, shortest(net, x, y, batch=6).x_adv)  # deterministic


@pytest.mark.parametrize("norm", NORMS)
def test_nothing_to_find_is_infinite(norm, generator):
    """f = 1 + relu(x_1)^2 has no other side; a batch of such points alone, too."""
    net = PReLUNet(
        2,
        1,
        2.0,
        bias=True,
        init=Explicit(torch.tensor([[1.0, 0.0]]), torch.ones(1, 1), None, torch.ones(1)),
        dtype=torch.float64,
        generator=generator,
    )
    x = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    found = shortest(net, x, torch.ones(5), norm=norm)
    assert not bool(found.success.any())
    assert bool(found.radius.isinf().all())
    wrong = shortest(net, x, -torch.ones(5), norm=norm)
    assert wrong.radius.tolist() == [0.0] * 5


def test_a_mixed_batch(generator):
    """One point that is wrong, some that break, some that cannot within the box."""
    net = two_sided(2, 1.0, generator)
    with torch.no_grad():
        net.neurons.copy_(torch.eye(2))
    x = torch.tensor([[1.0, 0.1], [0.1, 1.0], [0.5, 0.2]], dtype=torch.float64)
    found = shortest(net, x, torch.tensor([1, 1, 1]), norm="linf", box=(0.1, 1.0))
    # 1.3 (x_1 - e) = 0.8 (x_2 + e) at e = (1.3 x_1 - 0.8 x_2) / 2.1, with x_1 >= 0.1.
    assert found.radius[1] == 0.0
    exact = [(1.3 - 0.08) / 2.1, (0.65 - 0.16) / 2.1]
    assert found.radius[[0, 2]].tolist() == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_gradient_descent_does_not_get_nearer(p, dtype, generator):
    """Also where the search has seen 2 of 300 neurons: PGD a little below breaks no point.

    F with 298 small neurons, which together change it by less than a thousandth. A search that
    ended where points are clearly broken for it left radii too large by up to 6e-4.
    """
    dim, few, many = 12, 2, 298
    rows = torch.randn(few + many, dim, generator=generator)
    rows[:few] = torch.nn.functional.normalize(torch.eye(dim)[:few] + 0.1 * rows[:few], dim=1)
    votes = torch.cat([torch.tensor([1.0, -1.0]), 1e-6 * torch.randn(many, generator=generator)])
    start = Explicit(rows, votes.unsqueeze(0))
    net = PReLUNet(dim, few + many, p, init=start, dtype=dtype, generator=generator)
    assert net.effective(1e-3).width == few
    assert net.effective(1e-7).width > 200
    x = torch.eye(dim)[torch.arange(80) % few] + 0.1 * torch.randn(80, dim, generator=generator)
    x = x.to(dtype)
    y = torch.where(net(x).detach() > 0, 1, -1)
    found = shortest(net, x, y)
    assert bool(found.success.all())
    below = Ball("l2", (1 - 5e-5) * found.radius)
    descent = pgd(net, x, y, ball=below, steps=200, step=found.radius / 20)
    assert int(descent.success.sum()) == 0


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_own_neurons_that_must_all_fall_silent(norm, p):
    """f = relu(x_1)^p + relu(x_2)^p is zero, which counts, only where both neurons are silent."""
    net = PReLUNet(
        3,
        2,
        p,
        init=Explicit(torch.eye(2, 3), torch.ones(1, 2)),
        dtype=torch.float64,
        generator=torch.Generator(),
    )
    x = torch.tensor([[0.3, 0.4, 1.0], [1.0, 2.0, 0.0], [0.5, -1.0, 0.2]], dtype=torch.float64)
    found = shortest(net, x, torch.ones(3).long(), norm=norm)
    positive = x[:, :2].clamp(min=0.0)
    exact = positive.norm(dim=1) if norm == "l2" else positive.amax(1)
    assert bool(found.success.all())
    torch.testing.assert_close(found.radius, exact, rtol=1e-3, atol=0.0)


def test_a_projection_onto_many_half_spaces_is_the_solvers(generator):
    """Hildreth's sweeps against scipy's solver of the same quadratic program."""
    neurons = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    votes = torch.tensor([[1.0, 1.0, 1.0, 1.0, -1.0, -1.0]], dtype=torch.float64)
    init = Explicit(neurons, votes)
    net = PReLUNet(4, 6, 2.0, init=init, dtype=torch.float64, generator=torch.Generator())
    x = torch.randn(8, 4, dtype=torch.float64, generator=generator)
    task = reduced_problem(net, x, torch.ones(8).long(), Ball("linf", 0.0))
    delta = silenced(task, torch.arange(8), torch.zeros(8).long())
    unit = (neurons / neurons.norm(dim=1, keepdim=True)).numpy()[:4]
    for point, moved in zip(x.numpy(), delta.numpy(), strict=True):
        assert (unit @ (point + moved) <= 1e-3).all()
        walls = {"type": "ineq", "fun": lambda d, point=point: -unit @ (point + d)}
        best = minimize(lambda d: d @ d, np.zeros(4), constraints=[walls], tol=1e-12)
        assert np.linalg.norm(moved) == pytest.approx(best.fun**0.5, rel=5e-3)
