"""The decomposition of weights into start, features, noise and rest, and what it says."""

from dataclasses import replace

import pytest
import torch

from extremal import measure, train
from extremal.data import Dataset, OrthogonalClusters
from extremal.models import Blocks, PReLUNet

SOURCE = OrthogonalClusters(200, 2, 3, generator=torch.Generator().manual_seed(5))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points(each=8):
    return SOURCE.sample_each(each, generator=generator(), dtype=torch.float64)


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def test_planted_coefficients_are_recovered():
    data = points()
    start, features, noise = normal(4, 200), normal(4, 5, seed=2), normal(4, 40, seed=3)
    xi = data.x - SOURCE.centers[data.group]
    found = measure.decompose(start + features @ SOURCE.centers + noise @ xi, start, data)
    torch.testing.assert_close(found.features, features, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.noise, noise, atol=1e-9, rtol=0)
    assert found.exact
    assert float(found.rest.max()) < 1e-12


@pytest.mark.parametrize("fine", [False, True])
def test_trained_weights_are_reconstructed(fine):
    data = points()
    outputs = 5 if fine else 1
    net = PReLUNet(
        200,
        10,
        outputs=outputs,
        hidden_bias=True,
        init=Blocks(1e-3),
        dtype=torch.float64,
        generator=generator(),
    ).freeze("votes")
    start = net.neurons.detach().clone()
    told = replace(data, y=data.group) if fine else data
    train.gd(net, told, loss="cross-entropy" if fine else "logistic", lr=1e-2, steps=50)
    found = measure.decompose(net.neurons, start, data)
    xi = data.x - SOURCE.centers[data.group]
    again = start + found.features @ SOURCE.centers + found.noise @ xi
    torch.testing.assert_close(again, net.neurons.detach(), atol=1e-8, rtol=0)
    assert found.exact
    assert 1.0 <= found.condition < 100.0


def test_what_is_outside_the_span_is_the_rest():
    data = points()
    start = normal(3, 200)
    found = measure.decompose(start + normal(3, 200, seed=9), start, data)
    assert float(found.rest.min()) > 0.5


def test_more_points_than_coordinates_are_not_exact_but_reconstruct():
    data = points(60)
    moved = normal(2, 200)
    found = measure.decompose(moved, torch.zeros_like(moved), data)
    assert not found.exact
    assert float(found.rest.max()) < 1e-9
    xi = data.x - SOURCE.centers[data.group]
    torch.testing.assert_close(found.features @ SOURCE.centers + found.noise @ xi, moved)


def test_a_repeated_point_makes_it_inexact():
    data = points()
    twice = data.take(torch.cat([torch.arange(40), torch.tensor([0])]))
    found = measure.decompose(normal(1, 200), torch.zeros(1, 200, dtype=torch.float64), twice)
    assert not found.exact
    assert found.condition > 1e12


SIGNS, LABELS = torch.tensor([1, -1]), torch.tensor([1, 1, -1, -1])


def test_averaged_coefficients_are_told_from_decoupled_ones():
    averaged = torch.tensor([[1.0, 1.2, -0.1, 0.0], [0.1, -0.2, 0.9, 1.0]])
    found = measure.averaging(averaged, SIGNS, LABELS)
    assert found.holds
    assert found.scale == pytest.approx(1.025)
    assert found.least_own == pytest.approx(0.9 / 1.025)
    assert found.most_foreign == pytest.approx(0.1 / 1.025)  # with its sign
    assert found.foreign_size == pytest.approx(0.2 / 1.025)
    assert found.ratio == pytest.approx(1.2)
    single, sides = torch.eye(4), torch.tensor([1, 1, -1, -1])
    assert not measure.averaging(single, sides, LABELS).holds
    assert measure.decoupling(single, torch.arange(4)).holds
    assert not measure.decoupling(averaged, torch.tensor([0, 3])).holds
    assert measure.averaged_share(single, sides, LABELS) == pytest.approx(0.5)
    assert measure.decoupled_share(single) == pytest.approx(1.0)


def test_a_foreign_coefficient_may_be_as_negative_as_it_likes():
    """The theorem bounds it from above alone; its size is reported beside the verdict."""
    away = torch.tensor([[1.0, 1.0, -9.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    found = measure.averaging(away, SIGNS, LABELS)
    assert found.holds
    assert (found.most_foreign, found.foreign_size) == (0.0, 9.0)


def test_a_collapse_onto_one_cluster_is_no_decoupling():
    collapsed = torch.zeros(6, 4)
    collapsed[:, 2] = 1.0
    found = measure.decoupling(collapsed, torch.full((6,), 2))
    assert (found.least_own, found.most_other) == (1.0, 0.0)
    assert found.covered == 0.25
    assert not found.holds
    assert measure.decoupled_share(collapsed) == pytest.approx(0.25)
    spread = torch.cat([torch.eye(4), collapsed])
    owner = torch.tensor([0, 1, 2, 3, *[2] * 6])
    assert measure.decoupling(spread, owner).holds
    assert measure.decoupled_share(spread) == pytest.approx(1.0)
    silent = torch.cat([torch.eye(4)[:3], torch.zeros(1, 4)])  # a zero row is nobody's
    assert measure.decoupled_share(silent) == pytest.approx(0.75 * 0.75)


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 0.1, 0.0, 0.0],  # one is much smaller
        [1.0, 1.0, 0.5, 0.0],  # another class
        [1.0, -1.0, 0.0, 0.0],  # no mean
    ],
)
def test_each_condition_can_fail(row):
    both = torch.tensor([row, [0.0, 0.0, 1.0, 1.0]])
    assert not measure.averaging(both[:1], SIGNS[:1], LABELS).holds
    assert not measure.averaging(both, SIGNS, LABELS).holds


def test_equal_own_coefficients_have_the_whole_share():
    even = torch.tensor([[0.3, 0.3, 0.0, 0.0], [0.0, 0.0, 7.0, 7.0]])
    assert measure.averaged_share(even, SIGNS, LABELS) == pytest.approx(1.0)
    assert measure.decoupled_share(even) == pytest.approx(0.5 * 0.5)  # each half, on two of four
    assert measure.averaged_share(-even, SIGNS, LABELS) == 0.0
    assert measure.decoupled_share(-even) == 0.0


def test_nothing_learned_is_neither():
    assert not measure.averaging(torch.zeros(2, 4), SIGNS, LABELS).holds
    assert not measure.decoupling(torch.zeros(2, 4), torch.tensor([0, 1])).holds
    assert measure.decoupled_share(torch.zeros(2, 4)) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure.decompose(normal(2, 9), normal(2, 200), points()), "start must"),
        (lambda: measure.decompose(normal(2, 200), normal(3, 200), points()), "start must"),
        (
            lambda: measure.decompose(
                normal(2, 200), normal(2, 200), Dataset(normal(4, 200), torch.ones(4).long())
            ),
            "data must come from GaussianClusters",
        ),
        (
            lambda: measure.decompose(normal(2, 9), normal(2, 9), points()),
            "data must have points of 9 coordinates",
        ),
        (
            lambda: measure.decompose(
                normal(2, 200), normal(2, 200), replace(points(), group=torch.full((40,), 7))
            ),
            "data must have groups below 5",
        ),
        (lambda: measure.averaging(torch.ones(2, 4), SIGNS, LABELS, ratio=0.9), "ratio must"),
        (lambda: measure.decoupling(torch.ones(2, 4), SIGNS.abs(), least=-1.0), "least must"),
        (lambda: measure.averaging(torch.ones(2, 4), SIGNS[:1], LABELS), "signs must"),
        (lambda: measure.averaging(torch.ones(2, 4), SIGNS, LABELS[:3]), "labels must"),
        (lambda: measure.averaging(torch.ones(2, 4), SIGNS, LABELS.abs()), "labels must name both"),
        (lambda: measure.decoupling(torch.ones(2, 4), torch.tensor([0, 4])), "owner must"),
        (lambda: measure.decoupling(torch.ones(2, 4), torch.tensor([0.0, 1.0])), "owner must"),
        (lambda: measure.decoupled_share(torch.tensor([[float("nan")]])), "features must"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
