"""The orthonormal mixture: its centres exactly, its samples within Monte Carlo margins."""

from __future__ import annotations

import pytest
import torch

from extremal.data import OrthonormalMixture

COUNT, SPREAD = 20_000, 0.6


def make_mixture(basis: str) -> OrthonormalMixture:
    generator = torch.Generator().manual_seed(7) if basis == "random" else None
    return OrthonormalMixture(dim=12, positive=3, negative=2, spread=SPREAD, generator=generator)


def draw(mixture, count=COUNT, seed=0, **others):
    return mixture.sample(count, generator=torch.Generator().manual_seed(seed), **others)


@pytest.mark.parametrize("basis", ["axes", "random"])
def test_centres_are_orthonormal_and_averages_unit(basis):
    mixture = make_mixture(basis)
    eye = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(mixture.centers @ mixture.centers.T, eye, rtol=0, atol=1e-14)
    assert mixture.labels.tolist() == [1, 1, 1, -1, -1]
    assert (torch.equal(mixture.centers[:, :5], eye)) == (basis == "axes")
    for sign, own in ((1, mixture.centers[:3]), (-1, mixture.centers[3:])):
        average = mixture.average(sign)
        assert abs(float(average.norm()) - 1) <= 1e-14
        torch.testing.assert_close(average * len(own) ** -0.5, own.mean(0), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("basis", ["axes", "random"])
def test_samples_have_the_stated_moments(basis):
    mixture = make_mixture(basis)
    data = draw(mixture, dtype=torch.float64)
    sizes = torch.bincount(data.group, minlength=5).double()
    deviation = SPREAD / 12**0.5
    # Margins are five standard deviations of each statistic: 0.16 * COUNT is p (1 - p) n for p=1/5.
    assert float((sizes - COUNT / 5).abs().max()) <= 5 * (0.16 * COUNT) ** 0.5
    for k in range(5):
        mean = data.x[data.group == k].mean(0)
        assert float((mean - mixture.centers[k]).abs().max()) <= 5 * deviation / sizes[k] ** 0.5
    noise = (data.x - mixture.centers[data.group]) / deviation
    moments = noise.T @ noise / COUNT  # the identity, within sqrt(2/n) on the diagonal
    assert float((moments - torch.eye(12)).abs().max()) <= 5 * (2 / COUNT) ** 0.5
    assert abs(float((noise**4).mean()) - 3) <= 5 * (96 / (12 * COUNT)) ** 0.5


def test_labels_follow_groups_and_the_source_is_kept():
    mixture = make_mixture("axes")
    data = draw(mixture, 200)
    assert torch.equal(data.y, torch.where(data.group < 3, 1, -1))
    assert (data.source, data.dim, len(data), data.box) == (mixture, 12, 200, None)
    assert data.signed
    assert data.x.dtype == torch.float32


def test_one_seed_gives_the_same_bytes():
    one, again, other = (draw(make_mixture("random"), 50, seed) for seed in (3, 3, 4))
    assert one.x.numpy().tobytes() == again.x.numpy().tobytes()
    assert torch.equal(one.group, again.group)
    assert not torch.equal(one.x, other.x)


@pytest.mark.parametrize("basis", ["axes", "random"])
def test_simplified_data_are_the_centres(basis):
    mixture = make_mixture(basis)
    data = mixture.simplified()
    assert torch.equal(data.x, mixture.centers)
    assert data.group.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(data.y, mixture.labels)


def test_without_spread_samples_are_centres():
    mixture = OrthonormalMixture(dim=3, positive=1, negative=2, spread=0.0)
    data = draw(mixture, 30)
    assert torch.equal(data.x.double(), mixture.centers[data.group])
