"""What rounding may do to outputs and margins, against decimal arithmetic with 60 digits."""

from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor, nn

from extremal import models
from extremal.models import Explicit, Grouped, PReLUNet, Preparation, margin_range

PREPARATIONS = (
    Preparation(),
    Preparation(0.3, torch.tensor([0.5, -2.0, 0.1, 1.0])),
    Preparation(7.0, torch.tensor([0.5, -2.0, 0.1, 1.0]), 0.5),
)
KINDS = [
    (p, preparation, dtype)
    for p in (1.0, 1.7, 3.0, 6.0)
    for preparation in PREPARATIONS
    for dtype in (torch.float32, torch.float64)
]


def network(p: float, preparation: Preparation, dtype: torch.dtype, outputs: int) -> PReLUNet:
    generator = torch.Generator().manual_seed(int(10 * p) + outputs)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    sizes = 10.0 ** drawn(5, 1)
    init = Explicit(sizes * drawn(5, 4), drawn(outputs, 5), 0.3 * drawn(5), 0.3 * drawn(outputs))
    shared = {"bias": True, "hidden_bias": True, "preparation": preparation, "dtype": dtype}
    return PReLUNet(4, 5, p, outputs, init=init, generator=generator, **shared)


def exact_outputs(net: PReLUNet, x: Tensor) -> list[list[Decimal]]:
    """The outputs at points of the weights as stored."""
    with localcontext() as context:
        context.prec = 60
        return [_exact(net, [Decimal(value) for value in point]) for point in x.tolist()]


def _exact(net: PReLUNet, point: list[Decimal]) -> list[Decimal]:
    preparation, p = net.preparation, Decimal(net.p)
    center = [0.0] * len(point) if preparation.center is None else preparation.center.tolist()
    z = [
        Decimal(preparation.scale) * (value - Decimal(c))
        for value, c in zip(point, center, strict=True)
    ]
    if preparation.normalize > 0.0:
        length = sum(value * value for value in z).sqrt()
        z = [value / length ** Decimal(preparation.normalize) for value in z]
    hidden = []
    for row, offset in zip(net.neurons.tolist(), net.hidden_bias.tolist(), strict=True):
        w = [Decimal(value) for value in row]
        s = sum(a * b for a, b in zip(w, z, strict=True)) + Decimal(offset)
        size = sum(value * value for value in w).sqrt()
        shrink = size ** (p - 1) if p > 1 else 1
        hidden.append(s**p / shrink if s > 0 else Decimal(0))
    biases = net.bias.tolist()
    return [
        sum((Decimal(v) * h for v, h in zip(votes, hidden, strict=True)), Decimal(bias))
        for votes, bias in zip(net.votes.tolist(), biases, strict=True)
    ]


def ranges_with_exact_margins(net: PReLUNet, x: Tensor, y: Tensor) -> models.MarginRange:
    """The ranges at points of several outputs, once exact margins are seen to lie in them."""
    found, exact = margin_range(net, x, y), exact_outputs(net, x)
    for i, out in enumerate(exact):
        margin = out[y[i]] - max(value for t, value in enumerate(out) if t != y[i])
        assert Decimal(float(found.lowest[i])) <= margin <= Decimal(float(found.highest[i]))
    return found


@pytest.mark.parametrize(("p", "preparation", "dtype"), KINDS)
def test_exact_margins_lie_in_the_range(p, preparation, dtype, generator):
    net = network(p, preparation, dtype, outputs=3)
    x = torch.randn(20, 4, generator=generator, dtype=dtype)
    found = ranges_with_exact_margins(net, x, torch.arange(20) % 3)
    width = found.highest - found.lowest
    assert bool((width <= 2e-12 * term_sizes(net, x)).all())  # It says something.


@pytest.mark.parametrize("p", [1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_votes_that_are_neighbours_are_told_apart(p, dtype, generator):
    net = network(p, Preparation(), dtype, outputs=3)
    units = torch.randint(-3, 4, (2, 5), generator=generator) * torch.finfo(dtype).eps
    net.votes.data[1:] = net.votes.data[0] * (1.0 + units).to(dtype)
    net.bias.data.zero_()
    x = torch.randn(40, 4, generator=generator, dtype=dtype)
    found = ranges_with_exact_margins(net, x, torch.arange(40) % 3)
    assert int(found.tie.sum()) <= 4


def test_what_neurons_without_weights_say_is_a_sum():
    """For p = 1 three of them add .1 + .2 - .3, which rounding decides; one alone is exact."""
    net = network(1.0, Preparation(), torch.float64, outputs=2)
    net.neurons.data.zero_()
    net.hidden_bias.data = torch.tensor([0.1, 0.2, 0.3, -1.0, -1.0], dtype=torch.float64)
    net.votes.data = torch.tensor([[1.0, 1.0, -1.0, 5.0, 5.0], [0.0] * 5], dtype=torch.float64)
    net.bias.data.zero_()
    x = torch.zeros(2, 4, dtype=torch.float64)
    found = ranges_with_exact_margins(net, x, torch.tensor([0, 1]))
    assert found.tie.tolist() == [True, True]
    net.votes.data[0, :2] = 0.0
    found = ranges_with_exact_margins(net, x, torch.tensor([0, 1]))
    assert found.broken.tolist() == [True, False]
    assert found.right.tolist() == [False, True]


@pytest.mark.parametrize(("p", "preparation", "dtype"), KINDS)
def test_outputs_as_run_are_as_near_the_exact_ones_as_is_said(p, preparation, dtype, generator):
    net = network(p, preparation, dtype, outputs=2)
    x = torch.randn(20, 4, generator=generator, dtype=dtype)
    radius = torch.full((20,), 0.1, dtype=torch.float64)
    step = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    inside = x + (0.09 * step / torch.linalg.vector_norm(step, dim=1, keepdim=True)).to(dtype)
    rounding = models.shallow_rounding(net, dtype)
    for points, far in ((x, torch.zeros_like(radius)), (inside, radius)):
        said = rounding.near(x, prepared=True).outputs(far)
        with torch.no_grad():
            run = net(points).tolist()
        for i, out in enumerate(exact_outputs(net, points)):
            for o, value in enumerate(out):
                assert abs(Decimal(run[i][o]) - value) <= Decimal(float(said[i, o]))
    at_points = rounding.near(x, prepared=True).outputs(torch.zeros_like(radius))
    most = 5000 * torch.finfo(dtype).eps * term_sizes(net, x)
    assert bool((at_points <= most.unsqueeze(1)).all())


def term_sizes(net: PReLUNet, x: Tensor) -> Tensor:
    """What the terms of the largest output add up to at most, (n,)."""
    form = models.as_two_layer_form(net)
    length = torch.linalg.vector_norm(form.preparation(x.double()), dim=1, keepdim=True)
    powers = (length + form.all_offsets.abs()) ** form.p
    return (powers @ form.weights.abs().T + form.constant.abs()).amax(1)


def tied(votes: list[list[float]], p: float, dtype: torch.dtype = torch.float64) -> PReLUNet:
    """Neurons along the axes, with these votes."""
    v = torch.tensor(votes)
    init = Explicit(torch.eye(v.shape[1]), v)
    return PReLUNet(
        v.shape[1], v.shape[1], p, len(votes), init=init, dtype=dtype, generator=torch.Generator()
    )


@pytest.mark.parametrize("p", [1.0, 2.5, 6.0])
def test_equal_outputs_are_broken_and_lost_digits_are_ties(p):
    net = tied([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], p)
    x = torch.tensor(
        [[0.7, -0.1, -0.1], [0.7, 0.2, -1.0], [-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [0.7, 0.2, 0.2]]
    ).double()
    found = margin_range(net, x, torch.zeros(5).long())
    # Only a neuron with the same vote for both speaks; none does; at the centre.
    assert found.broken.tolist() == [True, False, True, True, False]
    assert found.right.tolist() == [False, True, False, False, False]
    assert found.tie.tolist() == [False, False, False, False, True]


def test_a_single_output_and_groups_are_judged_alike():
    net = tied([[1.0, -1.0]], 3.0)
    x = torch.tensor([[0.5, 0.1], [0.1, 0.5], [-1.0, -1.0]]).double()
    assert margin_range(net, x, torch.ones(3).long()).right.tolist() == [True, False, False]
    two = tied([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 3.0)
    grouped = Grouped(two, torch.tensor([0, 1, 0]))
    assert margin_range(grouped, x, torch.zeros(3).long()).broken.tolist() == [False, True, True]


def test_labels_and_points_that_do_not_fit_are_refused():
    three, one = tied([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], 3.0), tied([[1.0, -1.0]], 3.0)
    x = torch.ones(2, 2, dtype=torch.float64)
    for net, y in ((three, [0, 3]), (three, [-1, 1]), (one, [0, 1])):
        with pytest.raises(ValueError, match=r"^y must"):
            margin_range(net, x, torch.tensor(y))
    with pytest.raises(ValueError, match=r"^x must"):
        margin_range(three, x[:, :1], torch.zeros(2).long())


def test_other_networks_are_taken_at_their_word():
    class Linear(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1)

    found = margin_range(Linear(), torch.tensor([[1.0, -1.0], [1.0, 0.0]]), torch.ones(2).long())
    assert found.broken.tolist() == [True, False]
    assert found.right.tolist() == [False, True]


def test_a_neuron_against_that_may_speak_up_does_not_save_a_class():
    """The own neuron is silent, the other one exactly at its kink, as far as float64 can tell."""
    net = tied([[1.0, -1.0]], 1.0)
    x = torch.tensor([[-0.5, 0.0], [-0.5, 1e-300], [0.0, -0.5]]).double()
    assert margin_range(net, x, torch.ones(3).long()).broken.tolist() == [True, True, False]
    assert margin_range(net, x, -torch.ones(3).long()).right.tolist() == [False, False, False]


def test_a_power_that_underflows_is_a_tie():
    net = tied([[1.0, 0.0], [0.0, 1.0]], 10.0)
    x = torch.tensor([[1e-40, -1.0]], dtype=torch.float64)
    assert margin_range(net, x, torch.zeros(1).long()).tie.tolist() == [True]
