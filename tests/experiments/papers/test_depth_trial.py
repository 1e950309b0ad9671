"""The study of depth: what networks it compares, and on what points."""

import pytest
import torch

from extremal.data import Dataset
from extremal.experiments import get
from extremal.experiments.papers.open_questions.depth_trial import _data, network
from extremal.experiments.papers.open_questions.depth_trial import trial as depth
from extremal.models import Gaussian, PReLUNet

TRIALS = get("open-questions/depth").trials("smoke")
BASE = dict(TRIALS[1].params)  # p = 3


def g(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_dense_twin_is_a_relu_network_without_hidden_biases():
    learn = Dataset(torch.rand(6, 5, generator=g()), torch.tensor([0, 1, 2, 0, 1, 2]))
    net = network(BASE | {"p": 1.0, "layers": 3, "width": 4, "normalize": "input"}, learn, g())
    x = torch.rand(7, 5, generator=g())
    h = x
    for layer in net.layers:
        h = torch.relu(h @ layer.neurons.T)
    torch.testing.assert_close(net(x), h @ net.readout.weight.T + net.readout.bias)
    assert net(x).shape == (7, 3)


def test_a_twin_may_be_normalised_and_may_start_small():
    learn = Dataset(torch.rand(6, 5, generator=g()), torch.tensor([0, 1, 2, 0, 1, 2]))
    given = BASE | {"p": 1.0, "layers": 2, "width": 4, "normalize": "output", "init": 1e-3}
    net = network(given, learn, g())
    h = torch.relu(learn.x @ net.layers[0].neurons.T)
    h = torch.relu(h / h.norm(dim=1, keepdim=True) @ net.layers[1].neurons.T)
    torch.testing.assert_close(net.hidden(learn.x), h / h.norm(dim=1, keepdim=True))
    assert 0.0 < float(net.layers[0].neurons.detach().abs().max()) < 0.01


def test_the_control_is_the_network_of_the_papers():
    learn = Dataset(torch.rand(6, 5, generator=g()), torch.tensor([-1, 1, 1, -1, 1, -1]))
    net = network(BASE | {"network": "shallow", "init": 1e-2, "width": 4}, learn, g())
    drawn = PReLUNet(5, 4, BASE["p"], init=Gaussian(1e-2), generator=g())
    assert torch.equal(net.neurons, drawn.neurons)
    assert net.bias is None


def test_longer_attacks_are_of_networks_whose_structure_is_not_known():
    control = next(trial for trial in TRIALS if trial.params["network"] == "shallow")
    assert "longer_share" not in depth(control.params, g()).numbers
    assert 0.0 < depth(BASE | {"longer_points": 1}, g()).numbers["longer_share"] <= 1.0


def test_convolutions_double_their_channels():
    learn = Dataset(torch.rand(4, 64, generator=g()), torch.tensor([0, 1, 2, 3]))
    given = BASE | {"network": "conv", "problem": "digits", "layers": 3, "width": 2}
    net = network(given, learn, g())
    assert [len(layer.weight) for layer in net.layers] == [2, 4, 8]
    assert net(learn.x).shape == (4, 4)


def test_images_lose_their_mean_and_the_box_moves_with_them():
    learn, test = _data(BASE | {"problem": "digits", "train_points": 200}, g())
    assert float(learn.x.mean(0).abs().max()) < 1e-6
    low, high = test.box
    assert torch.equal(learn.box[0], low)
    torch.testing.assert_close(high - low, torch.ones(64))
    pixels = (test.x - low) * 16.0
    torch.testing.assert_close(pixels, pixels.round(), atol=1e-4, rtol=0)


def test_a_trial_is_the_same_again_and_its_curve_falls():
    numbers = [depth(BASE, g(1)).numbers for _ in range(2)]
    assert numbers[0] == numbers[1]
    curve = numbers[0]["robust_accuracy"]
    assert curve == sorted(curve, reverse=True)


@pytest.mark.parametrize(("name", "value"), [("network", "wavelet"), ("problem", "svhn")])
def test_unknown_names_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        depth(BASE | {name: value}, g())
