"""The paper's closed-form attacks on its two classifiers, at exact centres and on samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from extremal.attack import (
    Ball,
    average_direction,
    center_directions,
    minimal,
    mixture_attack,
    pgd,
    ray_attack,
    run,
)
from extremal.data import OrthonormalMixture
from extremal.models import average_classifier, subclass_classifier
from tests.attack.networks import linear

SIZES = [(6, 4), (1, 3), (5, 5)]


def mixture(positive, negative, *, rotated=True, dim=20, spread=0.0):
    g = torch.Generator().manual_seed(5) if rotated else None
    return OrthonormalMixture(dim, positive, negative, spread, generator=g)


class Cubes(nn.Module):
    """F^(3) written out: sum of y_k relu(<mu_k, x>)^3."""

    def __init__(self, mix):
        super().__init__()
        self.register_buffer("centers", mix.centers)
        self.register_buffer("signs", mix.labels.double())

    def forward(self, x):
        return torch.relu(x @ self.centers.T) ** 3 @ self.signs.to(x.dtype)


@pytest.mark.parametrize("sizes", SIZES)
def test_average_direction_is_a_unit_vector_and_signed_sum_of_centres(sizes):
    mix = mixture(*sizes)
    d = average_direction(mix)
    assert float(d.norm()) == pytest.approx(1.0, abs=1e-12)
    inner = mix.centers @ d
    torch.testing.assert_close(inner, mix.labels.double() / math.sqrt(mix.count))


@pytest.mark.parametrize("sizes", SIZES)
def test_center_directions_cover_every_opposing_centre(sizes):
    mix = mixture(*sizes)
    group = torch.arange(mix.count)
    met = [set() for _ in group]
    for item in center_directions(mix, group):
        assert item.shape == (mix.count, mix.dim)
        torch.testing.assert_close(item.norm(dim=1), torch.ones(mix.count).double())
        inner = item @ mix.centers.T * math.sqrt(2)
        for k in group.tolist():
            assert float(inner[k, k]) == pytest.approx(-1.0)
            met[k].add(int(inner[k].argmax()))
    for k in group.tolist():
        foreign = mix.labels != mix.labels[k]
        assert met[k] == set(torch.nonzero(foreign).flatten().tolist())


@pytest.mark.parametrize("sizes", SIZES)
def test_average_classifier_breaks_at_one_over_sqrt_k(sizes):
    """Theorem 1 at exact centres: y F(x - y r d_0) = 1 - r sqrt(K), zero at r = 1/sqrt(K)."""
    mix = mixture(*sizes)
    data = mix.simplified()
    net = average_classifier(mix)
    ray = -data.y[:, None] * average_direction(mix)
    critical = 1 / math.sqrt(mix.count)
    for factor, accuracy in ((1 - 1e-6, 1.0), (1 + 1e-6, 0.0)):
        result = ray_attack(net, data.x, data.y, ray, Ball("l2", factor * critical))
        assert result.accuracy == accuracy
        torch.testing.assert_close(
            result.margin, torch.full_like(result.margin, 1 - factor), rtol=0, atol=1e-12
        )
    # PGD agrees: the classifier has no weaker direction at exact centres.
    ball = Ball("l2", (1 - 1e-3) * critical)
    assert pgd(net, data.x, data.y, ball=ball, steps=100, step=0.05).accuracy == 1.0


@pytest.mark.parametrize("build", [Cubes, lambda mix: subclass_classifier(mix, 3.0)])
@pytest.mark.parametrize("sizes", SIZES)
def test_subclass_classifier_breaks_at_sqrt2_over_2_where_pgd_sees_nothing(sizes, build):
    """C.4: at r = sqrt(2)/2 own and opposing inner products meet at 1/2.

    From an exact centre the gradient is along the own centre only (relu^2 is flat at zero), so PGD
    from zero walks to (1 - r) mu_k and leaves the margin at (1 - r)^3.
    """
    mix = mixture(*sizes)
    data, net = mix.simplified(), build(mix)
    critical = math.sqrt(2) / 2
    for factor, accuracy in ((1 - 1e-6, 1.0), (1 + 1e-6, 0.0)):
        directions = center_directions(mix, data.group)
        ball = Ball("l2", factor * critical)
        assert ray_attack(net, data.x, data.y, directions, ball).accuracy == accuracy
    mix = mixture(*sizes, rotated=False)  # on the axes zero is zero, without rounding
    data, net = mix.simplified(), build(mix)
    blind = pgd(net, data.x, data.y, ball=Ball("l2", 0.9), steps=100, step=0.05)
    assert blind.accuracy == 1.0
    torch.testing.assert_close(
        blind.margin, torch.full_like(blind.margin, 0.1**3), rtol=1e-6, atol=0
    )


def test_structured_names_the_family_that_found_it():
    mix = mixture(6, 4)
    data = mix.simplified()
    ball = Ball("l2", 0.8)
    flat = mixture_attack(average_classifier(mix), data.x, data.y, mix, data.group, ball)
    steep = mixture_attack(subclass_classifier(mix, 3.0), data.x, data.y, mix, data.group, ball)
    assert set(flat.name) == {"average"}
    assert set(steep.name) == {"center"}
    alone = mixture_attack(subclass_classifier(mix, 3.0), data.x, data.y, mix, None, ball)
    assert alone.accuracy == 1.0


def test_noisy_samples_follow_theorem_1(generator):
    mix = mixture(6, 4, dim=400, spread=0.1)
    data = mix.sample(300, generator=generator)
    nets = (average_classifier(mix).float(), subclass_classifier(mix, 3.0).float())
    for net, critical in zip(nets, (1 / math.sqrt(10), math.sqrt(2) / 2), strict=True):
        for factor, accuracy in ((0.9, 1.0), (1.1, 0.0)):
            ball = Ball("l2", factor * critical)
            result = mixture_attack(net, data.x, data.y, mix, data.group, ball)
            assert result.accuracy == accuracy


def test_along_takes_the_shortest_fraction_that_breaks():
    net = linear([1.0, 0.0], 0.0)
    x = torch.tensor([[0.2, 0.0], [0.55, 0.0], [0.95, 0.0], [3.0, 0.0]], dtype=torch.float64)
    ray = torch.tensor([-7.0, 0.0], dtype=torch.float64)
    settings = {"fractions": (1.0, 0.5, 0.25, 0.75)}
    result = ray_attack(net, x, torch.ones(4), ray, Ball("l2", 1.0), **settings)
    torch.testing.assert_close(
        result.radius, torch.tensor([0.25, 0.75, 1.0, torch.inf]).double(), rtol=1e-9, atol=0
    )
    assert float(result.margin[3]) == pytest.approx(2.0)


def test_along_finds_a_break_inside_the_radius_only():
    """The full step crosses the dent and comes out safe: the grid is what finds it."""

    class Dent(nn.Module):
        def forward(self, x):
            return (x[:, 0] - 0.5).abs() - 0.1

    x, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([1])
    ray = torch.ones(1, dtype=torch.float64)
    full = ray_attack(Dent(), x, y, ray, Ball("l2", 1.0), fractions=(1.0,))
    grid = ray_attack(Dent(), x, y, ray, Ball("l2", 1.0))
    assert (full.accuracy, grid.accuracy) == (1.0, 0.0)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_along_measures_lengths_in_the_ball_s_norm_and_keeps_the_box(norm, generator):
    x = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    rays = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    rays[0] = 0.0
    net = linear([0.0] * 4, 1.0)
    free = ray_attack(net, x, torch.ones(5), rays, Ball(norm, 0.7), fractions=(1.0,))
    assert free.accuracy == 1.0
    # Nothing breaks a constant, so the attempt is whatever came first: the full step.
    size = Ball(norm, 0.7).norms(free.x_adv - x)
    wanted = torch.tensor([0, 0.7, 0.7, 0.7, 0.7], dtype=torch.float64)
    torch.testing.assert_close(size, wanted)
    boxed = ray_attack(net, x, torch.ones(5), rays, Ball(norm, 0.7, (0.0, 1.0)), fractions=(1.0,))
    torch.testing.assert_close(boxed.x_adv, free.x_adv.clamp(0, 1))


def test_batches_do_not_change_the_result(generator):
    mix = mixture(3, 2, spread=0.3)
    data = mix.sample(37, generator=generator)
    net = subclass_classifier(mix, 3.0).float()
    ball = Ball("l2", 0.7 + 0.1 * torch.rand(37, generator=generator))
    every = [
        mixture_attack(net, data.x, data.y, mix, data.group, ball, batch=size) for size in (1000, 7)
    ]
    torch.testing.assert_close(every[0].x_adv, every[1].x_adv)
    assert every[0].name == every[1].name
    assert 0 < every[0].accuracy < 1


def test_run_with_the_mixture_finds_what_pgd_does_not(generator):
    mix = mixture(6, 4, rotated=False)
    data, net = mix.simplified(), subclass_classifier(mix, 3.0)
    settings = {"radius": 0.72, "generator": generator}
    knowing = run(net, data.x, data.y, mixture=mix, group=data.group, **settings)
    assert knowing.accuracy == 0.0
    assert set(knowing.name) == {"center"}


def test_along_prefers_a_later_direction_that_breaks_sooner():
    """Both rays break the point; the second by half the length, though its margin is larger."""
    net = linear([1.0, 4.0], 0.0)
    x = torch.tensor([[0.95, 0.0]], dtype=torch.float64)
    long, short = (torch.tensor(ray, dtype=torch.float64) for ray in ([-1.0, 0.0], [0.0, -1.0]))
    for rays in ([long, short], [short, long]):
        result = ray_attack(net, x, torch.tensor([1]), rays, Ball("l2", 1.0), fractions=(0.25, 1.0))
        assert float(result.radius) == pytest.approx(0.25)
        torch.testing.assert_close(result.x_adv, x + 0.25 * short)


def test_along_tries_the_points_that_the_box_allows():
    """At half the length the ray itself would do, but what the box leaves of it does not."""
    net = linear([-1.0, -1.0], 1.6)
    x = torch.tensor([[0.9, 0.0]], dtype=torch.float64)
    ray = torch.ones(2, dtype=torch.float64)
    free = ray_attack(net, x, torch.tensor([1]), ray, Ball("linf", 1.0))
    boxed = ray_attack(net, x, torch.tensor([1]), ray, Ball("linf", 1.0, (0.0, 1.0)))
    assert (float(free.radius), float(boxed.radius)) == pytest.approx((0.5, 0.75))
    assert boxed.x_adv.tolist() == [[1.0, 0.75]]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_along_keeps_the_radius_around_float32_points(norm, generator):
    x = 10 * torch.rand(40, 30, generator=generator) + 1
    rays = torch.randn(40, 30, generator=generator)
    result = ray_attack(linear([1.0] * 30, 0.0), x, torch.ones(40), rays, Ball(norm, 1e-2))
    size = Ball(norm, 1e-2).norms(result.x_adv.double() - x.double())
    assert bool((size <= 1e-2).all())
    assert bool((size > 0).any())


def test_minimal_takes_the_rays_between_centres():
    """F^(8) at exact centres breaks at sqrt(2)/2 along a ray to an opposing one; others miss it."""
    source = mixture(3, 3, rotated=False, dim=12)
    data, net = source.simplified(), subclass_classifier(source, 8.0)
    g = torch.Generator().manual_seed(3)
    plain = minimal(net, data.x, data.y, generator=g)
    known = minimal(net, data.x, data.y, mixture=source, group=data.group, generator=g)
    assert bool((known.radius <= plain.radius).all())
    assert float(known.radius.max()) == pytest.approx(math.sqrt(0.5), rel=1e-3)
    along = minimal(net, data.x, data.y, rays=(known.x_adv - data.x,), generator=g)
    assert float(along.radius.max()) == pytest.approx(math.sqrt(0.5), rel=1e-3)


def test_minimal_with_a_mixture_but_no_subclasses_tries_the_averages():
    source = mixture(6, 4)
    data, net = source.simplified(), average_classifier(source)
    found = minimal(net, data.x, data.y, mixture=source, generator=torch.Generator())
    assert float(found.radius.max()) == pytest.approx(1 / math.sqrt(10), rel=1e-3)
    with pytest.raises(ValueError, match="group must come with the mixture"):
        minimal(net, data.x, data.y, group=data.group, generator=torch.Generator())
