"""The constructions of Li et al. 2022 against their own guarantees, attacks and enumeration."""

import itertools
import math

import pytest
import torch

from extremal import attack, certify, data, models, theory
from extremal._tensors import norm_ratio
from extremal.data import Dataset
from extremal.models.provable_constructions import Circuit, combined, least_distance

NORMS = ("linf", "l2", "l1")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sets(count=12, dim=3, separation=0.2, norm="linf", seed=0):
    return data.separated_points(
        count, dim, separation=separation, norm=norm, generator=generator(seed)
    )


def classes(count=12, dim=3, seed=0):
    """Three classes 0..2 in the cube."""
    found = sets(count, dim, seed=seed)
    return Dataset(found.x, torch.arange(count) % 3)


def on_the_ball(x, radius, norm, count, seed=0):
    """Points (count, n, dim) of the sphere of that radius around each point."""
    step = torch.randn(count, *x.shape, generator=generator(seed), dtype=x.dtype)
    step[: count // 2] = step[: count // 2].sign()  # corners of the cube
    power = {"linf": math.inf, "l2": 2.0, "l1": 1.0}[norm]
    length = torch.linalg.vector_norm(step, ord=power, dim=2, keepdim=True)
    return x + radius * step / length


def strongest(net, found, norm, radius):
    result = attack.run(
        net, found.x, found.y, norm=norm, radius=radius, steps=20, generator=generator()
    )
    return int(result.success.sum())


# f*


@pytest.mark.parametrize("norm", NORMS)
def test_ratio_is_one_on_the_sets_and_lipschitz(norm):
    found = sets(norm=norm)
    ratio = models.DistanceRatio.of(found, norm)
    torch.testing.assert_close(ratio(found.x), found.y.double())
    assert ratio.lipschitz == theory.ratio_lipschitz(ratio.separation)
    power = {"linf": math.inf, "l2": 2.0, "l1": 1.0}[norm]
    a, b = (torch.rand(20_000, 3, generator=generator(s), dtype=torch.float64) for s in (1, 2))
    b = a + (b - 0.5) * torch.logspace(-6, 0, len(a), dtype=torch.float64).unsqueeze(1)
    slopes = (ratio(a) - ratio(b)).abs() / torch.linalg.vector_norm(a - b, ord=power, dim=1)
    assert float(slopes.max()) <= ratio.lipschitz * (1 + 1e-9)
    # Between the two closest points it is met: the bound is no looser than it has to be.
    i, j = (found.y == 1).nonzero(), (found.y == -1).nonzero()
    pairs = [(int(p), int(q)) for p in i for q in j]
    p, q = min(pairs, key=lambda k: float((found.x[k[0]] - found.x[k[1]]).norm(p=power)))
    ends = torch.stack([found.x[p], found.x[q]])
    middle = ends.mean(0, keepdim=True)
    near = middle + 1e-6 * (ends[:1] - middle)
    rise = (ratio(near) - ratio(middle)).abs() / (near - middle).norm(p=power)
    assert float(rise) == pytest.approx(ratio.lipschitz, rel=1e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_ratio_is_robust_below_half_the_separation_and_not_above(norm):
    found = sets(norm=norm)
    ratio = models.DistanceRatio.of(found, norm)
    eps = theory.ratio_radius(ratio.separation)
    assert strongest(ratio, found, norm, 0.999 * eps) == 0
    moved = on_the_ball(found.x, 0.999 * eps, norm, 200)
    assert bool((ratio(moved.flatten(0, 1)) * found.y.repeat(200) > 0).all())
    proven = certify.certificate(ratio, found.x, found.y, norm=norm)
    assert proven.methods == ("construction",)
    assert float(proven.radius.min()) == pytest.approx(eps)
    assert strongest(ratio, found, norm, 1.2 * eps) > 0


def test_ratio_refuses_what_is_not_separated():
    x = torch.rand(3, 2, generator=generator())
    with pytest.raises(ValueError, match="negative must have no point in common"):
        models.DistanceRatio(x, x[:1])
    with pytest.raises(ValueError, match="labels -1 and"):
        models.DistanceRatio.of(classes())
    with pytest.raises(ValueError, match="norm must be one of"):
        models.DistanceRatio(x, x + 1.0, "l3")


# the memoriser


@pytest.mark.parametrize("norm", ["linf", "l1"])
@pytest.mark.parametrize("make", [sets, classes])
def test_memoriser_is_the_network_that_it_says(norm, make):
    found = make(8, 3)
    net = models.Memoriser(found, 0.3 * least(found, norm), norm)
    explicit = net.explicit()
    x = torch.rand(300, 3, generator=generator(3), dtype=torch.float64) * 1.4 - 0.2
    torch.testing.assert_close(explicit(x), net(x))
    used = sum(int(part.count_nonzero()) for part in explicit.parameters())
    assert used == net.parameter_count == theory.memoriser_parameters(8, 3, norm)


def least(found, norm):
    own = [found.x[found.y == label] for label in found.y.unique()]
    return min(least_distance(a, b, norm) for a, b in itertools.combinations(own, 2))


@pytest.mark.parametrize("norm", ["linf", "l1"])
@pytest.mark.parametrize("make", [sets, classes])
def test_memoriser_has_no_robust_training_error(norm, make):
    found = make()
    net = models.Memoriser(found, 0.45 * least(found, norm), norm)
    assert strongest(net, found, norm, net.radius) == 0
    moved = on_the_ball(found.x, net.radius, norm, 200).flatten(0, 1)
    margins = models.margin(net, moved, found.y.repeat(200))
    assert float(margins.min()) >= 1.0 - 1e-9
    proven = certify.radius(net, found.x, found.y, norm=norm)
    assert float(proven.min()) >= net.radius * (1 - 1e-9)
    assert strongest(net, found, norm, 2.0 * net.separation) > 0


def test_memoriser_by_enumeration_in_the_plane():
    found = sets(5, 2, 0.2, seed=4)
    net = models.Memoriser(found, 0.48 * least(found, "linf"))
    steps = torch.linspace(-net.radius, net.radius, 41, dtype=torch.float64)
    ball = torch.cartesian_prod(steps, steps)
    for x, y in zip(found.x, found.y, strict=True):
        assert float((y * net(x + ball)).min()) >= 1.0 - 1e-9


@pytest.mark.parametrize("norm", NORMS)
def test_proven_radii_hold_at_any_point(norm):
    """Of points that were not memorised, in all norms: no sample of the ball breaks them."""
    found = sets(10, 2, 0.3, seed=2)
    nets = [
        models.Memoriser(found, 0.1),
        models.Memoriser(found, 0.1, "l1"),
        models.DistanceRatio.of(found),
        models.DistanceRatio.of(found, "l2"),
        models.ratio_grid(models.DistanceRatio.of(found), 0.05),
    ]
    x = torch.rand(200, 2, generator=generator(9), dtype=torch.float64)
    for net in nets:
        y = torch.where(net(x) > 0, 1, -1)
        radii = certify.radius(net, x, y, norm=norm)
        assert float((radii > 0).double().mean()) > 0.1
        for moved in on_the_ball(x, 1.0, norm, 60, seed=5):
            inside = x + 0.999 * radii.unsqueeze(1) * (moved - x)
            kept = (y * net(inside) > 0) | (radii == 0)
            assert bool(kept.all())


def test_memoriser_refuses_a_radius_that_is_too_large():
    found = sets()
    half = least(found, "linf") / 2
    with pytest.raises(ValueError, match="radius must be below half the separation"):
        models.Memoriser(found, half)
    with pytest.raises(ValueError, match="data must have points of two classes"):
        models.Memoriser(found.take(found.y == 1), 0.0)
    with pytest.raises(ValueError, match="norm must be one of 'linf', 'l1'"):
        models.Memoriser(found, 0.01, "l2")


def test_a_cover_is_robust_on_points_that_it_never_saw():
    cells = data.LatticeCells(2, noise=0.15, generator=generator(1))
    seen = cells.sample(400, generator=generator(2), dtype=torch.float64)
    net = models.cover_network(seen, 0.05, 0.04)
    places = models.cover(seen, 0.04)
    assert len(net.points) == len(places) < 200
    far = torch.cdist(seen.x, seen.x[places], p=math.inf)
    far[seen.y.unsqueeze(1) != seen.y[places]] = math.inf
    assert float(far.min(1).values.max()) <= 0.04
    fresh = cells.sample(200, generator=generator(3), dtype=torch.float64)
    covered = torch.cdist(fresh.x, net.points, p=math.inf).min(1).values <= 0.04
    assert float(covered.double().mean()) > 0.95
    proven = certify.radius(net, fresh.x, fresh.y, norm="linf")
    assert float(proven[covered].min()) >= 0.05 - 1e-9


def test_a_cover_refuses_what_is_no_reach_and_no_norm():
    found = sets()
    for reach in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="reach must be a finite number >= 0"):
            models.cover(found, reach)
    with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2', 'linf'"):
        models.cover(found, 0.1, "l3")
    with pytest.raises(ValueError, match="data must be a Dataset"):
        models.cover(found.x, 0.1)


def test_radii_are_the_same_in_blocks(monkeypatch):
    found = sets()
    x = torch.rand(40, 3, generator=generator(2), dtype=torch.float64)
    y = torch.where(x[:, 0] < 0.5, 1, -1)
    nets = models.Memoriser(found, 0.01), models.GridNet.of(models.DistanceRatio.of(found), 3, 5)
    whole = [net.proven_radii(x, y, "linf") for net in nets]
    for name in ("provable_constructions._BLOCK_COORDINATES", "grid_network._BLOCK_COORDINATES"):
        monkeypatch.setattr(f"extremal.models.{name}", 100)
    for net, radii in zip(nets, whole, strict=True):
        assert float(radii.max()) > 0
        assert torch.equal(net.proven_radii(x, y, "linf"), radii)


def test_networks_that_are_too_large_to_write_out_are_refused():
    large = models.GridNet(torch.zeros([21] * 4))
    with pytest.raises(ValueError, match="side must be small enough for dense matrices"):
        large.explicit()
    with pytest.raises(ValueError, match="side must have at most 2097152 parameters to count"):
        large.counted()
    x = torch.rand(2000, 20, generator=generator())
    many = Dataset(x, torch.arange(2000) % 2)
    with pytest.raises(ValueError, match="data must be small enough for dense matrices"):
        models.Memoriser(many, 0.0).explicit()


# the grid


@pytest.mark.parametrize(("dim", "side"), [(1, 4), (2, 3), (3, 2), (3, 3), (4, 2)])
def test_grid_is_the_network_that_it_says(dim, side):
    values = torch.rand([side] * dim, generator=generator(dim), dtype=torch.float64) + 0.5
    net = models.GridNet(values)
    x = torch.rand(100, dim, generator=generator(3), dtype=torch.float64) * 1.4 - 0.2
    torch.testing.assert_close(net.explicit()(x), net(x))
    assert net.parameter_count == net.counted()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_grid_interpolates_on_simplices(dim):
    """Against the barycentric form: sort the fractions, walk from the lower to the upper corner."""
    side = 4
    values = torch.randn([side] * dim, generator=generator(), dtype=torch.float64)
    net = models.GridNet(values)
    x = torch.rand(50, dim, generator=generator(1), dtype=torch.float64)
    for point, got in zip(x, net(x).tolist(), strict=True):
        scaled = point * (side - 1)
        corner = scaled.floor().clamp(max=side - 2).long()
        share = scaled - corner
        order = share.argsort(descending=True).tolist()
        levels = [1.0, *share[order].tolist(), 0.0]
        total = 0.0
        for k in range(dim + 1):
            total += (levels[k] - levels[k + 1]) * float(values[tuple(corner)])
            if k < dim:
                corner[order[k]] += 1
        assert got == pytest.approx(total)
    affine = torch.arange(side, dtype=torch.float64).reshape([side] + [1] * (dim - 1))
    exact = models.GridNet(affine.expand([side] * dim).clone())
    torch.testing.assert_close(exact(x), (side - 1) * x[:, 0])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_grid_of_the_ratio_is_near_it_and_robust(dim):
    found = sets(8, dim, 0.2 if dim > 1 else 0.05, seed=1)
    ratio = models.DistanceRatio.of(found)
    radius = 0.5 * theory.ratio_radius(ratio.separation)
    net = models.ratio_grid(ratio, radius)
    nodes = theory.grid_nodes_needed(ratio.separation, radius, dim)
    assert len(net.nodes) == nodes == net.side**dim
    x = torch.rand(500, dim, generator=generator(2), dtype=torch.float64)
    assert float((net(x) - ratio(x)).abs().max()) <= ratio.lipschitz * net.spacing
    assert float(certify.radius(net, found.x, found.y, norm="linf").min()) >= radius * (1 - 1e-9)
    assert strongest(net, found, "linf", radius) == 0


def test_grid_parameters_grow_exponentially():
    counts = [models.GridNet(torch.zeros([5] * dim)).parameter_count for dim in (1, 2, 3, 4)]
    ratios = [b / a for a, b in itertools.pairwise(counts)]
    assert all(ratio > 5 for ratio in ratios)
    # Those that docs/expressive-power.md gives.
    counts = [models.GridNet(torch.zeros([21] * dim)).parameter_count for dim in (1, 2, 3, 4)]
    assert counts == [213, 5550, 204_129, 5_834_946]


def test_grid_refuses():
    with pytest.raises(ValueError, match="axes of one length"):
        models.GridNet(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="side must have"):
        models.GridNet.of(models.DistanceRatio.of(sets()), 3, 1000)
    with pytest.raises(ValueError, match="radius must be below"):
        models.ratio_side(0.2, 0.1)
    with pytest.raises(ValueError, match="ratio must be of the norm linf"):
        models.ratio_grid(models.DistanceRatio.of(sets(), "l2"), 0.01)


# parts


def test_a_circuit_counts_and_draws_nothing():
    state = torch.get_rng_state()
    circuit = Circuit(2)
    a, b = circuit.add([({0: 1.0}, None), ({0: -1.0, 1: 2.0}, 0.5)])
    net = circuit.network([combined((1.0, a), (-3.0, b))])
    assert circuit.count == 1 + 3 + 2
    x = torch.tensor([[1.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
    wanted = torch.relu(x[:, 0]) - 3 * torch.relu(2 * x[:, 1] - x[:, 0] + 0.5)
    torch.testing.assert_close(net(x), wanted)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("own", "asked"), list(itertools.product(NORMS, NORMS)))
def test_norm_ratio_is_the_largest_ratio_of_norms(own, asked):
    power = {"linf": math.inf, "l2": 2.0, "l1": 1.0}
    z = torch.cat([torch.randn(2000, 3, generator=generator()), torch.ones(1, 3), torch.eye(3)])
    ratio = z.norm(p=power[own], dim=1) / z.norm(p=power[asked], dim=1)
    assert float(ratio.max()) == pytest.approx(norm_ratio(own, asked, 3))
