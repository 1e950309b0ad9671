"""Contributions, cosines, balancedness, stable rank, and who follows which direction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from extremal.data import Dataset, OrthonormalMixture
from extremal.measure import (
    accuracy,
    accuracy_by_group,
    balancedness,
    contributions,
    cosines,
    following,
    stable_rank,
)
from extremal.models import Balanced, Explicit, Gaussian, PReLUNet

DIM = 6


def random_net(outputs: int, init=None) -> PReLUNet:
    generator = torch.Generator().manual_seed(4)
    return PReLUNet(DIM, 5, 2.0, outputs, init=init or Gaussian(0.7), generator=generator)


@pytest.mark.parametrize("outputs", [1, 3])
def test_contributions_and_balancedness_are_their_formulas(outputs):
    net = random_net(outputs)
    w, v = (part.detach().double().numpy() for part in (net.neurons, net.votes))
    length, vote = np.linalg.norm(w, axis=1), np.linalg.norm(v, axis=0)
    np.testing.assert_allclose(contributions(net), vote * length, rtol=1e-14)
    np.testing.assert_allclose(balancedness(net), vote**2 - length**2, atol=1e-14)
    even = balancedness(random_net(outputs, Balanced(1.0)))
    np.testing.assert_allclose(even, np.zeros(5), atol=1e-7)  # the weights are float32


def test_cosines():
    neurons = torch.tensor([[3.0, 0.0, 0.0], [-1e-20, 1e-20, 0.0], [0.0, 0.0, 0.0]])
    directions = torch.tensor([[5.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    half = 0.5**0.5
    wanted = torch.tensor(
        [[1.0, half, 0.0], [-half, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64
    )
    torch.testing.assert_close(cosines(neurons, directions), wanted, rtol=0.0, atol=1e-7)
    with pytest.raises(ValueError, match=r"directions must be .* shape \(n, 3\)"):
        cosines(neurons, torch.ones(2, 4))


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (1, 5), (6, 6)])
def test_stable_rank_against_numpy(shape):
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    a = matrix.numpy()
    wanted = np.linalg.norm(a, "fro") ** 2 / np.linalg.norm(a, 2) ** 2
    assert stable_rank(matrix) == pytest.approx(wanted, rel=1e-12)
    assert 1.0 - 1e-12 <= stable_rank(matrix) <= min(shape)


def test_stable_rank_of_orthonormal_rows_is_their_count():
    generator = torch.Generator().manual_seed(0)
    rows = OrthonormalMixture(20, 4, 3, 0.1, generator=generator).centers
    assert stable_rank(3.7 * rows) == pytest.approx(7.0, rel=1e-12)
    assert stable_rank(rows[:1]) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="matrix must have a non-zero entry"):
        stable_rank(torch.zeros(2, 3))


def planted() -> tuple[PReLUNet, torch.Tensor]:
    """Contributions 9, 4, 1 and 0.01 along axes 2, 0, 2 (at an angle) and 3; axis 1 has none."""
    neurons = torch.zeros(4, DIM, dtype=torch.float64)
    neurons[0, 0] = 2.0
    neurons[1, 3] = 0.1
    neurons[2, 2] = 3.0
    neurons[3, 2], neurons[3, 5] = 0.8, 0.6
    votes = torch.tensor([[2.0, 0.1, -3.0, 1.0]], dtype=torch.float64)
    settings = {"init": Explicit(neurons, votes), "generator": torch.Generator()}
    return PReLUNet(DIM, 4, 2.0, dtype=torch.float64, **settings), torch.eye(4, DIM)


@pytest.mark.parametrize(
    ("settings", "neurons", "unfollowed"),
    [
        ({}, [2, 0, 3], (1, 3)),  # 14/14.01 reach the default share of .99, 13/14.01 do not
        ({"share": 1.0}, [2, 0, 3, 1], (1,)),
        ({"share": 0.6}, [2], (0, 1, 3)),
        ({"share": 0.9}, [2, 0], (1, 3)),
        ({"top": 2}, [2, 0], (1, 3)),
        ({"top": 9}, [2, 0, 3, 1], (1,)),
        ({"top": 4, "threshold": 1.01}, None, None),
        ({"top": 0}, None, None),
        ({"share": 0.0}, None, None),
    ],
)
def test_following_planted_neurons(settings, neurons, unfollowed):
    net, axes = planted()
    if neurons is None:
        with pytest.raises(ValueError, match=r"(top|share|threshold) must"):
            following(net, axes, **settings)
        return
    found = following(net, axes, **settings)
    assert found.neurons.tolist() == neurons
    assert found.unfollowed == unfollowed
    rows = {2: (9.0, 2, 1.0), 0: (4.0, 0, 1.0), 3: (1.0, 2, 0.8), 1: (0.01, 3, 1.0)}
    seen = zip(found.contribution, found.direction, found.cosine, strict=True)
    for j, row in zip(neurons, seen, strict=True):
        assert [float(part) for part in row] == pytest.approx(rows[j])
    assert found.lowest == pytest.approx(0.8 if 3 in neurons else 1.0)


def test_a_neuron_below_the_threshold_follows_nobody():
    net, _ = planted()
    fifth = torch.eye(DIM)[[0, 5]]  # neuron 3 has cosine 0.6 with axis 5, neuron 2 has zero
    assert following(net, fifth, top=3).unfollowed == (1,)
    assert following(net, fifth, top=3, threshold=0.5).unfollowed == ()
    assert following(net, fifth, top=3).lowest == 0.0


AXES = torch.eye(DIM)
BAD = {
    "net must be a PReLUNet, got int": lambda: contributions(3),
    "net must be a PReLUNet, got Linear": lambda: balancedness(torch.nn.Linear(2, 1)),
    "net must be a PReLUNet, got Tensor": lambda: following(AXES, AXES),
    "directions must be .*, got list": lambda: following(random_net(1), [[1.0] * DIM]),
    "neurons must be .*, got list": lambda: cosines([[1.0]], AXES),
    r"neurons must be .*, got shape \(6,\)": lambda: cosines(AXES[0], AXES),
    "neurons must be .*int64": lambda: cosines(AXES.long(), AXES),
    "directions must be .*, got PReLUNet": lambda: cosines(AXES, random_net(1)),
    "matrix must be .*, got float": lambda: stable_rank(1.0),
    "data must be a Dataset, got int": lambda: accuracy(random_net(1), 3),
    "data must be a Dataset, got Tensor": lambda: accuracy_by_group(random_net(1), AXES),
    "net must be a torch.nn.Module": lambda: accuracy(3, Dataset(AXES, torch.ones(DIM))),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_named(said):
    with pytest.raises(ValueError, match=said):
        BAD[said]()


def test_neurons_that_diverge_can_still_be_watched():
    neurons = torch.full((2, DIM), torch.nan)
    assert bool(cosines(neurons, AXES).isnan().all())
