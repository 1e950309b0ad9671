"""The pull of samples in a subspace, and of a part of them with corrections."""

from __future__ import annotations

import pytest
import torch

from extremal._tensors import unit_rows
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import Gaussian, PReLUNet, relu_power_with_slope
from extremal.train import Loss
from extremal.train.flow.neuron_dynamics import SubspaceFrame, to_polar
from extremal.train.flow.sample_field import SampleField, SubsampledPull


def neurons(dim: int, width: int = 40) -> torch.Tensor:
    init, generator = Gaussian(1.0), torch.Generator().manual_seed(0)
    return to_polar(PReLUNet(dim, width, init=init, dtype=torch.float64, generator=generator))[0]


def sample(dim: int, count: int = 400, spread: float = 0.05) -> Dataset:
    mix = OrthonormalMixture(dim, 3, 2, spread)
    return mix.sample(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def field_of(data: Dataset, p: float, directions, tolerance: float):
    """The field for what outputs of zero leave to pull."""
    return SampleField.of(data, p, directions, tolerance, data.y.double())


@pytest.fixture
def in_a_subspace(monkeypatch):
    """Not in all directions, as data as small as these are otherwise."""
    monkeypatch.setattr("extremal.train.flow.sample_field._CHEAP_PRODUCTS", 0)


def full_pull(data: Dataset, p: float, directions, push):
    """G (h, dim) and g (h,) from the definition."""
    power, slope = relu_power_with_slope(data.x @ directions.T, p)
    return (slope * push[:, None]).T @ data.x, push @ power


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
def test_in_all_coordinates_the_pull_is_the_gradient(p):
    data, directions = sample(6, spread=0.5), neurons(6)
    field, place = field_of(data, p, directions, 1e-4)
    assert field.rest_products is None
    push = field.push(Loss("exp"), torch.zeros(len(data)).double(), 1.0)
    pull, growth = field.pull(place, push)
    wanted, speed = full_pull(data, p, directions, push)
    torch.testing.assert_close(field.frame.lift(pull), wanted, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(growth, speed, rtol=0.0, atol=1e-12)
    outputs = field.outputs(place, torch.linspace(-1, 1, 40).double())
    straight = torch.relu(data.x @ directions.T) ** p @ torch.linspace(-1, 1, 40).double()
    torch.testing.assert_close(outputs, straight, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_subspace_holds_the_gradient_up_to_a_share(in_a_subspace, p):
    data, directions = sample(60), neurons(60)
    field, place = field_of(data, p, directions, 1e-2)
    basis = field.frame.basis
    assert 5 <= len(basis) < 60
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis)).double())
    torch.testing.assert_close(field.frame.lift(place), directions)
    push = field.push(Loss("exp"), torch.zeros(len(data)).double(), 1.0)
    pull, growth = field.pull(place, push)
    wanted, speed = full_pull(data, p, directions, push)
    torch.testing.assert_close(growth, speed, rtol=0.0, atol=1e-12)  # exact: s is not cut
    # Across u, the pull is right in the subspace and along the rest; little lies off both.
    across = wanted - (wanted * directions).sum(1, keepdim=True) * directions
    found = field.frame.lift(pull)
    found = found - (found * directions).sum(1, keepdim=True) * directions
    moving = across.norm(dim=1) > 0.0  # not where all samples are inactive
    share = ((found - across).norm(dim=1) / across.norm(dim=1))[moving]
    assert float(share.quantile(0.9)) < 10.0 * 1e-2 * 1.01
    torch.testing.assert_close(pull[:, :-1], wanted @ basis.T, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(
        pull[:, -1], (wanted * field.frame.rest).sum(1), rtol=0.0, atol=1e-12
    )


def test_blocks_and_chosen_neurons_change_nothing(in_a_subspace, monkeypatch):
    data, directions = sample(60), neurons(60)
    field, place = field_of(data, 3.0, directions, 1e-2)
    push = data.y.double() / len(data)
    whole = field.pull(place, push)
    outputs = field.outputs(place, torch.ones(40).double())
    monkeypatch.setattr(
        "extremal.train.flow.sample_field._BLOCK_ENTRIES", 3 * len(data)
    )  # three neurons at a time
    rows = torch.tensor([7, 0, 33, 12])
    for one, all_of_them in zip(field.pull(place[rows], push, rows), whole, strict=True):
        torch.testing.assert_close(one, all_of_them[rows])
    torch.testing.assert_close(field.outputs(place, torch.ones(40).double()), outputs)


def test_no_direction_grows_faster_than_it_is_said():
    data = sample(6, spread=0.5)
    many = neurons(6, 5000)
    for p in (1.0, 1.5, 2.0, 3.0, 4.0):
        field, _ = field_of(data, p, neurons(6), 1e-3)
        speed = full_pull(data, p, many, data.y.double() / len(data))[1]
        assert float(speed.abs().max()) <= field.growth_rate_bound


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_part_is_corrected_where_neurons_were_looked_at(in_a_subspace, p, monkeypatch):
    monkeypatch.setattr("extremal.train.flow.sample_field._SUBSAMPLE_SIZE", 20)
    data, directions = sample(60), neurons(60)
    field, place = field_of(data, p, directions, 1e-2)
    push = data.y.double() / len(data)
    corrected = SubsampledPull(field, push, 1e-4)
    assert corrected.subsample is not None
    assert len(corrected.subsample) == 20
    rows, left = torch.arange(40), torch.ones(40).double()
    corrected.refresh(place, left, rows)
    assert corrected.passes == 1.0
    exact = field.pull(place, push)
    for found, wanted in zip(corrected.pull(place, rows), exact, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-14)
    # A little further the correction errs by what it changed on the way, the part alone by all.
    generator = torch.Generator().manual_seed(5)
    step = torch.randn(place.shape, generator=generator, dtype=torch.float64)
    bare = corrected.subsample.pull(place, corrected.subsample_push, rows)[0] - exact[0]
    near = []
    for size in (0.04, 0.02):
        there = unit_rows(place + size * unit_rows(step))
        near.append((corrected.pull(there, rows)[0] - field.pull(there, push)[0]).norm())
        assert near[-1] < 0.3 * bare.norm()
    assert near[1] < 0.7 * near[0]
    corrected.refresh(place, left, rows)
    assert corrected.passes == 1.0  # nothing has turned
    there = unit_rows(place + 0.5 * unit_rows(step))
    corrected.refresh(there, left, rows)
    assert corrected.passes == 2.0
    torch.testing.assert_close(corrected.pull(there, rows)[0], field.pull(there, push)[0])


def test_few_samples_are_all_looked_at(monkeypatch):
    data, directions = sample(6), neurons(6)
    field, _ = field_of(data, 2.0, directions, 1e-3)
    push = data.y.double() / len(data)
    for part, used in ((200, False), (199, True)):
        monkeypatch.setattr("extremal.train.flow.sample_field._SUBSAMPLE_SIZE", part)
        assert (SubsampledPull(field, push, 1e-3).subsample is not None) == used


def test_a_frame_gives_directions_back():
    directions = neurons(7, 9)
    basis = torch.linalg.qr(torch.randn(7, 3, generator=torch.Generator().manual_seed(0)).double())
    frame, place = SubspaceFrame.of(directions, basis.Q.T)
    assert place.shape == (9, 4)
    torch.testing.assert_close(frame.lift(place), directions)
    torch.testing.assert_close(place.norm(dim=1), torch.ones(9).double())
    inside, _ = SubspaceFrame.of(unit_rows(torch.ones(2, 3).double() @ basis.Q.T), basis.Q.T)
    assert not bool(inside.rest.any())


def test_a_part_of_the_samples_has_the_moments_of_all():
    data, directions = sample(6), neurons(6)
    field, _ = field_of(data, 3.0, directions, 1e-2)
    half = len(data) // 2
    index, count = field.random_part(half)
    assert len(index) == half
    assert bool((count > 0.0).all())
    y = data.y.double()
    for moment in (torch.ones_like(y), y, *(y * field.x.double())):
        torch.testing.assert_close(moment[index] @ count, moment.mean(), rtol=0.0, atol=1e-12)
    assert float((count - 1.0 / half).abs().max()) > 1e-3
    index, count = field.random_part(len(data))
    assert index.tolist() == list(range(len(data)))
    torch.testing.assert_close(count, field.share)


@pytest.mark.parametrize("count", [40, 400])
def test_one_large_direction_hides_no_other_of_float32_data(count):
    data = sample(60, count, spread=1.0)
    large = unit_rows(torch.ones(1, 60, dtype=torch.float64))
    x = (data.x + 1e5 * (data.x @ large.T) @ large).float()
    field, _ = field_of(Dataset(x, data.y), 3.0, neurons(60), 1e-3)
    lost = x.double() - x.double() @ field.axes.T @ field.axes
    assert float(lost.norm(dim=1).max()) <= 0.1 * float(data.x.norm(dim=1).min())
