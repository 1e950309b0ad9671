"""Clusters: what a sample is made of, and centres that are not orthogonal."""

import math

import pytest
import torch

from extremal.data import GaussianClusters, OrthonormalMixture, correlated_centers, random_centers


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def plane(**given):
    centers = torch.tensor([[3.0, 0.0], [0.0, 4.0], [-5.0, 0.0]])
    settings = {"labels": torch.tensor([1, -1, 1]), "noise": 0.1} | given
    return GaussianClusters(centers, settings.pop("labels"), settings.pop("noise"), **settings)


def test_a_sample_has_each_clusters_label_centre_noise_and_share():
    noise = torch.tensor([0.1, 0.3, 0.0])
    clusters = plane(noise=noise, weights=torch.tensor([1.0, 2.0, 5.0]))
    data = clusters.sample(40_000, generator=seeded(), dtype=torch.float64)
    assert data.source is clusters
    assert torch.equal(data.y, clusters.labels[data.group])
    for k, (size, share) in enumerate(zip(noise.tolist(), (0.125, 0.25, 0.625), strict=True)):
        rows = data.group == k
        assert float(rows.double().mean()) == pytest.approx(share, abs=0.01)
        residue = data.x[rows] - clusters.centers[k]
        assert float(residue.std()) == pytest.approx(size, rel=0.03, abs=1e-12)
        assert float(residue.mean(0).abs().max()) < 0.01


def test_the_orthonormal_mixture_is_such_clusters():
    mixture = OrthonormalMixture(16, 3, 2, 0.4)
    same = GaussianClusters(mixture.centers, mixture.labels, 0.4 / 4.0)
    a, b = (source.sample(50, generator=seeded()) for source in (mixture, same))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)


def test_separation_is_half_the_least_distance_of_two_classes():
    assert plane().separation == pytest.approx(2.5)  # of (3, 0) and (0, 4)
    assert OrthonormalMixture(9, 2, 2, 0.1).separation == pytest.approx(math.sqrt(0.5))


def test_separations_are_those_of_each_centre_from_the_other_class():
    source = GaussianClusters(
        torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 0.0]]), torch.tensor([1, 1, -1]), 0.0
    )
    assert source.separations.tolist() == [4.5, 3.5, 3.5]


@pytest.mark.parametrize("cosine", [-0.25, 0.0, 0.3, 1.0])
def test_correlated_centres_have_that_inner_product(cosine):
    centers = correlated_centers(8, 5, cosine)
    wanted = torch.full((5, 5), cosine, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(centers @ centers.T, wanted, atol=1e-7, rtol=0)
    assert not bool(centers[:, 5:].any())


def test_random_centres_are_unit_vectors_of_a_subspace():
    centers = random_centers(9, 2000, 3, generator=seeded())
    torch.testing.assert_close(centers.norm(dim=1), torch.ones(2000, dtype=torch.float64))
    assert not bool(centers[:, 3:].any())
    spread = centers[:, :3].T @ centers[:, :3] / 2000
    torch.testing.assert_close(spread, torch.eye(3).double() / 3.0, atol=0.03, rtol=0)


BAD = {
    "centers": (lambda: GaussianClusters(torch.ones(3), torch.ones(3), 0.1), "centers must"),
    "nan": (
        lambda: GaussianClusters(torch.full((2, 2), math.nan), torch.ones(2), 0.1),
        "centers must",
    ),
    "labels": (lambda: plane(labels=torch.tensor([1, -1])), "labels must"),
    "noise": (lambda: plane(noise=-0.1), "noise must be a finite number >= 0"),
    "noise shape": (lambda: plane(noise=torch.ones(2)), "noise must be a number >= 0, or 3"),
    "noise entry": (lambda: plane(noise=torch.tensor([1.0, -1.0, 1.0])), "noise must .* entry -1"),
    "weights": (lambda: plane(weights=torch.zeros(3)), "weights must have a positive sum"),
    "one class": (lambda: plane(labels=torch.ones(3, dtype=torch.int64)).separation, "two classes"),
    "cosine": (lambda: correlated_centers(9, 5, -0.3), "cosine must"),
    "count": (lambda: correlated_centers(4, 5, 0.0), "count must be at most dim = 4"),
    "rank": (lambda: random_centers(4, 5, 5, generator=seeded()), "rank must be at most dim = 4"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, said = BAD[name]
    with pytest.raises(ValueError, match=said):
        call()
