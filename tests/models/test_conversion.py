"""Networks from elsewhere compute what they computed there."""

from __future__ import annotations

import os
from copy import deepcopy

import pytest
import torch
from torch import nn

from extremal.certify import radius
from extremal.models import (
    Explicit,
    Kaiming,
    PReLUNet,
    Preparation,
    from_authors,
    from_torch,
    rescaled,
)


def authors_output(state, x, p):
    """The formula of the paper's Section 5.2 with the code's normalisation, in plain steps."""
    z = x - state["center"]
    w = state["prelulayer.W"]  # (D, h)
    power = torch.relu(z @ w) ** p
    norms = w.norm(dim=0) ** (p - 1) * z.norm(dim=1, keepdim=True) ** (p - 1)
    return power / norms @ state["output_net.weight"].T + state["output_net.bias"]


@pytest.fixture
def state(generator):
    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "center": draw(1, 6),
        "prelulayer.W": draw(6, 9),
        "output_net.weight": draw(3, 9),
        "output_net.bias": draw(3),
    }


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_a_checkpoint_of_the_authors_code(tmp_path, state, p, generator):
    torch.save(state, tmp_path / "net.pt")
    net = from_authors(tmp_path / "net.pt", p=p)
    x = torch.randn(20, 6, generator=generator)
    assert (net.dim, net.width, net.outputs, net.p) == (6, 9, 3, p)
    torch.testing.assert_close(net(x), authors_output(state, x, p), rtol=1e-5, atol=1e-5)
    assert torch.equal(net(state["center"]), state["output_net.bias"][None])  # as we define it


def test_a_checkpoint_with_code_in_it_is_refused_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"center": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="path must be a checkpoint of tensors"):
        from_authors(tmp_path / "evil.pt", p=2)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"center": None}, "got no center"),
        ({"prelulayer.W": torch.zeros(9, 6)}, r"got \(1, 6\), \(9, 6\)"),
        ({"output_net.bias": torch.zeros(4)}, r"\(3, 9\), \(4,\)"),
        ({"center": torch.zeros(6)}, r"got \(6,\)"),
        ({"output_net.bias": torch.full((3,), torch.nan)}, r"output_net\.bias must .*finite"),
    ],
)
def test_another_state_is_refused(tmp_path, state, change, seen):
    torch.save(state | change, tmp_path / "net.pt")
    with pytest.raises(ValueError, match=seen):
        from_authors(tmp_path / "net.pt", p=2)


def test_other_files_are_refused(tmp_path, state):
    (tmp_path / "text.pt").write_text("weights")
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    torch.save(state, tmp_path / "net.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "net.pt").read_bytes()[:300])
    for name in ("none.pt", "text.pt", "cut.pt"):
        with pytest.raises(
            ValueError, match=rf"path must be a checkpoint of tensors, got .*{name}"
        ):
            from_authors(tmp_path / name, p=2)
    with pytest.raises(ValueError, match=r"hold a state dict of .* got Tensor"):
        from_authors(tmp_path / "tensor.pt", p=2)
    with pytest.raises(ValueError, match="p must be"):
        from_authors(tmp_path / "net.pt", p=0.5)


def test_a_spoilt_pickle_is_one_clear_error(tmp_path, state):
    """Bytes changed one at a time, in PyTorch's older form: unpickling then raises all kinds."""
    torch.save(state, tmp_path / "net.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "net.pt").read_bytes()
    spoilt, refused = tmp_path / "spoilt.pt", []
    for at in range(0, len(content), 2):
        spoilt.write_bytes(content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :])
        try:
            from_authors(spoilt, p=2)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert not any("\n" in told for told in refused)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_relu_network_of_pytorch(biased, outputs, generator):
    first, last = nn.Linear(7, 11, bias=biased), nn.Linear(11, outputs, bias=biased)
    module = nn.Sequential(nn.Flatten(), first, nn.Dropout(0.5), nn.ReLU(), last).eval()
    for weights in module.parameters():  # PyTorch draws them from a state that other tests change.
        nn.init.uniform_(weights, -0.4, 0.4, generator=generator)
    net = from_torch(module)
    x = torch.randn(30, 7, generator=generator)
    out = module(x)
    expected = out.squeeze(1) if outputs == 1 else out
    torch.testing.assert_close(net(x), expected, rtol=1e-5, atol=1e-6)
    first.weight.data.zero_()
    torch.testing.assert_close(net(x), expected, rtol=1e-5, atol=1e-6)
    y = torch.where(net(x) > 0, 1, -1) if outputs == 1 else net(x).argmax(1)
    assert bool((radius(net, x, y, effort="fast") > 0).all())


def test_other_modules_are_refused():
    linear = nn.Linear(3, 3)
    deep = nn.Sequential(linear, nn.ReLU(), linear, nn.ReLU(), linear)
    for module, seen in (
        (linear, "Linear"),
        (deep, "Linear, ReLU, Linear, ReLU, Linear"),
        (nn.Sequential(linear, nn.Tanh(), linear), "Linear, Tanh, Linear"),
    ):
        with pytest.raises(ValueError, match=rf"module must be nn\.Sequential of .* got {seen}"):
            from_torch(module)
    uneven = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    with pytest.raises(ValueError, match="on both sides, got 4 and 5"):
        from_torch(uneven)


CENTER = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64)


def in_other_units(p, generator, **settings):
    return PReLUNet(
        4, 7, p, 3, bias=True, init=Kaiming(), dtype=torch.float64, generator=generator, **settings
    )


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("hidden_bias", [False, True])
def test_units_of_each_coordinate_become_part_of_the_weights(p, hidden_bias, generator):
    net = in_other_units(p, generator, hidden_bias=hidden_bias)
    scale = torch.tensor([0.1, 2.0, 5.0, 0.0], dtype=torch.float64)
    found = rescaled(net, CENTER, scale)
    x = 3.0 * torch.randn(20, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(found(x), net(scale * (x - CENTER)), rtol=1e-12, atol=1e-12)
    assert found.preparation.scale == 1.0


@pytest.mark.parametrize("p", [1.0, 3.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("normalize", [0.0, 0.5])
def test_neurons_on_coordinates_of_scale_0_stay_as_constants(p, bias, normalize, generator):
    net = PReLUNet(
        4,
        9,
        p,
        3,
        bias=bias,
        hidden_bias=True,
        preparation=Preparation(normalize=normalize),
        init=Kaiming(),
        generator=generator,
    )
    with torch.no_grad():
        net.hidden_bias.copy_(torch.linspace(-1.0, 2.0, 9))
        net.neurons[2:7, :2] = 0.0
        net.neurons[6] = 0.0
    scale = torch.tensor([1.5, 1.5, 0.0, 0.0], dtype=torch.float64)
    x = 3.0 * torch.randn(50, 4, generator=generator, dtype=torch.float64)
    if normalize > 0:
        x[:, 2:] = CENTER[2:]
    expected = deepcopy(net).double()(scale * (x - CENTER))
    torch.testing.assert_close(rescaled(net, CENTER, scale)(x), expected, rtol=1e-12, atol=1e-12)
    uncentred = deepcopy(net).double()(scale * (x - 0.0))
    if normalize == 0:
        torch.testing.assert_close(rescaled(net, None, scale)(x), uncentred, rtol=1e-12, atol=1e-12)


def test_the_constant_of_a_lost_neuron_by_hand():
    one = torch.ones(1, 1, dtype=torch.float64)
    init = Explicit(torch.tensor([[1.0, 0.0]]), one, one[0])
    net = PReLUNet(2, 1, 3.0, hidden_bias=True, init=init, generator=torch.Generator())
    found = rescaled(net, None, torch.tensor([0.0, 1.0]))
    assert found(torch.tensor([[5.0, -7.0]], dtype=torch.float64)).tolist() == [1.0]


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_a_network_that_normalises_takes_one_unit(p, generator):
    net = in_other_units(p, generator, preparation=Preparation.for_power(p))
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    one = torch.full((4,), 1.7, dtype=torch.float64)
    torch.testing.assert_close(rescaled(net, CENTER, one)(x), net(one * (x - CENTER)))
    with pytest.raises(ValueError, match=r"scale must be >= 0, got entry -1"):
        rescaled(net, CENTER, -one / 1.7)
    with pytest.raises(ValueError, match=r"center must be .* of shape \(4,\)"):
        rescaled(net, CENTER[:3], one)
    if p > 1.0:
        with pytest.raises(ValueError, match="scale must be one number where the network norm"):
            rescaled(net, CENTER, one + CENTER.abs())
    with pytest.raises(ValueError, match="net must have a preparation without scale and center"):
        rescaled(rescaled(net, CENTER, one), CENTER, one)
