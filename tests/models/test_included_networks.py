"""Networks that come with the package: loaded by name, as their card says."""

import json
import re

import pytest
import torch

from extremal import models
from extremal.models.model_files import included_file
from tests.data.test_named_datasets import fetched
from tools import networks

NAMES = [f"{name}-p{p}" for name in ("fashion-mnist", "mnist") for p in (1, 2, 3, 4)]


def test_all_of_them_are_there():
    assert models.included_networks() == tuple(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_the_recipes_network(name):
    net = models.load(name)
    assert isinstance(net, models.PReLUNet)
    assert (net.dim, net.width, net.outputs, net.p) == (784, 500, 10, float(name[-1]))
    assert net.neurons.dtype == net.preparation.center.dtype == torch.float32
    assert included_file(name).stat().st_size < 1e6
    assert net.preparation.normalize == pytest.approx((net.p - 1) / net.p)


def test_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = models.PReLUNet(3, 2, generator=torch.Generator().manual_seed(0))
    own.save("mnist-p3")
    assert models.load("mnist-p3").dim == 3


def test_an_unknown_name_lists_them():
    with pytest.raises(ValueError, match=r"existing model file, or one of fashion-mnist-p1, .*p4"):
        models.load("mnist-p9")


def test_images_in_255ths_give_the_outputs_of_those_in_256ths():
    generator = torch.Generator().manual_seed(0)
    center = torch.rand(5, dtype=torch.float64, generator=generator)
    net = models.PReLUNet(
        5,
        4,
        3.0,
        3,
        preparation=models.Preparation.for_power(3.0, center=center),
        init=models.Kaiming(),
        dtype=torch.float64,
        generator=generator,
    )
    levels = torch.randint(256, (6, 5), generator=generator).double()
    before = net(levels / 256).detach()
    assert torch.allclose(networks.in_255ths(net)(levels / 255), before, rtol=1e-12)


def test_the_card_tells_the_stored_numbers():
    numbers = json.loads(networks.NUMBERS.read_text())
    assert sorted(numbers) == NAMES
    text = included_file("x").with_name("README.md").read_text()
    assert text == networks.card(numbers)
    for name, found in numbers.items():
        row = re.search(rf"\| `{name}` \|(.*)\|", text)
        assert row is not None
        assert f"{found['clean']:.3f}" in row[1]
        assert 0 <= found["certified l2 1"] <= found["attacked l2 1"] + 0.05 < found["clean"]


@pytest.mark.fetch
def test_accuracy_on_the_official_test_set():
    numbers = json.loads(networks.NUMBERS.read_text())
    test = fetched("mnist")[1]
    for name in NAMES[4:]:
        right = models.load(name)(test.x).argmax(1) == test.y
        assert float(right.double().mean()) == pytest.approx(numbers[name]["clean"], abs=1e-3)
