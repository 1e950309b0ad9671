"""Neurons that nearly cancel: what rounding hides of a gradient must not be certified away."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import run
from extremal.certify import certificate, radius
from extremal.models import Explicit, PReLUNet, from_torch

D = torch.float64
BIASES = ("hidden", "output")
TINY = 1e-8  # between two neurons; its square is lost in a product of 1


def cancelling(constant: str) -> tuple[PReLUNet, torch.Tensor]:
    """f(x) = 4e-9 - 1e-8 x_2 near the point that is returned, whose radius is 0.4."""
    neurons = torch.tensor([[1.0, 0.0], [1.0, TINY]], dtype=D)
    votes = torch.tensor([[1.0, -1.0]], dtype=D)
    hidden, bias, x = None, torch.tensor([4e-9], dtype=D), torch.tensor([[1.0, 0.0]], dtype=D)
    if constant == "hidden":
        hidden, bias, x = torch.tensor([1.0 + 4e-9, 1.0], dtype=D), None, torch.zeros(1, 2).to(D)
    net = PReLUNet(
        2,
        2,
        1.0,
        bias=bias is not None,
        hidden_bias=hidden is not None,
        init=Explicit(neurons, votes, hidden, bias),
        dtype=D,
        generator=torch.Generator(),
    )
    return net, x


CASES = [(constant, norm, "fast") for constant in BIASES for norm in ("l2", "linf", "l1")] + [
    ("hidden", "l2", "tight"),
    ("output", "l2", "tight"),
    ("hidden", "linf", "tight"),
    ("output", "l1", "tight"),
]


@pytest.mark.parametrize(("constant", "norm", "effort"), CASES)
def test_a_gradient_that_cancels_is_no_proof(constant, norm, effort):
    net, x = cancelling(constant)
    y = torch.tensor([1])
    broken = x + torch.tensor([[0.0, 0.9]], dtype=D)
    assert float(net(broken).detach()) < 0
    for attacked in (None, broken):
        found = radius(net, x, y, norm=norm, effort=effort, attacked=attacked)
        assert float(found) <= 0.4 * (1 + 1e-6)


def test_a_constant_network_is_never_broken():
    """All neurons are zero, and the output bias decides."""
    neurons, votes = torch.zeros(5, 6, dtype=D), torch.ones(1, 5, dtype=D)
    init = Explicit(neurons, votes, None, torch.ones(1, dtype=D))
    net = PReLUNet(6, 5, 3.0, bias=True, init=init, dtype=D, generator=torch.Generator())
    x, y = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=D), torch.ones(4)
    for norm in ("l2", "linf", "l1"):
        assert bool((certificate(net, x, y.long(), norm=norm).radius > 100.0).all())
        found = run(net, x, y.long(), norm=norm, radius=50.0, generator=torch.Generator())
        assert not bool(found.success.any())


def test_one_column_of_outputs_is_refused_by_name_or_read_as_one_output(generator):
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    x, y = torch.randn(5, 6, generator=generator), torch.ones(5).long()
    with pytest.raises(ValueError, match=r"net\(x\) must have shape \(n,\) for one output"):
        run(module, x, y, radius=0.5, generator=generator)
    read = from_torch(module)  # what can be done instead, and what certificates do by themselves
    assert tuple(read(x).shape) == (5,)
    assert torch.equal(certificate(module, x, y).radius, certificate(read, x, y).radius)
