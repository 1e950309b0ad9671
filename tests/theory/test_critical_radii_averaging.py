"""Radii of averaged and decoupled features against a search over perturbations."""

import itertools
import math

import pytest
import torch

from extremal import theory
from extremal.attack import average_direction, minimal
from extremal.certify import radius
from extremal.data import OrthogonalClusters
from extremal.models import averaged_classifier, decoupled_classifier

DIM = 8


def centres(positive, negative):
    """Clusters whose features have norm 1 rather than sqrt(dim), and their centres."""
    norms = [1.0 / math.sqrt(DIM)] * (positive + negative)
    return OrthogonalClusters(DIM, positive, negative, 0.0, norms=norms)


def broken_at(net, source):
    """The least radius at which an attack, and above which a certificate, breaks a centre."""
    g = torch.Generator().manual_seed(0)
    found = minimal(net, source.centers, source.labels, steps=200, generator=g)
    held = radius(net, source.centers, source.labels, attacked=found.x_adv)
    assert bool((held <= found.radius * (1 + 1e-6)).all())
    return float(found.radius.min()), float(held.min())


def by_grid(positive, negative, biases):
    """The least cost of (a, b) that misreads a centre, over a fine grid.

    At (0, 0), whatever the biases, one of the two centres is misread: nothing farther is cheaper.
    """
    plus, minus = biases
    grid = torch.linspace(-1.25, 1.25, 1251, dtype=torch.float64)
    least = math.inf
    for own, other, up, down in (
        (positive, negative, plus, minus),
        (negative, positive, minus, plus),
    ):
        a, b = 1 + grid[:, None], grid
        wrong = (a + up).clamp(min=0) <= (b + down).clamp(min=0)
        cost = (a - 1) ** 2 / own + b**2 / other
        least = min(least, float(torch.where(wrong, cost, torch.inf).min()))
    return math.sqrt(least)


@pytest.mark.parametrize(
    "biases", [(0.0, 0.0), (0.2, 0.1), (-0.3, 0.2), (0.5, 0.5), (-0.6, -0.7), (-0.2, -0.9), (0, 2)]
)
@pytest.mark.parametrize("counts", [(1, 1), (3, 2)])
def test_averaged_radius_is_the_least_over_a_grid(counts, biases):
    assert theory.averaged_radius(*counts, biases) == pytest.approx(
        by_grid(*counts, biases), abs=3e-3
    )


@pytest.mark.parametrize("biases", [(0.0, 0.0), (0.2, 0.1), (-0.3, -0.3)])
def test_averaged_radius_is_what_attacks_find(biases):
    source = centres(3, 2)
    found, _ = broken_at(averaged_classifier(source, biases=biases), source)
    assert found == pytest.approx(theory.averaged_radius(3, 2, biases), rel=1e-3)


def test_no_biases_save_averaged_features():
    grid = [i / 10 for i in range(-15, 16)]
    for counts in ((1, 1), (4, 4), (6, 4), (2, 8)):
        limit = 1 / math.sqrt(sum(counts))
        found = max(theory.averaged_radius(*counts, pair) for pair in itertools.product(grid, grid))
        assert found == pytest.approx(limit)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.2247, 0.25, 0.2929, 0.4, 0.8])
@pytest.mark.parametrize("opposing", [1, 2, 5])
def test_decoupled_radius_is_what_attacks_find(opposing, threshold):
    source = centres(1, opposing)
    found, held = broken_at(decoupled_classifier(source, threshold=threshold), source)
    wanted = min(theory.decoupled_radius(k, threshold) for k in (1, opposing))
    assert found == pytest.approx(wanted, rel=2e-3)
    assert held <= wanted * (1 + 1e-6)


def test_thresholds_between_two_limits_are_optimal():
    for opposing in (1, 2, 3, 10, 100):
        for threshold in (0.2248, 0.25, 0.2928):
            assert theory.decoupled_radius(opposing, threshold) == pytest.approx(math.sqrt(0.5))
    assert theory.decoupled_radius(2, 0.2) < math.sqrt(0.5) - 1e-3
    assert theory.decoupled_radius(2, 0.31) < math.sqrt(0.5) - 1e-3


def test_the_talks_scaling():
    assert theory.averaging_scale(3072, 10) == pytest.approx(17.527, abs=1e-3)
    assert theory.averaging_scale(3072, 10) == pytest.approx(
        math.sqrt(3072) * theory.averaged_radius(5, 5)
    )


@pytest.mark.parametrize("sigma", [1.0, 3.0])
@pytest.mark.parametrize("reach", [0.0, 0.8, 1.0, 1.2])
def test_with_noise_the_accuracy_is_that_of_f(sigma, reach):
    """Of 20,000 sampled points, clean and under the step that both neurons are moved along."""
    dim, positive, negative = 60, 3, 2
    g = torch.Generator().manual_seed(1)
    source = OrthogonalClusters(dim, positive, negative, sigma, generator=g)
    data = source.sample_each(4000, generator=g)
    length = reach * theory.averaging_scale(dim, positive + negative)
    away = length * average_direction(source).to(data.x.dtype)
    moved = (data.x - data.y.unsqueeze(1) * away).double()
    right = (averaged_classifier(source)(moved) * data.y > 0).double().mean()
    wanted = theory.average_accuracy(
        dim, positive, negative, sigma, length / math.sqrt(dim), attack="d0"
    )
    assert float(right) == pytest.approx(wanted, abs=0.01)
    near = 0.5 * math.erfc((length - math.sqrt(dim / 5)) / sigma / math.sqrt(2))
    if sigma == 1.0:
        assert near == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: theory.averaged_radius(0, 1), "positive"),
        (lambda: theory.averaged_radius(1, 1, (math.nan, 0.0)), "biases"),
        (lambda: theory.averaged_radius(1, 1, (0.0,)), "biases"),
        (lambda: theory.decoupled_radius(0, 0.1), "opposing"),
        (lambda: theory.decoupled_radius(1, 1.5), "threshold"),
        (lambda: theory.averaging_scale(0, 1), "dim"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()
