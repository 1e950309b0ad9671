"""Attacks and certificates mean the same where margins are lost in rounding: votes of 0 and 1."""

import pytest
import torch

import extremal as ex
from extremal import attack, certify, models
from extremal.data import Dataset
from extremal.models import Explicit, PReLUNet


def tied_networks(low: float, dtype: torch.dtype) -> list[tuple[PReLUNet, Dataset]]:
    """Small networks with p = 6, votes of `low` and 1, and points with the labels they give."""
    found = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        neurons = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        votes = torch.where(torch.rand(3, 6, generator=generator) < 0.5, 1.0, low)
        init = Explicit(neurons, votes)
        net = PReLUNet(4, 6, 6.0, 3, init=init, dtype=dtype, generator=generator)
        x = torch.randn(16, 4, generator=generator).to(dtype)
        found.append((net, Dataset(x, models.float64_copy(net)(x.double()).argmax(1))))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_no_attack_breaks_a_point_inside_its_certified_radius(low, dtype, generator):
    certified = 0
    for net, points in tied_networks(low, dtype):
        x, y = points.x, points.y
        radii = certify.radius(net, x, y, effort="fast")
        found = attack.minimal(net, x, y, generator=generator)
        assert bool((found.radius >= radii).all())
        held = certify.holds(net, x, y, float(radii.median()), effort="fast")
        assert bool((found.radius[held] >= radii.median()).all())
        certified += int((radii > 0).sum())
        # The network as it runs keeps its class on the way to the attack, too.
        share = (radii / found.radius.clamp(min=1e-9)).clamp(max=1.0).unsqueeze(1)
        inside = (x + 0.999 * share * (found.x_adv - x)).to(dtype)
        kept = net(inside).argmax(1) == y
        assert bool((kept | (radii == 0)).all())
    assert certified > 40


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_an_evaluation_of_tied_networks_never_raises(low, generator):
    for net, points in tied_networks(low, torch.float64)[:2]:
        few = Dataset(points.x[:6], points.y[:6])
        found = ex.evaluate(net, few, generator=generator)
        assert bool((found.lower <= found.upper).all())


def test_what_is_certified_at_radius_zero_is_right_as_it_runs():
    """A margin that float64 sees and float32 does not."""
    init = Explicit(torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0, 0.0], [1.0 - 1e-7, 0.0]]))
    x, y = torch.ones(1, 1), torch.zeros(1).long()
    for dtype, known in ((torch.float64, True), (torch.float32, False)):
        net = PReLUNet(1, 2, 2.0, 2, init=init, dtype=dtype, generator=torch.Generator())
        assert certify.holds(net, x.to(dtype), y, 0.0).tolist() == [known]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("normalize", [0.0, 0.5])
def test_equal_biases_that_drown_the_votes_are_certified_only_where_they_do_not(norm, normalize):
    """In float32 outputs of 1e4 tell .001 apart at best, so that the own one must lead by more."""
    init = Explicit(torch.eye(2), torch.eye(2), None, torch.full((2,), 1e4))
    shared = {"bias": True, "preparation": models.Preparation(normalize=normalize), "init": init}
    net = PReLUNet(2, 2, 2.0, 2, **shared, generator=torch.Generator())
    x, y = torch.tensor([[1.0, 0.5], [0.01, 0.0]]), torch.zeros(2).long()
    radii = certify.radius(net, x, y, norm=norm, effort="fast")
    assert radii[0] > 0.1
    step = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    step = step / torch.linalg.vector_norm(step, {"l1": 1, "l2": 2, "linf": torch.inf}[norm])
    out = net((x + 0.9999 * radii.unsqueeze(1) * step).float())
    assert bool((out[0, 0] > out[0, 1]) & (radii[1] == 0 or out[1, 0] > out[1, 1]))
    assert bool((certify.holds(net, x, y, 0.0) | (radii == 0)).all())


def test_neurons_without_weights_may_make_a_tie_of_outputs_as_run():
    """For p = 1: .3 - .1 - .2 is above zero in exact arithmetic, and zero in float32."""
    neurons = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    hidden = torch.tensor([0.1, 0.2, 0.3, -5.0])
    init = Explicit(neurons, torch.tensor([[-1.0, -1.0, 1.0, 1.0]]), hidden)
    net = PReLUNet(1, 4, 1.0, 1, hidden_bias=True, init=init, generator=torch.Generator())
    x, y = torch.zeros(1, 1), torch.ones(1).long()
    assert net(x).tolist() == [0.0]
    assert certify.radius(net, x, y).tolist() == [0.0]
    assert certify.holds(net, x, y, 0.0).tolist() == [False]
