"""Attractors of the alignment flow against closed forms, scans, fine integration and theory."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult, linprog, minimize

from extremal.data import Dataset, OrthonormalMixture
from extremal.measure import UnconvergedWeightsWarning, contributions, extremal_directions
from extremal.measure.fixed_points.direction_set import largest_margin, least_loss
from extremal.models import average_classifier, subclass_classifier
from extremal.theory import field
from tests.measure.pairs import circle, seeded

DIM, POSITIVE, NEGATIVE = 12, 3, 2
K = POSITIVE + NEGATIVE


def mixture(spread: float) -> OrthonormalMixture:
    return OrthonormalMixture(DIM, POSITIVE, NEGATIVE, spread, generator=seeded(5))


@cache
def centres(p: float):
    """The directions of the mixture's exact centres."""
    return extremal_directions(mixture(0.0).simplified(), p, generator=seeded())


@cache
def noisy(p: float, spread: float = 0.1, count: int = 1000):
    data = mixture(spread).sample(count, generator=seeded(3), dtype=torch.float64)
    return data, extremal_directions(data, p, starts=60, generator=seeded())


BASINS = [(1.0, 21, 14, 4), (1.0, 7, 18, 4), (1.5, 3, 14, 3), (3.0, 21, 14, 4)]


def random_data(seed: int, count: int, dim: int) -> Dataset:
    generator = seeded(seed)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(count, generator=generator) < 0.5, -1, 1)
    return Dataset(x, y)


def growth_at(data: Dataset, p: float, u: torch.Tensor) -> torch.Tensor:
    return torch.relu(u @ data.x.T) ** p @ data.y.double() / len(data)


@pytest.mark.parametrize("p", [2.5, 3.0, 4.0, 7.0])
def test_without_noise_they_are_the_centres_for_p_above_2(p):
    found, mix = centres(p), mixture(0.0)
    assert found.sign.tolist() == [1] * POSITIVE + [-1] * NEGATIVE
    match = found.directions @ mix.centers.T
    assert torch.allclose(match.amax(1), torch.ones(K, dtype=torch.float64), atol=1e-12)
    assert sorted(match.argmax(1).tolist()) == list(range(K))
    assert torch.equal(mix.labels[match.argmax(1)], found.sign)
    assert torch.allclose(found.growth, torch.full((K,), 1 / K, dtype=torch.float64))
    # H vanishes across a centre, so that every eigenvalue is -p g.
    assert torch.allclose(found.eigenvalues, torch.full((K, 8), -p / K, dtype=torch.float64))
    assert bool(found.stable.all())
    assert not bool(found.continuum.any())


def test_the_largest_product_wins_for_p_3():
    """z_k' = p q z_k (z_k - ...): the order of own products is kept, so basins are read off."""
    mix = mixture(0.0)
    starts = torch.randn(300, DIM, generator=seeded(8), dtype=torch.float64)
    found = extremal_directions(mix.simplified(), 3.0, starts=starts, generator=seeded())
    z = starts @ mix.centers.T
    for row, own in enumerate((range(POSITIVE), range(POSITIVE, K))):
        part = z[:, list(own)]
        alive = part.amax(1) > 0
        assert torch.equal(found.reached_row[row] >= 0, alive)
        end = found.directions[found.reached_row[row][alive]] @ mix.centers.T
        assert torch.equal(end.argmax(1) - own[0], part[alive].argmax(1))
        assert found.dead[row] == pytest.approx(1 - float(alive.double().mean()))


@pytest.mark.parametrize("p", [1.0, 1.5])
def test_without_noise_the_average_is_the_only_stable_one_for_p_below_2(p):
    found, mix = centres(p), mixture(0.0)
    stable = found.attracting
    assert found.sign[stable].tolist() == [1, -1]
    averages = torch.stack([mix.average(1), mix.average(-1)])
    assert torch.allclose(found.directions[stable], averages, atol=1e-9)
    sizes = torch.tensor([POSITIVE, NEGATIVE], dtype=torch.float64)
    assert torch.allclose(found.growth[stable], sizes ** (1 - p / 2) / K, rtol=1e-9)
    # Own centres that were not active at the start never are: subset averages, met from one side.
    assert torch.equal(found.one_sided == 0, found.stable)
    assert int((found.sign == 1).sum()) == 2**POSITIVE - 1
    assert int((found.sign == -1).sum()) == 2**NEGATIVE - 1
    assert bool((found.eigenvalues[~found.stable, 0] == torch.inf).all())
    active = (found.directions @ mix.centers.T > 1e-6).sum(1).double()
    assert torch.allclose(found.growth, active ** (1 - p / 2) / K, rtol=1e-9)


def test_the_signs_of_products_decide_for_p_1():
    mix = mixture(0.0)
    starts = torch.randn(200, DIM, generator=seeded(8), dtype=torch.float64)
    found = extremal_directions(mix.simplified(), 1.0, starts=starts, generator=seeded())
    woken = starts @ mix.centers[:POSITIVE].T > 0
    assert torch.equal(found.reached_row[0] >= 0, woken.any(1))
    ends = found.directions[found.reached_row[0].clamp(min=0)] @ mix.centers[:POSITIVE].T > 1e-6
    assert torch.equal(ends[woken.any(1)], woken[woken.any(1)])


def test_p_2_is_a_continuum_and_is_said_to_be():
    found, mix = centres(2.0), mixture(0.0)
    assert found.sign.tolist() == [1, -1]
    assert found.continuum.tolist() == [POSITIVE - 1, NEGATIVE - 1]
    assert bool(found.stable.all())
    assert torch.allclose(found.growth, torch.full((2,), 1 / K, dtype=torch.float64))
    outside = found.directions - (found.directions @ mix.centers.T) @ mix.centers
    assert float(outside.abs().max()) < 1e-9
    assert "continuum of dimension 2" in str(found)
    assert "whole family of fixed points" in str(found)
    assert "continuum" not in str(centres(3.0))


@pytest.mark.parametrize("p", [3.0, 4.0])
def test_with_noise_they_are_near_the_centres(p):
    _, found = noisy(p)
    match = found.directions @ mixture(0.1).centers.T
    assert sorted(match.argmax(1).tolist()) == list(range(K))
    assert float(match.amax(1).min()) > 0.999
    assert float(found.residual.max()) < 1e-12


def test_with_noise_they_are_near_the_averages_for_p_1():
    data, found = noisy(1.0)
    assert found.sign.tolist() == [1, -1]
    mix = mixture(0.1)
    averages = torch.stack([mix.average(1), mix.average(-1)])
    assert float((found.directions * averages).sum(1).min()) > 0.99
    assert bool(found.stable.all())
    assert not bool(found.one_sided.any())
    assert int(found.kinks.sum()) > 0
    # Optimality with shares in [0, 1] of the opposing samples on their kinks, by another solver.
    for row, s in enumerate((1.0, -1.0)):
        u, own = found.directions[row], data.y * s > 0
        t = data.x @ u
        held = t.abs() < 1e-12
        assert int(held.sum()) == int(found.kinks[row])
        assert not bool((held & own).any())
        free = s * (data.y.double() * (t > 0) * ~held) @ data.x / len(data)
        columns = -data.x[held].T / len(data)
        growth = float(found.growth[row])
        shares = torch.linalg.lstsq(columns, growth * u - free).solution
        assert float((columns @ shares + free - growth * u).abs().max()) < 1e-12
        assert bool(((shares > 0) & (shares < 1)).all())


def scan(data: Dataset, p: float, sign: int, count: int = 40_000) -> list[float]:
    """Angles where the flow on the circle turns from forward to backward: its attractors."""
    u = circle(count)
    pull = sign * field(u, data.x, data.y, p)
    speed = pull[:, 1] * u[:, 0] - pull[:, 0] * u[:, 1]
    speed = torch.where(speed.abs() > 1e-12, speed, 0.0)
    turn = torch.nonzero((speed > 0) & (speed.roll(-1) < 0))[:, 0]
    # A scan point may be the attractor itself.
    exact = torch.nonzero((speed.roll(1) > 0) & (speed == 0) & (speed.roll(-1) < 0))[:, 0]
    places = torch.cat([turn.double() + 0.5, exact.double()])
    return sorted((2 * math.pi * places / count).tolist())


@pytest.mark.parametrize("p", [1.0, 1.5, 2.5, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_all_attractors_in_the_plane(p, seed):
    data = random_data(seed, 9, 2)
    starts = circle(200) @ torch.tensor([[0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
    found = extremal_directions(data, p, starts=starts, generator=seeded())
    assert bool(found.stable.all())
    for sign in (1, -1):
        rows = found.directions[found.sign == sign]
        angles = torch.atan2(rows[:, 1], rows[:, 0]) % (2 * math.pi)
        wanted = torch.tensor(scan(data, p, sign), dtype=torch.float64)
        assert len(angles) == len(wanted)
        assert torch.allclose(angles.sort().values, wanted, atol=2e-4)
    assert torch.allclose(found.growth, found.sign * growth_at(data, p, found.directions))


def integrate(data: Dataset, p: float, starts: torch.Tensor) -> torch.Tensor:
    """Explicit Euler on the sphere with the theory's field, on the clock of arc length.

    The ends of all starts (2, n, dim), with votes of either sign.
    """
    u = (starts / starts.norm(dim=1, keepdim=True)).repeat(2, 1)
    sign = torch.ones(len(u), 1, dtype=u.dtype)
    sign[len(starts) :] = -1.0
    step = 5e-3
    for _ in range(2500):
        pull = sign * field(u, data.x, data.y, p)
        pull = pull / pull.norm(dim=1, keepdim=True).clamp(min=1e-300)
        u = u + step * (pull - (pull * u).sum(1, keepdim=True) * u)
        u = u / u.norm(dim=1, keepdim=True)
    return u.view(2, *starts.shape)


@pytest.mark.parametrize(("p", "seed", "count", "dim"), BASINS)
def test_basins_are_those_of_the_flow(p, seed, count, dim):
    data = random_data(seed, count, dim)
    starts = torch.randn(100, dim, generator=seeded(2), dtype=torch.float64)
    found = extremal_directions(data, p, starts=starts, generator=seeded())
    assert len(found) > 2
    ends = integrate(data, p, starts)
    for row, sign in enumerate((1, -1)):
        cosine = ends[row] @ found.directions.T
        cosine[:, found.sign != sign] = -1.0
        near = torch.where(cosine.amax(1) > 0.999, cosine.argmax(1), -1)
        assert int((near != found.reached_row[row]).sum()) <= 2  # starts at the edge of two basins
        own = torch.nonzero(found.sign == sign)[:, 0].tolist()
        shares = [float((found.reached_row[row] == j).double().mean()) for j in own]
        assert found.basin[own].tolist() == pytest.approx(shares)
        assert sum(shares) + found.dead[row] == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_eigenvalues_by_second_differences_along_geodesics(p):
    data = random_data(4, 30, 4)
    found = extremal_directions(data, p, starts=40, generator=seeded())
    assert found.eigenvalues.shape[1] == 3
    h = 1e-4
    for row in range(len(found)):
        u, s = found.directions[row], float(found.sign[row])
        plane = torch.linalg.svd(u[None]).Vh[1:]

        def bend(v, u=u, s=s):
            path = torch.stack([math.cos(a) * u + math.sin(a) * v for a in (-h, 0.0, h)])
            low, here, high = s * growth_at(data, p, path)
            return float(low - 2 * here + high) / h**2

        matrix = np.zeros((3, 3))
        for i in range(3):
            matrix[i, i] = bend(plane[i])
            for j in range(i):
                both = (plane[i] + plane[j]) / math.sqrt(2)
                matrix[i, j] = matrix[j, i] = bend(both) - (bend(plane[i]) + bend(plane[j])) / 2
        wanted = np.linalg.eigvalsh(matrix)[::-1]
        assert found.eigenvalues[row].tolist() == pytest.approx(wanted.tolist(), rel=2e-3, abs=2e-4)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_they_turn_with_the_data(p):
    data = random_data(7, 12, 3)
    turn = torch.linalg.qr(torch.randn(6, 3, generator=seeded(3), dtype=torch.float64)).Q
    starts = torch.randn(20, 3, generator=seeded(4), dtype=torch.float64)
    plain = extremal_directions(data, p, starts=starts, generator=seeded())
    lifted = Dataset(data.x @ turn.T, data.y)
    turned = extremal_directions(lifted, p, starts=starts @ turn.T, generator=seeded())
    assert torch.allclose(turned.directions, plain.directions @ turn.T, atol=1e-9)
    assert torch.equal(turned.reached_row, plain.reached_row)
    # Three more dimensions add three eigenvalues -p s g.
    row = plain.eigenvalues[0].tolist() + [-p * float(plain.growth[0])] * 3
    assert turned.eigenvalues[0].tolist() == pytest.approx(sorted(row, reverse=True))


def test_a_large_space_is_searched_by_krylov_spaces():
    mix = OrthonormalMixture(420, 2, 2, 0.2)
    data = mix.sample(600, generator=seeded(1), dtype=torch.float64)
    found = extremal_directions(data, 3.0, starts=10, generator=seeded())
    for row in range(len(found)):
        u, s = found.directions[row], float(found.sign[row])
        t = torch.relu(data.x @ u)
        matrix = 6.0 * s * (data.x.T * (data.y * t / len(data))) @ data.x
        across = torch.eye(420, dtype=torch.float64) - torch.outer(u, u)
        values = torch.linalg.eigvalsh(across @ matrix @ across).flip(0)[:8]
        values = values - 3.0 * float(found.growth[row])
        # Ritz values are below the eigenvalues, and the first one, which decides, is close.
        assert bool((found.eigenvalues[row] <= values + 1e-9).all())
        assert float(found.eigenvalues[row, 0]) == pytest.approx(float(values[0]), rel=1e-3)


def test_the_loss_only_scales_growth():
    data, exp = noisy(3.0)
    logistic = extremal_directions(data, 3.0, starts=60, loss="logistic", generator=seeded())
    assert torch.allclose(logistic.growth, exp.growth / 2)
    assert torch.allclose(logistic.eigenvalues, exp.eigenvalues / 2)
    assert torch.allclose(logistic.directions, exp.directions)
    assert torch.equal(logistic.reached_row, exp.reached_row)


def test_thinned_data_and_single_precision_end_at_the_same_points():
    data, exact = noisy(3.0)
    thin = extremal_directions(
        data.to(torch.float32), 3.0, starts=60, subset=500, generator=seeded()
    )
    match = thin.directions @ exact.directions.T
    assert torch.allclose(match.amax(1), torch.ones(K, dtype=torch.float64), atol=1e-10)
    assert thin.directions.dtype == torch.float64


POINTS = torch.randn(500, DIM, generator=seeded(9), dtype=torch.float64)


@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("p", [1.0, 3.0, 4.0])
def test_the_classifier_is_the_reference(p, spread):
    found = centres(p) if spread == 0 else noisy(p)[1]
    reference = average_classifier(mixture(0.0)) if p == 1 else subclass_classifier(mixture(0.0), p)
    with torch.no_grad():
        ours, theirs = found.classifier()(POINTS), reference(POINTS)
    if spread == 0:
        assert torch.allclose(ours, theirs, atol=1e-7)
    else:
        assert float(torch.cosine_similarity(ours, theirs, dim=0)) > 0.99


def test_the_classifier_has_margin_1_and_the_least_sum():
    data, found = noisy(3.0)
    net = found.classifier()
    with torch.no_grad():
        assert float((data.y * net(data.x)).min()) == pytest.approx(1.0, abs=1e-9)
    hidden = torch.relu(data.x @ found.directions.T) ** 3 * found.sign
    rows = (data.y[:, None] * hidden).numpy()
    wanted = linprog(np.ones(K), A_ub=-rows, b_ub=-np.ones(len(rows))).fun
    assert float(contributions(net).sum()) == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(5))
def test_matrix_games(seed):
    """The value is that of the other player: min over b >= 0, sum b = 1, of max_j (A^T b)_j."""
    a = torch.randn(40, 6, generator=seeded(seed), dtype=torch.float64) + 0.3 * (seed - 2)
    weights, value = largest_margin(a)
    cost = np.r_[np.zeros(40), 1.0]
    rows = np.c_[a.T.numpy(), -np.ones(6)]
    equal = np.r_[np.ones(40), 0.0][None]
    bounds = [(0, None)] * 40 + [(None, None)]
    wanted = linprog(cost, A_ub=rows, b_ub=np.zeros(6), A_eq=equal, b_eq=[1.0], bounds=bounds)
    assert value == pytest.approx(wanted.fun, abs=1e-9)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert float(weights.min()) >= 0.0


def test_data_that_cannot_be_separated_get_the_least_loss():
    data = random_data(21, 40, 3)
    found = extremal_directions(data, 3.0, starts=50, generator=seeded())
    u, sign = found.directions[found.attracting], found.sign[found.attracting]
    margins = data.y[:, None] * torch.relu(data.x @ u.T) ** 3 * sign
    assert largest_margin(margins)[1] < 0
    c = least_loss(margins)
    slope = -(margins.T @ torch.exp(-(margins @ c))) / len(data)
    assert float((slope * c).abs().max()) < 1e-6
    assert float(slope.min()) > -1e-6
    with torch.no_grad():
        assert torch.allclose(data.y * found.classifier()(data.x), margins @ c)


def test_a_linear_program_that_fails_is_an_error(monkeypatch):
    failed = OptimizeResult(x=None, success=False, status=4, message="numbers too far apart")
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: failed)
    told = r"^no largest margin of 2 weights on 3 points: .* status 4, numbers too far apart$"
    with pytest.raises(RuntimeError, match=told):
        largest_margin(torch.ones(3, 2, dtype=torch.float64))


def test_a_search_for_the_least_loss_that_is_cut_short_says_so(monkeypatch):
    """After one iteration the real `minimize` has not converged; its weights are still given."""
    margins = torch.randn(40, 6, generator=seeded(), dtype=torch.float64)

    def cut_short(*given, options, **more):
        return minimize(*given, options={**options, "maxiter": 1}, **more)

    full = least_loss(margins)
    monkeypatch.setattr("scipy.optimize.minimize", cut_short)
    with pytest.warns(UnconvergedWeightsWarning, match="minimize ended with status 1, "):
        short = least_loss(margins)
    losses = [float(torch.exp(-(margins @ c)).mean()) for c in (full, short)]
    assert losses[0] < losses[1] < 1.0


def test_neurons_of_the_absent_class_die():
    """All labels +1 and points in a half-space: negative neurons are driven out of the data."""
    x = torch.randn(30, 3, generator=seeded(), dtype=torch.float64)
    x[:, 0] = x[:, 0].abs() + 2.0
    data = Dataset(x, torch.ones(30))
    for p in (1.0, 2.0, 3.0):
        found = extremal_directions(data, p, starts=50, generator=seeded())
        assert found.dead[1] == 1.0
        assert found.sign.tolist() == [1]
        untouched = bool((found.reached_row[0] < 0).any())
        assert found.dead[0] > 0 or not untouched
    assert "negative: no direction" in str(found)


def test_one_dimension():
    data = Dataset(
        torch.tensor([[1.0], [2.0], [-1.0]], dtype=torch.float64), torch.tensor([1, 1, -1])
    )
    found = extremal_directions(data, 3.0, starts=20, generator=seeded())
    grown = {
        (int(s), float(u)): float(g)
        for s, u, g in zip(found.sign, found.directions, found.growth, strict=True)
    }
    assert grown == pytest.approx(
        {(1, 1.0): 3.0, (1, -1.0): -1 / 3, (-1, 1.0): -3.0, (-1, -1.0): 1 / 3}
    )
    assert found.attracting.sum() == 2


def test_a_start_at_a_saddle_is_sent_on():
    """Half-way between two centres p = 3 has a saddle: one centre or the other is the end."""
    mix = mixture(0.0)
    starts = (mix.centers[0] + mix.centers[1])[None]
    found = extremal_directions(mix.simplified(), 3.0, starts=starts, generator=seeded())
    ends = found.directions[found.sign == 1] @ mix.centers.T
    assert ends.amax(1).tolist() == pytest.approx([1.0])
    assert int(ends.argmax()) in {0, 1}
    assert bool(found.stable.all())


def test_the_same_seed_gives_the_same_bytes():
    data = random_data(3, 30, 4)
    first, second = (extremal_directions(data, 3.0, starts=20, generator=seeded()) for _ in "ab")
    assert torch.equal(first.directions, second.directions)
    assert torch.equal(first.reached_row, second.reached_row)


DATA = random_data(1, 5, 2)
BAD = {
    "data must be a Dataset, got Tensor": {"data": DATA.x},
    "data.y must be -1 or .1 for a one-output network": {"data": Dataset(DATA.x, torch.arange(5))},
    "data.x must have a non-zero entry": {"data": Dataset(torch.zeros(2, 2), torch.ones(2))},
    "p must be a finite number >= 1, got 0.5": {"p": 0.5},
    "starts must be an integer >= 1, got 0": {"starts": 0},
    r"starts must be .* of shape \(n, 2\)": {"starts": torch.ones(3, 4)},
    "starts must have no zero row": {"starts": torch.zeros(3, 2)},
    "subset must be an integer >= 1, got 0": {"subset": 0},
    "loss must be one of 'exp', 'logistic'": {"loss": "hinge"},
    "generator must be a torch.Generator, got None": {"generator": None},
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_named(said):
    settings = {"data": DATA, "p": 1.0, "generator": seeded()} | BAD[said]
    with pytest.raises(ValueError, match=said):
        extremal_directions(**settings)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_labels_that_cancel_move_no_neuron(p):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    data = Dataset(torch.cat([x, x]), torch.tensor([1] * 10 + [-1] * 10))
    found = extremal_directions(data, p, starts=20, generator=generator)
    assert len(found) == 0
    assert found.dead == (1.0, 1.0)
