"""The network written out from its definition, and small problems, which several tests share."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torchdiffeq import odeint

from extremal.data import Dataset
from extremal.models import Explicit, Gaussian, PReLUNet
from extremal.train import Loss


class Twin(nn.Module):
    """f(x) = sum_j votes_j relu(<x, w_j> + b_j)^p / ||w_j||^(p-1) + bias, left to autograd."""

    def __init__(self, net: PReLUNet) -> None:
        super().__init__()
        self.p = net.p
        for name, part in net.named_parameters():
            copied = nn.Parameter(part.detach().clone(), requires_grad=part.requires_grad)
            self.register_parameter(name, copied)

    def forward(self, x: Tensor) -> Tensor:
        s = x @ self.neurons.T + getattr(self, "hidden_bias", 0.0)
        hidden = torch.relu(s) ** self.p / self.neurons.norm(dim=1) ** (self.p - 1.0)
        out = hidden @ self.votes.T + getattr(self, "bias", 0.0)
        return out.squeeze(1) if len(self.votes) == 1 else out


def problem(
    p: float,
    *,
    outputs: int = 1,
    biases: bool = False,
    std: float = 0.5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[PReLUNet, Dataset]:
    """A network of 5 neurons in 3 dimensions with 11 random points (no power of two)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(11, 3, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.arange(11) % max(outputs, 2)
    data = Dataset(x, 2 * y - 1 if outputs == 1 else y)
    settings = {"bias": biases, "hidden_bias": biases, "dtype": dtype, "generator": generator}
    return PReLUNet(3, 5, p, outputs, init=Gaussian(std), **settings), data


def one_neuron(p: float, size: float) -> tuple[PReLUNet, Dataset]:
    """The neuron w = size x, v = size on the single point x with ||x|| = 1 and label +1."""
    x = torch.tensor([[0.48, -0.6, 0.64]], dtype=torch.float64)
    init = Explicit(size * x, torch.full((1, 1), size, dtype=torch.float64))
    net = PReLUNet(3, 1, p, init=init, dtype=torch.float64, generator=torch.Generator())
    return net, Dataset(x, torch.tensor([1]))


def library_flow(net: PReLUNet, data: Dataset, loss: Loss, times: Sequence[float]) -> list[Twin]:
    """Twins at the times of theta' = -grad L(theta), by another library's order-8 method."""
    twin = Twin(net)
    parts = [part for part in twin.parameters() if part.requires_grad]

    def side(_: Tensor, theta: Tensor) -> Tensor:
        vector_to_parameters(theta, parts)
        with torch.enable_grad():
            gradient = torch.autograd.grad(loss.value(twin(data.x), data.y), parts)
        return -parameters_to_vector(gradient)

    start = parameters_to_vector(parts).detach().clone()
    at = torch.tensor([0.0, *times], dtype=torch.float64)
    found = odeint(side, start, at, method="dopri8", rtol=1e-10, atol=1e-12)
    twins = []
    for state in found[1:]:
        vector_to_parameters(state, parts)
        twins.append(copy.deepcopy(twin))
    return twins


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between parameters of one name."""
    parts = dict(other.named_parameters())
    return max(
        float((part.detach() - parts[name].detach()).abs().max())
        for name, part in one.named_parameters()
    )
