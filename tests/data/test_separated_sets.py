"""Separated sets: the separation that they promise is there, and not larger."""

import pytest
import torch
from sklearn.svm import LinearSVC

from extremal.data import LatticeCells, ManifoldCells, separated_points
from extremal.measure import separation


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_points_are_as_far_apart_as_asked(norm):
    found = separated_points(60, 3, separation=0.15, norm=norm, generator=generator())
    assert separation(found, norm=norm).minimum >= 0.15
    assert found.signed
    again = separated_points(60, 3, separation=0.15, norm=norm, generator=generator())
    assert torch.equal(found.x, again.x)
    free = separated_points(60, 3, separation=0.0, norm=norm, generator=generator())
    assert separation(free, norm=norm).minimum < 0.15


def test_points_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="separation must leave room for 50 points"):
        separated_points(50, 1, separation=0.99, generator=generator())


@pytest.mark.parametrize("linear", [False, True])
def test_cells_are_separated_and_labelled(linear):
    cells = LatticeCells(3, 3, noise=0.1, linear=linear, generator=generator())
    assert cells.count == (9 if linear else 27)
    assert abs(int(cells.labels.sum())) <= 1
    found = cells.sample(3000, generator=generator(1), dtype=torch.float64)
    least = separation(found).minimum
    assert cells.separation <= least < cells.separation + 0.05
    middle = cells.centers[found.group]
    assert float((found.x - middle).abs().max()) <= 0.1 + 1e-12
    assert torch.equal(found.y, cells.labels[found.group])


def test_linear_cells_need_one_neuron_for_clean_and_hide_it_from_an_attack():
    cells = LatticeCells(4, noise=0.1, linear=True, offset=0.02, generator=generator())
    found = cells.sample(500, generator=generator(1))
    last = found.x[:, -1] - 0.5
    assert bool((found.y * last > 0).all())
    assert float(last.abs().max()) == pytest.approx(0.02)
    # Any linear classifier has at most that l-inf margin: the classes' hulls are that near, since
    # lattice corners of both labels surround each other.
    plane = LinearSVC(C=1e6, dual=False, max_iter=100_000, tol=1e-10)
    plane.fit(cells.centers.numpy(), cells.labels.numpy())
    weight = torch.from_numpy(plane.coef_[0])
    scores = cells.centers @ weight + float(plane.intercept_[0])
    margin = float((cells.labels * scores).min() / weight.abs().sum())
    assert margin <= cells.separation / 4


@pytest.mark.parametrize("kind", ["sphere", "torus", "smooth"])
@pytest.mark.parametrize("intrinsic", [1, 3])
def test_manifolds_have_their_dimension_and_separation(kind, intrinsic):
    cells = ManifoldCells(kind, intrinsic, 9, gap=0.08, generator=generator(intrinsic))
    found = cells.sample(2500, generator=generator(1), dtype=torch.float64)
    least = separation(found, norm="l2").minimum
    assert cells.separation - 1e-9 <= least < 2.5 * cells.separation
    flat = found.x @ cells.frame.T
    torch.testing.assert_close(flat @ cells.frame, found.x)  # in the span of the frame
    if kind == "sphere":
        torch.testing.assert_close(found.x.norm(dim=1), torch.ones(2500, dtype=torch.float64))
    if kind == "torus":
        circles = flat[:, :intrinsic] ** 2 + flat[:, intrinsic:] ** 2
        torch.testing.assert_close(circles, torch.ones_like(circles))
    assert len(cells.labels) == 2 ** (intrinsic + (kind == "sphere"))
    assert torch.equal(found.y, cells.labels[found.group])


def test_distances_do_not_depend_on_the_ambient_dimension():
    near, far = (ManifoldCells("torus", 2, dim, generator=generator()) for dim in (4, 30))
    a, b = (cells.sample(50, generator=generator(1), dtype=torch.float64) for cells in (near, far))
    assert torch.equal(a.y, b.y)
    torch.testing.assert_close(torch.cdist(a.x, a.x), torch.cdist(b.x, b.x), atol=1e-7, rtol=0)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="noise must be below half the lattice's spacing"):
        LatticeCells(2, noise=0.25, generator=generator())
    with pytest.raises(ValueError, match="dim must be an integer >= 4"):
        ManifoldCells("torus", 2, 3, generator=generator())
    with pytest.raises(ValueError, match="kind must be one of"):
        ManifoldCells("plane", 2, 3, generator=generator())
    with pytest.raises(ValueError, match="gap must be below"):
        ManifoldCells("torus", 2, 4, gap=0.3, generator=generator())


def test_cells_that_no_machine_holds_are_refused():
    with pytest.raises(ValueError, match=r"dim must be at most 20, for 2\^20 cells, got 45"):
        LatticeCells(45, generator=generator())
    with pytest.raises(ValueError, match=r"dim must be at most 13, for 3\^12 cells, got 14"):
        LatticeCells(14, 3, linear=True, generator=generator())
    with pytest.raises(ValueError, match=r"intrinsic must be at most 20, .* got 45"):
        ManifoldCells("torus", 45, 100, generator=generator())
    with pytest.raises(ValueError, match="intrinsic must be at most 19"):
        ManifoldCells("sphere", 20, 100, gap=0.01, generator=generator())
