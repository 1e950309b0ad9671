"""The smallest step to a half-space in a box, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from extremal.attack.linear_problems import smallest_move
from tests.attack.balls import BOXES, NORMS, make_box, make_points
from tests.certify.oracles import least_norm

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("norm", NORMS)
def test_against_linear_and_quadratic_programs(norm, kind, generator):
    dim, count = 5, 25
    x = make_points(kind, count, dim, generator)
    gradient = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    gradient[::4, 0] = 0.0
    gradient[1::5] *= 1e-6
    box = make_box(kind, dim)
    bounds = None if box is None else tuple(torch.as_tensor(end).double() - x for end in box)
    most = (
        gradient.abs().sum(1)
        if box is None
        else (torch.maximum(gradient * bounds[0], gradient * bounds[1]).sum(1))
    )
    share = torch.rand(count, generator=generator, dtype=torch.float64)
    need = share * most
    d = smallest_move(gradient, need, norm, bounds)
    for i in range(count):
        g, h = (
            [gradient[i].numpy() / gradient[i].abs().max().numpy()],
            [need[i] / gradient[i].abs().max()],
        )
        if box is not None:
            g += [*np.eye(dim), *-np.eye(dim)]
            h += [*bounds[0][i].tolist(), *(-bounds[1][i]).tolist()]
        exact = least_norm(np.array(g), np.array(h, dtype=float), norm)
        size = np.linalg.norm(d[i].numpy(), ORDER[norm])
        assert size == pytest.approx(exact, rel=1e-7, abs=1e-9)
        assert float(gradient[i] @ d[i]) >= float(need[i]) * (1 - 1e-10) - 1e-15
        if box is not None:
            assert bool(((d[i] >= bounds[0][i]) & (d[i] <= bounds[1][i])).all())


@pytest.mark.parametrize("norm", NORMS)
def test_what_cannot_be_reached_fills_the_box(norm, generator):
    gradient = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    bounds = (torch.full((8, 4), -0.3).double(), torch.full((8, 4), 0.7).double())
    d = smallest_move(gradient, torch.full((8,), 1e3).double(), norm, bounds)
    assert torch.equal(d, torch.where(gradient > 0, bounds[1], bounds[0]))


@pytest.mark.parametrize("norm", NORMS)
def test_nothing_is_needed(norm, generator):
    gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    gradient[0] = 0.0
    need = torch.tensor([1.0, 0.0, -1.0, -5.0]).double()
    assert float(smallest_move(gradient, need, norm, None).abs().max()) == 0.0
