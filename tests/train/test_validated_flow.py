"""Proofs about gradient flow: they hold where the answer is known, and fail where they must."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch

from extremal.data import Dataset
from extremal.models import Explicit, PReLUNet
from extremal.train import gradient_flow, validated_flow
from extremal.train.validated.error_bound import comparison_system, error_bound
from extremal.train.validated.flow_tube import PARTS, flow_tube
from extremal.train.validated.residual_bound import polynomial_residual, switch_residual
from extremal.train.validated.taylor_solution import ORDER, FlowEquation, taylor_solution

# Three directions of the plane at 120 degrees: no cluster reaches another one's neurons.
CENTRES = np.array([[np.cos(a), np.sin(a)] for a in (0.0, 2 * np.pi / 3, 4 * np.pi / 3)])


def network(neurons, votes, p):
    init = Explicit(torch.tensor(neurons), torch.tensor(votes)[None])
    width, dim = np.shape(neurons)
    generator = torch.Generator()
    return PReLUNet(dim, width, p=p, init=init, dtype=torch.float64, generator=generator)


def problem(p=3, centres=CENTRES, size=1e-2, width=4, seed=3):
    """Two classes in three clusters of two samples each, and a small network."""
    rng = np.random.default_rng(seed)
    x = np.repeat(centres, 2, 0) + 0.05 * rng.normal(size=(6, 2))
    data = Dataset(torch.tensor(x), torch.tensor([1, 1, 1, 1, -1, -1]))
    neurons = size * rng.normal(size=(width, 2))
    votes = 0.5 * np.linalg.norm(neurons, axis=1) * np.where(np.arange(width) % 3 < 2, 1.0, -1.0)
    return network(neurons, votes, p), data


def solved(until=4.0, **settings):
    net, data = problem(**settings)
    equation = FlowEquation(data.x.numpy(), data.y.double().numpy(), int(net.p))
    w, v = net.neurons.detach().numpy(), net.votes[0].detach().numpy()
    norm = np.linalg.norm(w, axis=1)
    start = (w / norm[:, None], v / norm, np.log(norm))
    return equation, taylor_solution(equation, start, until, 99)


def state(pieces, k, s):
    """(u, r, lam) of piece k at its moment s."""
    powers = s ** np.arange(ORDER + 1)
    return tuple(np.tensordot(powers, one[:, k], 1) for one in (pieces.u, pieces.r, pieces.lam))


def velocity(equation, u, r, lam):
    """The equation written out once more, for arrays of floats or of mpmath's numbers."""
    p, exp = equation.p, np.vectorize(mpmath.exp if u.dtype == object else np.exp, otypes=[u.dtype])
    s = u @ equation.x.T
    relu = np.where(s > 0, s, 0 * s)
    f = (r * exp(2 * lam)) @ relu**p
    q = equation.y * exp(-equation.y * f) / len(equation.y)
    g = relu**p @ q
    pull = p * (relu ** (p - 1) * q) @ equation.x
    return r[:, None] * (pull - p * g[:, None] * u), g * (1 - r * r), r * g


def test_a_neuron_on_its_only_sample_grows_as_the_closed_form_says():
    """c' = 2 c exp(-c), so 2 t = Ei(c) - Ei(c at the start)."""
    net = network([[0.0, 0.25]], [0.25], p=3)
    found = validated_flow(
        net, Dataset(torch.tensor([[0.0, 1.0]]).double(), torch.tensor([1])), until=9.0
    )
    low, high = (float(one[0]) for one in found.contributions)
    mpmath.mp.dps = 30
    times = [(mpmath.ei(c) - mpmath.ei(mpmath.mpf(1) / 16)) / 2 for c in (low, high)]
    assert found.complete
    assert times[0] < 9 < times[1]
    assert high - low < 1e-11
    assert float(found.direction_error[0]) < 1e-12


@pytest.mark.parametrize("p", [2, 3, 4])
def test_the_residual_is_bounded_everywhere_in_a_piece(p):
    equation, pieces = solved(p=p)
    tube = flow_tube(equation, pieces, 1e-9)
    bound = np.repeat(polynomial_residual(equation, pieces), PARTS, 0)
    bound = bound + switch_residual(equation, pieces, tube)
    mpmath.mp.dps = 40
    exact = np.vectorize(mpmath.mpf, otypes=[object])
    twin = FlowEquation(exact(equation.x), exact(equation.y), p)
    rng = np.random.default_rng(0)
    for k in range(0, len(pieces.length), 3):
        s = float(rng.uniform())
        powers = exact(s) ** np.arange(ORDER + 1)
        parts = [exact(one[:, k]) for one in (pieces.u, pieces.r, pieces.lam)]
        here = [np.tensordot(powers, one, 1) for one in parts]
        order = np.arange(1, ORDER + 1)
        slopes = [np.tensordot(order * powers[:-1], one[1:], 1) for one in parts]
        rates = velocity(twin, *here)
        time = mpmath.mpf(float(pieces.length[k]))
        u, r, lam = (slope / time - rate for slope, rate in zip(slopes, rates, strict=True))
        found = np.concatenate([np.sqrt((u * u).sum(1).astype(float)), abs(r), abs(lam)])
        assert (found.astype(float) <= bound[k * PARTS + int(s * PARTS)]).all()


def growth_of_errors(equation, here, errors):
    """The sizes of errors, and how fast they grow, both (3h,); u stays on the sphere."""
    moved = here[0] + errors[0]
    errors[0] = moved / np.linalg.norm(moved, axis=1, keepdims=True) - here[0]
    there = [one + error for one, error in zip(here, errors, strict=True)]
    pairs = zip(velocity(equation, *there), velocity(equation, *here), strict=True)
    change = [one - other for one, other in pairs]
    sizes, growth = [], []
    for error, rate in zip(errors, change, strict=True):
        e, d = error.reshape(len(error), -1), rate.reshape(len(error), -1)
        size = np.linalg.norm(e, axis=1)
        along = (e * d).sum(1) / np.where(size > 1e-12, size, 1.0)
        growth.append(np.where(size > 1e-12, along, np.linalg.norm(d, axis=1)))
        sizes.append(size)
    return np.concatenate(sizes), np.concatenate(growth)


def worst_growth(equation, pieces, matrix, residual, radius):
    """The most by which the growth of random errors exceeds what B and the residual allow."""
    rng, worst = np.random.default_rng(1), -np.inf
    for trial in range(12 * len(pieces.length)):
        k, s = trial % len(pieces.length), rng.uniform()
        here = state(pieces, k, s)
        few = [1.0 * (rng.uniform(size=len(one)) < 0.2) for one in here]
        errors = [0.5 * radius * rng.normal(size=one.shape).clip(-1, 1) for one in here]
        errors = [(error.T * on).T for error, on in zip(errors, few, strict=True)]
        sizes, growth = growth_of_errors(equation, here, errors)
        at = (k, int(s * PARTS))
        excess = growth - matrix[at] @ sizes - residual[at]
        worst = max(worst, float(excess.max()))
    return worst


@pytest.mark.parametrize("p", [2, 3, 4])
def test_no_error_in_the_tube_grows_faster_than_the_comparison_system_says(p):
    equation, pieces = solved(until=25.0, p=p, size=0.3)
    radius = 1e-4
    matrix, residual = comparison_system(equation, pieces, radius)
    assert worst_growth(equation, pieces, matrix, residual, radius) < 1e-12
    for row in range(3):  # each block of B is needed: without it the check would fail
        for column in range(3):
            less = matrix.copy()
            at = (..., slice(4 * row, 4 * row + 4), slice(4 * column, 4 * column + 4))
            less[at] -= 0.5 * np.abs(less[at])
            assert worst_growth(equation, pieces, less, residual, radius) > 1e-9


def test_a_wrong_solution_is_not_validated():
    equation, pieces = solved()
    first = np.full((3, 4), 1e-15)
    good, count = error_bound(equation, pieces, first, 1e-5)
    assert count == len(pieces.length)
    assert good.max() < 1e-11
    for name in ("u", "r", "lam"):
        wrong = getattr(pieces, name).copy()
        wrong[1, 5, 0] += 1e-3
        _, count = error_bound(equation, replace(pieces, **{name: wrong}), first, 1e-5)
        assert count == 5
        wrong[1, 5, 0] += 1e-8 - 1e-3
        worse, _ = error_bound(equation, replace(pieces, **{name: wrong}), first, 1e-5)
        assert worse.max() > 1e-9


def test_a_solution_of_another_equation_is_not_validated():
    equation, pieces = solved()
    first = np.full((3, 4), 1e-15)
    other = FlowEquation(equation.x, equation.y, 4)
    assert error_bound(other, pieces, first, 1e-5)[1] == 0
    flipped = replace(pieces, mask=1.0 - pieces.mask)
    assert error_bound(equation, flipped, first, 1e-5)[1] == 0
    skipped = pieces.cut(3, 99)
    gap = [np.delete(one, 3, 1) for one in (pieces.u, pieces.r, pieces.lam)]
    holed = replace(
        skipped,
        length=np.delete(pieces.length, 3),
        mask=np.delete(pieces.mask, 3, 0),
        u=gap[0],
        r=gap[1],
        lam=gap[2],
    )
    assert error_bound(equation, holed, first, 1e-5)[1] == 3


def test_three_clusters_are_learned_for_ever():
    net, data = problem()
    before = net.neurons.detach().clone()
    found = validated_flow(net, data, until=60.0)
    assert found.complete
    assert float(found.direction_error.max()) < 1e-10
    assert torch.equal(net.neurons, before)
    centres = torch.tensor(CENTRES)
    cosines = found.cosines(centres)
    assert cosines[list(found.dominant(0.99))].amax(1).min() > 0.99
    centre, still = found.trapped(data, centres, cosine=0.98)
    assert set(centre.tolist()) == {0, 1, 2}
    assert not still.any()
    gradient_flow(net, data, until=60.0, tolerance=1e-8)
    flowed = torch.nn.functional.normalize(net.neurons.detach())
    assert torch.allclose(flowed, found.directions, atol=1e-5)


def test_clusters_that_reach_each_other_are_no_traps():
    net, data = problem(centres=np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]))
    found = validated_flow(net, data, until=5.0)
    centre, _ = found.trapped(data, torch.eye(2).double(), cosine=0.98)
    assert centre.tolist() == [-1] * 4


def test_a_neuron_that_no_sample_reaches_stands_still():
    net = network([[0.1, 0.0], [-0.1, 0.0]], [0.05, 0.05], p=3)
    data = Dataset(torch.tensor([[1.0, 0.1]]).double(), torch.tensor([1]))
    found = validated_flow(net, data, until=3.0)
    centre, still = found.trapped(data, torch.tensor([[1.0, 0.0]]).double(), cosine=0.9)
    assert (centre.tolist(), still.tolist()) == ([0, -1], [False, True])
    assert found.dominant(0.9) == (0,)


def test_a_proof_that_breaks_off_says_where():
    net, data = problem()
    found = validated_flow(net, data, until=60.0, max_pieces=7)
    assert not found.complete
    assert found.pieces == 7
    assert 0 < found.time < 60.0
    assert not validated_flow(net, data, until=60.0, tube=1e-15).complete


def test_what_cannot_be_proven_is_refused():
    net, data = problem()
    with pytest.raises(ValueError, match="net must"):
        validated_flow(problem(p=1)[0], data, until=1.0)
    many = Dataset(data.x[:1].repeat(1001, 1), data.y[:1].repeat(1001))
    with pytest.raises(ValueError, match="train must have at most 1000 samples"):
        validated_flow(net, many, until=1.0)
    with pytest.raises(ValueError, match="until must"):
        validated_flow(net, data, until=0.0)
    with pytest.raises(ValueError, match="cosine must"):
        validated_flow(net, data, until=0.1).trapped(data, torch.eye(2).double(), cosine=0.5)
