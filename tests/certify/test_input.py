"""Bad input to certificates: a ValueError with the parameter, the rule and what was received."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from extremal.certify import certificate, holds, radius
from tests.certify.networks import Kind, make

X, Y = torch.zeros(2, 3, dtype=torch.float64), torch.tensor([1, -1])


@pytest.fixture
def net():
    return make(Kind(3, 4), torch.Generator().manual_seed(0))


BAD = [
    ({"x": X[0]}, r"x must be a floating-point tensor of shape \(n, 3\)"),
    ({"x": X.long()}, "x must be a floating-point tensor"),
    ({"x": X[:0]}, "x must be a floating-point tensor .* n >= 1"),
    ({"x": torch.full_like(X, torch.nan)}, "x must be finite, got 6 NaN or infinite entries"),
    ({"x": torch.full_like(X, torch.inf)}, "x must be finite"),
    ({"x": X[:, :2]}, r"\(n, 3\)|3"),
    ({"x": "x"}, "x must be a floating-point tensor"),
    ({"y": Y[:1]}, r"y must have shape \(2,\), one label a point"),
    ({"y": torch.tensor([0.5, 1.0])}, "y must be whole numbers"),
    ({"y": torch.tensor([-2, 1])}, "y must be -1 or \\+1 for a one-output network"),
    ({"y": [1, -1]}, "y must be a tensor of labels, got list"),
    ({"norm": "l3"}, "norm must be one of 'l1', 'l2', 'linf', got 'l3'"),
    ({"norm": 2}, "norm must be one of"),
    ({"effort": "extreme"}, "effort must be one of 'fast', 'tight', got 'extreme'"),
    ({"batch": 0}, "batch must be an integer >= 1, got 0"),
    ({"batch": 1.5}, "batch must be an integer >= 1"),
    ({"box": (1.0, 2.0)}, "x must lie in the box"),
    ({"box": (1.0, -1.0)}, "box must have low < high"),
    ({"box": 1.0}, "box must be a pair"),
    ({"attacked": X[:1]}, r"attacked must be None or a .* like x, \(2, 3\), got shape \(1, 3\)"),
    ({"attacked": X.long()}, "attacked must be None or a floating-point tensor .*torch.int64"),
    ({"attacked": torch.full_like(X, torch.nan)}, "attacked must be finite"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=range(len(BAD)))
def test_what_is_refused(net, change, message):
    given = {"x": X, "y": Y, **change}
    x, y = given.pop("x"), given.pop("y")
    for call in (radius, certificate, partial(holds, radius=0.1)):
        with pytest.raises(ValueError, match=message):
            call(net, x, y, **given)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), "0.1", None])
def test_a_radius_that_is_none_is_refused(net, bad):
    with pytest.raises(ValueError, match="radius must be"):
        holds(net, X, Y, bad)


@pytest.mark.parametrize(
    "bad", [-1.0, float("nan"), float("inf"), "0.1", True, torch.tensor([0.1, 0.1])]
)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_certificate_at_what_is_no_radius_is_refused(net, bad, norm):
    chain = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    for each in (net, chain):
        with pytest.raises(ValueError, match=r"^at must be a finite number >= 0, got "):
            certificate(each, X, Y, norm=norm, at=bad)


def test_a_certificate_at_a_radius_is_the_same_for_a_whole_number(net):
    found = [certificate(net, X + 1.0, Y, at=at).radius for at in (1, 1.0)]
    assert torch.equal(*found)


class Unknown(nn.Module):
    def forward(self, x):
        return x[:, 0]


@pytest.mark.parametrize("bad", [Unknown(), nn.Sequential(nn.Linear(3, 2), Unknown()), nn.ReLU()])
def test_networks_of_an_unknown_kind_are_refused(bad):
    with pytest.raises(
        ValueError, match=r"net must be a PReLUNet, a Grouped one, or an nn.Sequential"
    ):
        radius(bad, torch.ones(2, 3), torch.tensor([1, 1]))


def test_what_is_no_network_is_refused():
    with pytest.raises(ValueError, match=r"net must be a torch.nn.Module"):
        radius("net", X, Y)


def test_labels_out_of_range_are_refused():
    several = make(Kind(3, 4, outputs=3), torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"y must lie in 0..2 for 3 outputs"):
        radius(several, X, torch.tensor([0, 3]))


def test_points_on_a_box_that_rounds_in_their_dtype():
    """0.1 in float32 is above 0.1: such a point lies in the box (0, 0.1) of its dtype."""
    net = make(Kind(3, 4, 2.0, 1, bias=True), torch.Generator().manual_seed(0), torch.float32)
    x = torch.tensor([[0.1, 0.0, 0.05]])
    y = torch.where(net(x) > 0, 1, -1)
    assert float(radius(net, x, y, norm="linf", box=(0.0, 0.1))) > 0
