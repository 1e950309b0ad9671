"""The re-check believes nothing: norms, box, NaN and misclassification are found out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.attack import AttackResult, AttackViolation, Ball, verified, worst
from tests.attack.networks import linear


@pytest.fixture
def scene():
    """f(x) = x_1 - 0.5, in the unit box; the last point is misclassified from the start."""
    net = linear([1.0, 0.0], -0.5)
    x = torch.tensor([[0.9, 0.5], [0.7, 0.2], [0.2, 0.5], [0.6, 0.6]], dtype=torch.float64)
    y = torch.tensor([1, 1, -1, -1])
    return net, x, y


def test_measures_what_it_is_given(scene):
    net, x, y = scene
    move = torch.tensor([[-0.3, 0.0], [-0.2, 0.1], [0.35, 0.0], [0.2, 0.0]])
    result = verified(net, x, y, x + move, Ball("linf", 0.4, (0.0, 1.0)), "mine")
    assert result.success.tolist() == [False, True, True, True]
    torch.testing.assert_close(
        result.radius, torch.tensor([torch.inf, 0.2, 0.35, 0.0], dtype=torch.float64)
    )
    torch.testing.assert_close(
        result.margin, torch.tensor([0.1, 0.0, -0.05, -0.1], dtype=torch.float64)
    )
    assert result.name == ("", "mine", "mine", "clean")
    assert torch.equal(result.x_adv[3], x[3])
    assert result.accuracy == 0.25


def test_a_margin_of_zero_is_broken():
    x = torch.tensor([[1.0]], dtype=torch.float64)
    result = verified(linear([1.0], 0.0), x, torch.tensor([1]), x - 1.0, Ball("l2", 1.0), "mine")
    assert result.success.tolist() == [True]


@pytest.mark.parametrize(
    ("norm", "move", "said"),
    [
        ("l2", [0.3, 0.3], "left the l2 ball at 1 of 4 points, by up to 0.0243"),
        ("l1", [0.3, -0.3], "left the l1 ball at 1 of 4 points, by up to 0.2"),
        ("linf", [0.4002, 0.0], "left the linf ball at 1 of 4 points, by up to 0.0002"),
        ("linf", [-0.3, 0.0], "left the box at 1 of 4 points, by up to 0.1"),
        ("l2", [torch.nan, 0.0], "returned NaN or infinite entries at 1 of 4 points"),
        ("l2", [-torch.inf, 0.0], "returned NaN or infinite entries at 1 of 4 points"),
    ],
)
def test_a_violation_is_an_error_and_names_the_attack(scene, norm, move, said):
    net, x, y = scene
    x_adv = x.clone()
    x_adv[2] += torch.tensor(move, dtype=torch.float64)  # from (0.2, 0.5)
    with pytest.raises(AttackViolation) as caught:
        verified(net, x, y, x_adv, Ball(norm, 0.4, (0.0, 1.0)), "liar")
    assert str(caught.value).startswith(f"liar {said}")


@pytest.mark.parametrize(("excess", "allowed"), [(0.9e-5, True), (1.1e-5, False)])
def test_the_slack_is_a_relative_1e_5(excess, allowed):
    x, y = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([1])
    ball = Ball("l2", torch.tensor([0.25], dtype=torch.float64))
    x_adv = x - 0.25 * (1 + excess)
    if allowed:
        assert verified(linear([1.0], 0.0), x, y, x_adv, ball, "mine").accuracy == 1.0
    else:
        with pytest.raises(AttackViolation):
            verified(linear([1.0], 0.0), x, y, x_adv, ball, "mine")


def test_success_in_float32_alone_does_not_count():
    class Rounds(nn.Module):
        """x + 1e-9 - 1, whose 1e-9 is lost in float32."""

        def forward(self, x):
            return (x[:, 0] + 1e-9) - 1.0

    x, x_adv, y = torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.tensor([1])
    assert float(Rounds()(x_adv)) == 0.0
    result = verified(Rounds(), x, y, x_adv, Ball("l2", 1.0), "mine")
    assert result.accuracy == 1.0
    assert float(result.margin) == pytest.approx(1e-9)


def test_the_network_is_left_as_it_was_and_dropout_is_off():
    net = nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.9)).train()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        net[0].bias.zero_()
    x = torch.ones(50, 1)
    result = verified(net, x, torch.zeros(50, dtype=torch.int64), x, Ball("l2", 1.0), "mine")
    assert result.accuracy == 1.0
    assert net.training
    assert net[0].weight.dtype == torch.float32
    assert net[0].weight.requires_grad


def test_nan_margins_are_errors():
    class Root(nn.Module):
        def forward(self, x):
            return torch.sqrt(x[:, 0])

    x, y = torch.ones(1, 1), torch.tensor([1])
    with pytest.raises(AttackViolation, match="mine led to a NaN margin"):
        verified(Root(), x, y, x - 2, Ball("l2", 3.0), "mine")
    with pytest.raises(ValueError, match="net"):
        verified(Root(), x - 2, y, x - 2, Ball("l2", 3.0), "mine")


def test_points_outside_the_box_are_a_value_error(scene):
    net, x, y = scene
    with pytest.raises(ValueError, match="x must lie in the box"):
        verified(net, x, y, x, Ball("l2", 1.0, (0.0, 0.8)), "mine")


def make(radius, margin, name):
    radius = torch.tensor(radius, dtype=torch.float64)
    success = torch.isfinite(radius)
    found = torch.where(success, torch.where(radius == 0, 0, 1), -1)
    x_adv = torch.full((len(radius), 2), float(ord(name[0])))
    return AttackResult(
        x_adv, success, radius, torch.tensor(margin).double(), ("clean", name), found
    )


def test_worst_takes_the_smallest_radius_that_succeeds():
    inf = torch.inf
    first = make([0.5, inf, 0.3, 0.0, inf, 0.4], [-1, 2, -9, -1, 3, -1], "a")
    second = make([0.4, 0.6, inf, 0.0, inf, 0.4], [-1, -1, 1, -2, 2, -5], "b")
    both = worst([first, second])
    assert both.name == ("b", "b", "a", "clean", "", "a")
    assert both.radius.tolist() == [0.4, 0.6, 0.3, 0.0, inf, 0.4]
    assert both.margin.tolist() == [-1, -1, -9, -1, 2, -1]
    assert both.x_adv[:, 0].tolist() == [float(ord(c)) for c in "bbaaba"]
    assert both.accuracy == pytest.approx(1 / 6)
    swapped = worst([second, first])
    assert swapped.name == ("b", "b", "a", "clean", "", "b")
    assert torch.equal(swapped.radius, both.radius)
    assert torch.equal(worst([first]).radius, first.radius)


def test_merged_changes_the_chosen_points_only():
    inf = torch.inf
    whole = make([inf, 0.5, inf, inf], [4, -1, 3, 2], "a")
    part = make([0.2, inf], [-1, 1], "b")
    result = whole.merged(torch.tensor([3, 0]), part)
    assert result.name == ("", "a", "", "b")
    assert result.radius.tolist() == [inf, 0.5, inf, 0.2]
    assert result.margin.tolist() == [1, -1, 3, -1]
    assert whole.radius.tolist() == [inf, 0.5, inf, inf]
