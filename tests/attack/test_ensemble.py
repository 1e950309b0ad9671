"""`run` and the accuracy curve: worst of all attacks, monotone, repeatable."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from extremal.attack import Ball, accuracy_curve, pgd, published_pgd, run, verified
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import average_classifier, subclass_classifier
from tests.attack.networks import linear


class Bump(nn.Module):
    """Flat with value 1 around the origin: descent from zero sees nothing, a random start does."""

    def forward(self, x):
        return 1.0 - 3.0 * torch.relu(x[:, 0].abs() - 0.3)


def scene(generator, count=20, dim=8):
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.rand(count, dim, generator=generator, dtype=torch.float64)
    net = linear(w, -0.5 * float(w.sum()))
    y = torch.where(net(x).detach() > 0, 1, -1)
    y[::7] *= -1  # misclassified from the start
    return net, w, x, y


def test_the_call_of_the_design(generator):
    net, _, x, y = scene(generator)
    result = run(net, x, y, norm="l2", radius=0.5, box=None, generator=generator)
    assert result.x_adv.shape == x.shape
    assert result.success.dtype == torch.bool
    assert result.radius.shape == (len(x),)


@pytest.mark.parametrize("box", [None, (0.0, 1.0)])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_linear_network_is_attacked_to_the_optimum(norm, box, generator):
    net, w, x, y = scene(generator)
    radius = {"l1": 0.6, "l2": 0.4, "linf": 0.15}[norm]
    ball = Ball(norm, radius, box)
    lowest = y * net(x + ball.linear_maximum(-y[:, None] * w, x)).detach()
    assert 0.2 < float((lowest <= 0).double().mean()) < 0.9
    result = run(net, x, y, norm=norm, radius=radius, box=box, steps=25, generator=generator)
    clear = lowest.abs() > 1e-3
    assert torch.equal(result.success[clear], (lowest <= 0)[clear])
    wrong = (y * net(x).detach()) <= 0
    assert bool(wrong.any())
    assert not result.radius[wrong].any()
    assert torch.equal(result.x_adv[wrong], x[wrong])
    assert {result.name[i] for i in torch.nonzero(wrong).flatten().tolist()} == {"clean"}
    if box is not None:
        assert bool(((result.x_adv >= 0) & (result.x_adv <= 1)).all())


def test_a_random_start_finds_what_zero_does_not(generator):
    x, y = torch.zeros(20, 1, dtype=torch.float64), torch.ones(20)
    ball = Ball("l2", 1.0)
    assert pgd(Bump(), x, y, ball=ball, steps=50, step=0.05).accuracy == 1.0
    result = run(Bump(), x, y, radius=1.0, generator=generator)
    assert result.accuracy < 0.6
    assert "pgd-random" in result.name
    assert "pgd-zero" not in result.name


def test_per_sample_radii_and_radius_zero(generator):
    net, w, x, y = scene(generator)
    margin = y * net(x).detach()
    distance = margin / w.norm()
    radius = torch.where(torch.arange(len(x)) % 2 == 0, 0.99, 1.01) * distance.clamp(min=0)
    result = run(net, x, y, radius=radius, steps=25, generator=generator)
    odd = torch.arange(len(x)) % 2 == 1
    assert torch.equal(result.success, odd | (margin <= 0))
    clean = run(net, x, y, radius=0.0, generator=generator)
    assert torch.equal(clean.success, margin <= 0)


def test_same_seed_gives_the_same_bytes():
    """On a flat start the random one decides, so that another seed must give other points."""
    x, y = torch.zeros(20, 3), torch.ones(20)
    runs = [
        run(Bump(), x, y, radius=1.0, steps=5, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    ]
    assert runs[0].x_adv.numpy().tobytes() == runs[1].x_adv.numpy().tobytes()
    assert runs[0].radius.numpy().tobytes() == runs[1].radius.numpy().tobytes()
    assert not torch.equal(runs[0].x_adv, runs[2].x_adv)


def test_curve_is_the_exact_one_of_a_linear_network(generator):
    net, w, x, y = scene(generator)
    distance = (y * net(x).detach() / w.norm()).clamp(min=0)
    radii = [0.4, 0.0, 0.1, 0.1]  # in any order, and twice
    curve = accuracy_curve(net, Dataset(x, y), radii, generator=generator)
    wanted = [float((distance > radius).double().mean()) for radius in radii]
    assert curve.accuracy.tolist() == pytest.approx(wanted)
    assert curve.radii.tolist() == radii
    broken = torch.isfinite(curve.radius)
    assert bool((curve.radius[broken] >= distance[broken] - 1e-9).all())


def test_curve_attacks_standing_points_only_and_never_rises(generator):
    """An attack that works at one radius alone still gives a falling curve."""
    x, y = torch.ones(6, 1, dtype=torch.float64), torch.ones(6)
    net, seen = linear([1.0], -0.5), []

    def fickle(net, data, ball, generator):
        seen.append(len(data))
        step = 1.0 if ball.radius == 0.6 else 0.0
        return pgd(net, data.x, data.y, ball=ball, steps=2, step=step)

    data = Dataset(torch.cat([x, x + 0.3]), torch.cat([y, y]))
    curve = accuracy_curve(net, data, [0.3, 0.6, 0.9], attack=fickle, generator=generator)
    assert curve.accuracy.tolist() == [1.0, 0.5, 0.5]
    assert seen == [12, 12, 6]


def test_an_attack_that_returns_bare_points_is_told_what_to_return(generator):
    data = Dataset(torch.ones(2, 1, dtype=torch.float64), torch.ones(2))
    with pytest.raises(ValueError, match=r"^attack must return an AttackResult, .*got Tensor"):
        accuracy_curve(
            linear([1.0], -0.5),
            data,
            [0.3],
            attack=lambda net, data, ball, generator: data.x,
            generator=generator,
        )


def test_curve_uses_the_box_of_the_data(generator):
    """x_1 > 0.5 breaks only below 0.5; the second coordinate would help, but the box holds it."""
    x = torch.tensor([[0.8, 0.0]], dtype=torch.float64)
    net = linear([1.0, 1.0], -0.5)
    y = torch.tensor([1])
    free = accuracy_curve(net, Dataset(x, y), [0.25], generator=generator)
    boxed = accuracy_curve(net, Dataset(x, y, box=(0.0, 1.0)), [0.25], generator=generator)
    assert (float(free.accuracy), float(boxed.accuracy)) == (0.0, 1.0)


def test_curve_of_the_two_classifiers(generator):
    mix = OrthonormalMixture(100, 6, 4, 0.05)
    data = mix.sample(60, generator=generator)
    radii = [0.0, 0.9 / math.sqrt(10), 1.1 / math.sqrt(10), 0.63, 0.78]
    nets = average_classifier(mix).float(), subclass_classifier(mix, 3.0).float()
    flat, steep = (accuracy_curve(net, data, radii, generator=generator) for net in nets)
    assert flat.accuracy.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert steep.accuracy.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_curve_with_the_published_attack(generator):
    """From exact centres it walks along the own direction alone, and the margin falls as there.

    The opposing neuron has no slope at <mu, x> = 0. F then breaks where the own neuron dies, at
    1/sqrt(K1) and 1/sqrt(K2), not at 1/sqrt(K); F^(3) at 1, not at sqrt(2)/2. The closed forms see
    both.
    """
    mix = OrthonormalMixture(10, 3, 2, 0.0)
    data = mix.simplified()
    flat, steep = average_classifier(mix), subclass_classifier(mix, 3.0)
    radii = [0.46, 0.57, 0.58, 0.70, 0.71, 0.99]  # 1/sqrt(5), 1/sqrt(3), 1/sqrt(2) = .447 .577 .707

    def published(net, data, ball, generator):
        return published_pgd(net, data.x, data.y, radius=ball.radius)

    def accuracies(net, attack=None):
        return accuracy_curve(
            net, data, radii, attack=attack, generator=generator
        ).accuracy.tolist()

    assert accuracies(flat, published) == pytest.approx([1.0, 1.0, 0.4, 0.4, 0.0, 0.0])
    assert accuracies(steep, published) == [1.0] * 6
    assert accuracies(flat) == [0.0] * 6
    assert accuracies(steep) == [1.0] * 4 + [0.0] * 2


def test_curve_counts_a_norm_within_the_slack_as_the_radius(generator):
    """A foreign attack's float32 points may be outside by less than the re-check's 1e-5."""
    x, y = torch.ones(4, 1, dtype=torch.float64), torch.ones(4)

    def foreign(net, data, ball, generator):
        far = data.x - ball.radius * (1 + 5e-6)
        return verified(net, data.x, data.y, far, ball, "foreign")

    net = linear([1.0], -0.5)
    curve = accuracy_curve(net, Dataset(x, y), [0.4, 0.5], attack=foreign, generator=generator)
    assert curve.accuracy.tolist() == [1.0, 0.0]
    assert curve.radius.tolist() == [0.5] * 4
