"""Separation of classes against brute force over all pairs."""

import pytest
import torch

from extremal import data
from extremal.data import Dataset
from extremal.measure import separation
from extremal.measure.nearest_neighbours import separating_coordinates

POWER = {"linf": float("inf"), "l2": 2.0, "l1": 1.0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points(count, dim=30, classes=3, seed=0, dtype=torch.float32, shift=0.0):
    """Values as of pixels: many zeros, few levels, so that there are ties."""
    g = generator(seed)
    x = torch.randint(0, 9, (count, dim), generator=g).clamp(min=4) - 4
    y = torch.randint(0, classes, (count,), generator=g)
    return Dataset((x / 4 + shift).to(dtype), y)


def brute(one, two, norm):
    far = torch.cdist(one.x.double(), two.x.double(), p=POWER[norm])
    if norm == "l2":  # not by products
        far = (one.x.double().unsqueeze(1) - two.x.double()).square().sum(2).sqrt()
    far[one.y.unsqueeze(1) == two.y] = torch.inf
    return far


@pytest.mark.parametrize("norm", POWER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 1000.3])
def test_distances_are_those_of_all_pairs(norm, dtype, shift, monkeypatch):
    monkeypatch.setattr("extremal.measure.nearest_neighbours._TILE_ROWS", 16)
    monkeypatch.setattr("extremal.measure.nearest_neighbours._TILE_COLUMNS", 48)
    monkeypatch.setattr("extremal.measure.nearest_neighbours._GUESS_CANDIDATES", 8)
    learn, test = (points(n, seed=n, dtype=dtype, shift=shift) for n in (130, 61))
    far = brute(learn, learn, norm)
    found = separation(learn, norm=norm)
    torch.testing.assert_close(found.distance, far.min(1).values, atol=1e-12, rtol=1e-12)
    chosen = far.gather(1, found.nearest.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(chosen, found.distance, atol=1e-12, rtol=1e-12)
    assert found.minimum == float(found.distance.min())
    assert found.mean == pytest.approx(float(far.min(1).values.mean()))
    for i, j in found.pairs:
        assert i < j
        assert float(far[i, j]) == pytest.approx(found.minimum)
    across = separation(test, learn, norm=norm)
    wanted = brute(test, learn, norm).min(1).values
    torch.testing.assert_close(across.distance, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("norm", POWER)
def test_images_are_as_by_brute_force(norm):
    learn, test = data.load("digits")
    found = separation(test, learn, norm=norm)
    wanted = brute(test, learn, norm).min(1).values
    torch.testing.assert_close(found.distance, wanted, atol=1e-12, rtol=1e-12)


def test_conflicts_and_repeated_points_are_named():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    found = separation(Dataset(x, torch.tensor([0, 1, 1, 1, 1])))
    assert found.conflicts == found.pairs == ((0, 2),)
    assert found.minimum == 0.0
    assert found.repeated == 2
    apart = separation(Dataset(x[:2], torch.tensor([0, 1])))
    assert (apart.conflicts, apart.pairs, apart.repeated) == ((), ((0, 1),), 0)


def test_equal_points_of_two_sets():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    learn = Dataset(torch.cat([x, x[:1]]), torch.tensor([0, 1, 1, 0]))
    test = Dataset(torch.tensor([[-0.0, 0.0], [1.0, 0.0], [5.0, 5.0]]).double(), learn.y[:3] * 0)
    found = separation(test, learn)
    assert found.duplicates == ((0, 0),)
    assert found.conflicts == ((1, 1),)


def test_minimum_and_mean_of_each_class():
    x = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    found = separation(Dataset(x, torch.tensor([0, 1, 1, 0])))
    assert found.by_class == {0: (1.0, 4.0), 1: (1.0, 2.0)}


def test_pixels_are_compared_as_whole_numbers():
    """float32(k/255) differ from k/255, so that equal differences would not tie."""
    g = generator(5)
    whole = torch.randint(0, 256, (90, 40), generator=g)
    y = torch.randint(0, 3, (90,), generator=g)
    far = (whole.unsqueeze(1) - whole).abs().amax(2).double()
    far[y.unsqueeze(1) == y] = torch.inf
    for steps in (255, 256):
        found = separation(Dataset(whole.float() / steps, y))
        assert torch.equal(found.distance, far.min(1).values / steps)
        at = (far == far.min()).nonzero().tolist()
        assert set(found.pairs) == {(min(pair), max(pair)) for pair in at}


@pytest.mark.parametrize("norm", POWER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0000007, 1e12, 1e20, 3e37])
def test_values_of_any_size_are_measured_as_they_are(norm, dtype, scale):
    base = points(70, seed=3)
    found = separation(Dataset((base.x.double() * scale).to(dtype), base.y), norm=norm)
    given = Dataset((base.x.double() * scale).to(dtype).double() / scale, base.y)
    wanted = brute(given, given, norm).min(1).values
    torch.testing.assert_close(found.distance / scale, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("norm", POWER)
@pytest.mark.parametrize("scale", [1e-290, 1e39, 1e290])
def test_values_that_leave_the_range_of_float32(norm, scale):
    base = points(70, seed=3, dtype=torch.float64)
    found = separation(Dataset(base.x * scale, base.y), norm=norm)
    wanted = brute(base, base, norm).min(1).values
    torch.testing.assert_close(found.distance / scale, wanted, atol=1e-12, rtol=1e-12)


def test_telling_coordinates_are_those_that_tell_most():
    one, two = torch.zeros(4, 3), torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
    chosen = separating_coordinates(one, two, torch.full((4,), 0.5), count=3)
    assert chosen.tolist() == [0, 1, 2]


def test_all_pairs_at_the_smallest_distance_are_there():
    x = torch.tensor([[0.0], [1.0], [2.0], [5.0]])
    found = separation(Dataset(x, torch.tensor([0, 1, 0, 1])))
    assert found.pairs in (((0, 1), (1, 2)),)


def test_progress_is_told():
    seen = []
    separation(points(50), norm="l2", progress=lambda what, done, total: seen.append((done, total)))
    assert seen[-1] == (1, 1)


def test_bad_input_is_named():
    one = points(10)
    with pytest.raises(ValueError, match="norm must be one of"):
        separation(one, norm="l3")
    with pytest.raises(ValueError, match="reference must have 30 coordinates"):
        separation(one, points(10, dim=7))
    alike = Dataset(one.x, torch.zeros(10, dtype=torch.long))
    with pytest.raises(ValueError, match=r"data must have points of classes other than \[0\]"):
        separation(alike)
    with pytest.raises(ValueError, match=r"reference must have points of classes other than \[0\]"):
        separation(one, alike)
    with pytest.raises(ValueError, match="data must be a Dataset"):
        separation(one.x)
