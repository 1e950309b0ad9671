"""Adam against PyTorch's own on autograd, and the recipe of the image networks."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.models import PReLUNet, Preparation
from extremal.train import Loss, Record, adam, mnist_network, mnist_recipe, total_loss
from tests.train.flow_problem import Twin, largest_difference, problem

PREPARATIONS = {
    "plain": Preparation(),
    "authors": Preparation.for_power(3.0, center=torch.tensor([0.3, -0.2, 0.1])),
    "scaled": Preparation(scale=0.5, normalize=1.0),
}
FROZEN = ((), ("neurons",), ("votes", "bias"), ("hidden_bias",))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prepared(net: PReLUNet, preparation: Preparation) -> PReLUNet:
    net.preparation = preparation.map(lambda part: part.to(net.neurons.dtype))
    return net


def z_of(x: Tensor, preparation: Preparation) -> Tensor:
    """The preparation, from its definition."""
    center = 0.0 if preparation.center is None else preparation.center
    z = preparation.scale * (x - center)
    return z / z.norm(dim=1, keepdim=True) ** preparation.normalize


def by_torch(
    twin: nn.Module, x: Tensor, y: Tensor, loss: Loss, lr: float, batch: int, steps: int
) -> None:
    """The plain loop: shuffle, forward, backward, torch.optim.Adam."""
    optimiser = torch.optim.Adam([q for q in twin.parameters() if q.requires_grad], lr=lr)
    generator, order = seeded(), []
    for _ in range(steps):
        order = order or list(torch.randperm(len(x), generator=generator).split(batch))
        index = order.pop(0)
        optimiser.zero_grad()
        loss.value(twin(x[index]), y[index]).backward()
        optimiser.step()


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda names: "-".join(names) or "none")
@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_adam_is_torch_s(p, outputs, preparation, frozen):
    net, data = problem(p, outputs=outputs, biases=True)
    before = copy.deepcopy(prepared(net, PREPARATIONS[preparation]).freeze(*frozen))
    twin = Twin(net)
    loss = Loss("logistic" if outputs == 1 else "cross-entropy")
    by_torch(twin, z_of(data.x, net.preparation), data.y, loss, 0.02, 4, 25)
    run = adam(net, data, loss=loss, lr=0.02, batch=4, steps=25, generator=seeded())
    assert largest_difference(net, twin) < 1e-11
    assert run.times.tolist() == [0.0, 25.0]
    assert float(run.values["loss"][-1]) == pytest.approx(total_loss(net, data, loss), rel=1e-12)
    for name, part in net.named_parameters():
        assert torch.equal(part, before.get_parameter(name)) == (name in frozen), name
        assert part.grad is None


def test_adam_on_any_module_is_torch_s():
    _, data = problem(2.0, outputs=3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    net[0].bias.requires_grad_(False)
    twin = copy.deepcopy(net)
    by_torch(twin, data.x, data.y, Loss("cross-entropy"), 0.02, 4, 25)
    adam(net, data, lr=0.02, batch=4, steps=25, generator=seeded())
    assert largest_difference(net, twin) < 1e-13


def test_the_first_step_is_lr_in_the_sign_of_the_gradient():
    # m' = g and s' = g^2 at t = 1, so that theta moves by lr g / (|g| + 1e-8).
    net, data = problem(2.0, outputs=3)
    before = copy.deepcopy(net)
    adam(net, data, lr=0.25, batch=len(data), steps=1, generator=seeded())
    moved = net.neurons - before.neurons
    assert torch.allclose(moved.abs(), torch.tensor(0.25, dtype=torch.float64), rtol=1e-5)


def test_epochs_are_steps_and_a_short_last_batch_counts():
    (one, data), (other, _) = problem(3.0, outputs=3), problem(3.0, outputs=3)
    settings = {"lr": 0.01, "batch": 4, "generator": seeded()}
    run = adam(one, data, epochs=5, record=Record(at=(3.0,)), **settings)
    assert run.times.tolist() == [0.0, 3.0, 15.0]  # 11 points: batches of 4, 4 and 3
    adam(other, data, steps=15, **settings | {"generator": seeded()})
    assert largest_difference(one, other) == 0.0


def test_float32_to_the_bit_by_the_seed():
    nets = []
    for seed in (5, 5, 6):
        net, data = problem(3.0, outputs=3, biases=True, dtype=torch.float32)
        prepared(net, PREPARATIONS["authors"])
        adam(net, data, lr=0.01, batch=3, epochs=9, generator=seeded(seed))
        nets.append(net)
    assert largest_difference(nets[0], nets[1]) == 0.0
    assert largest_difference(nets[0], nets[2]) > 0.0


def test_the_preparation_stays_with_the_network():
    net, data = problem(3.0, outputs=3)
    own = prepared(net, PREPARATIONS["authors"]).preparation
    x = data.x.clone()
    adam(net, data, batch=4, epochs=1, generator=seeded())
    assert net.preparation is own
    assert torch.equal(data.x, x)


def test_progress_is_told():
    net, data = problem(2.0, outputs=3)
    told = []
    settings = {"batch": 4, "epochs": 2, "generator": seeded()}
    adam(net, data, progress=lambda *said: told.append(said), **settings)
    assert told == [("adam", k, 6) for k in range(1, 7)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "steps must be given, or epochs, and not both, got None and None"),
        ({"steps": 1, "epochs": 1}, "steps must be given, or epochs, and not both, got 1 and 1"),
        ({"epochs": 0}, "epochs must be an integer >= 1"),
        ({"steps": 1.5}, "steps must be an integer >= 1"),
        ({"steps": 1, "batch": 12}, "batch must be at most 11 points"),
        ({"steps": 1, "batch": 0}, "batch must be an integer >= 1"),
        ({"steps": 1, "progress": 3}, "progress must be True, False or a function"),
        ({"steps": 1, "generator": 3}, "generator must be a torch.Generator"),
    ],
)
def test_bad_input_trains_nothing(change, message):
    net, data = problem(2.0, outputs=3)
    before = copy.deepcopy(net)
    with pytest.raises(ValueError, match=message):
        adam(net, data, **{"batch": 4, "generator": seeded()} | change)
    assert largest_difference(net, before) == 0.0


def images(count: int, dim: int = 6) -> Dataset:
    x = torch.rand(count, dim, generator=seeded(3))
    return Dataset(x, (x[:, 0] > x[:, 1]).long() + (x[:, 2] > 0.5).long(), box=(0.0, 1.0))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 4.0])
def test_the_recipe_s_network_is_the_authors(p):
    data = images(40)
    net = mnist_network(p, data, width=7, outputs=3, generator=seeded())
    assert torch.allclose(net.preparation.center, data.x.mean(0), rtol=1e-6)
    assert net.hidden_bias is None
    assert net.bias is not None
    bounds = {"neurons": math.sqrt(6 / 7), "votes": 1 / math.sqrt(7), "bias": 1 / math.sqrt(7)}
    for name, bound in bounds.items():
        largest = float(net.get_parameter(name).detach().abs().max())
        assert 0.5 * bound < largest <= bound * (1 + 1e-6), name
    z = (data.x - data.x.mean(0)).double()
    w, norm = net.neurons.detach().double(), z.norm(dim=1, keepdim=True)
    hidden = torch.relu(z @ w.T) ** p / (w.norm(dim=1) * norm) ** (p - 1)
    wanted = hidden @ net.votes.detach().double().T + net.bias.detach().double()
    assert torch.allclose(net(data.x).detach().double(), wanted, rtol=1e-4, atol=1e-5)


def test_the_recipe_trains_by_adam_on_cross_entropy():
    data = images(40)
    settings = {"width": 7, "outputs": 3}
    generator = seeded()
    net = mnist_network(3.0, data, **settings, generator=generator)
    start = total_loss(net, data, Loss("cross-entropy"))
    adam(net, data, lr=1e-3, batch=10, epochs=60, generator=generator)
    same = mnist_recipe(3.0, data, **settings, epochs=60, batch=10, generator=seeded())
    assert largest_difference(net, same) == 0.0
    assert total_loss(same, data, Loss("cross-entropy")) < start


def test_the_recipe_wants_labels_of_its_outputs():
    with pytest.raises(ValueError, match=r"train\.y must lie in 0\.\.1 for 2 outputs"):
        mnist_recipe(3.0, images(40), outputs=2, batch=10, generator=seeded())
    with pytest.raises(ValueError, match="train must be a Dataset, got str"):
        mnist_recipe(3.0, "mnist", generator=seeded())
