"""Clusters around long orthogonal features, and their map to the orthonormal mixture."""

import math

import pytest
import torch

from extremal.data import OrthogonalClusters, OrthonormalMixture


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_features_are_orthogonal_of_norm_sqrt_dim_and_classes_are_split():
    source = OrthogonalClusters(50, 3, 2, generator=generator())
    gram = source.centers @ source.centers.T
    torch.testing.assert_close(gram, 50.0 * torch.eye(5, dtype=torch.float64))
    assert source.labels.tolist() == [1, 1, 1, -1, -1]
    assert source.separation == pytest.approx(math.sqrt(50 / 2))


def test_variants_have_the_norms_and_cosines_asked_for():
    source = OrthogonalClusters(
        40, 2, 2, norms=[1.0, 2.0, 0.5, 1.0], cosine=0.1, generator=generator()
    )
    norms = torch.linalg.vector_norm(source.centers, dim=1) / math.sqrt(40)
    torch.testing.assert_close(norms, torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64))
    unit = source.centers / source.centers.norm(dim=1, keepdim=True)
    off = (unit @ unit.T)[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full_like(off, 0.1))


def test_each_cluster_has_as_many_points_as_asked_with_noise_sigma():
    source = OrthogonalClusters(200, 2, 1, 0.5)
    data = source.sample_each(40, generator=generator(), dtype=torch.float64)
    assert torch.bincount(data.group).tolist() == [40, 40, 40]
    assert torch.equal(data.y, source.labels[data.group])
    noise = data.x - source.centers[data.group]
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)


def test_the_map_between_the_papers_scalings():
    source = OrthogonalClusters(30, 2, 3, 0.7)
    mixture = source.orthonormal()
    assert isinstance(mixture, OrthonormalMixture)
    ours = source.sample(20, generator=generator(), dtype=torch.float64)
    theirs = mixture.sample(20, generator=generator(), dtype=torch.float64)
    torch.testing.assert_close(ours.x / math.sqrt(30), theirs.x)
    assert torch.equal(ours.group, theirs.group)


@pytest.mark.parametrize(
    "changes", [{"norms": [1.0, 2.0]}, {"cosine": 0.2}, {"generator": generator()}]
)
def test_other_features_have_no_such_map(changes):
    with pytest.raises(ValueError, match=r"first axes .* \(no generator"):
        OrthogonalClusters(10, 1, 1, **changes).orthonormal()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 3, 3), "positive \\+ negative must be at most dim = 4"),
        ((9, 0, 3), "positive must"),
        ((9, 3, 3, -1.0), "sigma must"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        OrthogonalClusters(*arguments)


@pytest.mark.parametrize("norms", [[1.0], [1.0, 0.0], [1.0, float("nan")], 3.0])
def test_bad_norms_are_named(norms):
    with pytest.raises(ValueError, match="norms must"):
        OrthogonalClusters(9, 1, 1, norms=norms)
