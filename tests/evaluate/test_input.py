"""Settings, networks and data that do not fit are refused before any work."""

from __future__ import annotations

import pytest
from torch import nn

import extremal as ex
from extremal.data import Dataset
from tests.evaluate.scenes import flat_net, points


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "l3"}, "norm must be one of"),
        ({"radii": [-1.0]}, "radii must be a finite number >= 0, got -1"),
        ({"radii": []}, "radii must be a sequence of at least one number"),
        ({"radii": 0.5}, "radii must be a sequence"),
        ({"effort": "slow"}, "effort must be one of"),
        ({"batch": 0}, "batch must be an integer >= 1"),
        ({"generator": 3}, "generator must be a torch.Generator"),
    ],
)
def test_bad_settings_are_refused(settings, message, generator):
    w, test = points(generator)
    with pytest.raises(ValueError, match=message):
        ex.evaluate(flat_net(w), test, **{"generator": generator, **settings})


def test_networks_and_data_that_do_not_fit_are_refused(generator):
    w, test = points(generator)
    with pytest.raises(ValueError, match="test must be a Dataset"):
        ex.evaluate(flat_net(w), test.x, generator=generator)
    with pytest.raises(ValueError, match=r"x must be a tensor of shape \(n, 3\)"):
        ex.evaluate(flat_net(w[:3]), test, generator=generator)
    with pytest.raises(ValueError, match=r"y must be -1 or \+1"):
        ex.evaluate(flat_net(w), Dataset(test.x, test.y + 1), generator=generator)
    column = nn.Linear(6, 1).double()
    with pytest.raises(ValueError, match=r"net\(x\) must have shape \(n,\) for one output"):
        ex.evaluate(column, test, generator=generator)
