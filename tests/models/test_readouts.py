"""A fine-label network read as a coarse one: the outputs are those of brute force."""

from __future__ import annotations

import torch

from extremal.models import Grouped, margin, margin_gradient
from tests.models.helpers_networks import Config, make_net, make_points

GROUPS = torch.tensor([1, 0, 2, 1, 0])


def make_grouped(generator, groups=GROUPS, **others):
    return Grouped(make_net(Config(bias=True, outputs=5), 3.0, generator), groups, **others)


def test_best_group_is_the_group_of_the_best_output(generator):
    net, x = make_grouped(generator), make_points(100, generator)
    fine = net.net(x)
    assert torch.equal(net(x).argmax(1), GROUPS[fine.argmax(1)])
    assert net.outputs == 3
    assert len(torch.unique(net(x).argmax(1))) == 3


def test_margin_is_best_own_minus_best_foreign_output(generator):
    net, x = make_grouped(generator), make_points(30, generator)
    y = torch.arange(30) % 3
    found, gradient = margin_gradient(net, x, y)
    for i, row in enumerate(net.net(x).tolist()):
        own = [value for value, group in zip(row, GROUPS.tolist(), strict=True) if group == y[i]]
        foreign = [v for v, group in zip(row, GROUPS.tolist(), strict=True) if group != y[i]]
        assert float(found[i]) == max(own) - max(foreign)
    step = 1e-6 * gradient
    change = margin(net, x + step, y) - margin(net, x - step, y)
    torch.testing.assert_close(change, 2 * (gradient * step).sum(1), rtol=1e-4, atol=1e-12)


def test_signed_form_is_the_difference_of_two_groups(generator):
    groups = torch.tensor([1, 0, 0, 1, 0])
    plain = make_grouped(generator, groups)
    signed = Grouped(plain.net, groups, signed=True)
    x = make_points(30, generator)
    y = torch.arange(30) % 2
    assert signed.outputs == 1
    assert torch.equal(signed(x), plain(x)[:, 1] - plain(x)[:, 0])
    assert torch.equal(margin(signed, x, 2 * y - 1), margin(plain, x, y))
