"""The ResNet: its arithmetic against plain calls of torch's functions, and what it refuses."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from extremal.data import DataError
from extremal.models import features
from extremal.models.image_features.frozen_networks import (
    RESNET_50_BLOCKS,
    RESNET_101_BLOCKS,
    RESNET_152_BLOCKS,
    FrozenResNet,
    load_resnet,
)

BLOCKS = (1, 2)  # stages of one and of two bottlenecks
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def norm_state(name, count, g):
    return {
        f"{name}.weight": torch.rand(count, generator=g) + 0.5,
        f"{name}.bias": 0.3 * torch.randn(count, generator=g),
        f"{name}.running_mean": 0.3 * torch.randn(count, generator=g),
        f"{name}.running_var": torch.rand(count, generator=g) + 0.1,
        f"{name}.num_batches_tracked": torch.tensor(7),
    }


def random_state(blocks=BLOCKS, stem=6, planes=4, expand=2, seed=0, dtype=torch.float32):
    """Weights with torchvision's names; stage k has planes 2^k inside, `expand` times that out."""
    g = torch.Generator().manual_seed(seed)
    state = {"conv1.weight": torch.randn(stem, 3, 7, 7, generator=g) / 12}
    state |= norm_state("bn1", stem, g)
    here = stem
    for stage, count in enumerate(blocks):
        inner, out = planes * 2**stage, expand * planes * 2**stage
        for turn in range(count):
            place = f"layer{stage + 1}.{turn}."
            shapes = {"1": (inner, here, 1, 1), "2": (inner, inner, 3, 3), "3": (out, inner, 1, 1)}
            for number, shape in shapes.items():
                scale = (2 / (shape[1] * shape[2] ** 2)) ** 0.5
                state[f"{place}conv{number}.weight"] = scale * torch.randn(shape, generator=g)
                state |= norm_state(f"{place}bn{number}", shape[0], g)
            if turn == 0:
                weight = torch.randn(out, here, 1, 1, generator=g) / here**0.5
                state[f"{place}downsample.0.weight"] = weight
                state |= norm_state(f"{place}downsample.1", out, g)
            here = out
    state |= {"fc.weight": torch.zeros(10, here), "fc.bias": torch.zeros(10)}
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}


def plain(state, images):
    """The two-stage network of `BLOCKS`, one call after another."""

    def conv(x, name, norm, stride=1, around=0):
        x = functional.conv2d(x, state[f"{name}.weight"], stride=stride, padding=around)
        mean, var = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        weight, bias = state[f"{norm}.weight"], state[f"{norm}.bias"]
        return functional.batch_norm(x, mean, var, weight, bias, training=False, eps=1e-5)

    def bottleneck(x, place, stride=1):
        out = conv(x, f"{place}.conv1", f"{place}.bn1").relu()
        out = conv(out, f"{place}.conv2", f"{place}.bn2", stride, 1).relu()
        out = conv(out, f"{place}.conv3", f"{place}.bn3")
        if f"{place}.downsample.0.weight" in state:
            x = conv(x, f"{place}.downsample.0", f"{place}.downsample.1", stride)
        return (out + x).relu()

    mean, std = (torch.tensor(v, dtype=images.dtype).reshape(3, 1, 1) for v in (MEAN, STD))
    x = conv((images - mean) / std, "conv1", "bn1", 2, 3).relu()
    x = functional.max_pool2d(x, 3, 2, 1)
    x = bottleneck(x, "layer1.0")
    x = bottleneck(x, "layer2.0", 2)
    x = bottleneck(x, "layer2.1")
    return x.flatten(2).mean(2)


@pytest.mark.parametrize("sides", [(33, 40), (32, 32)])
def test_it_is_the_chain_of_plain_calls(sides, generator):
    state = random_state(dtype=torch.float64)
    net = FrozenResNet(state, blocks=BLOCKS)
    images = torch.rand(2, 3, *sides, dtype=torch.float64, generator=generator)
    expected = plain(state, images)
    assert net.width == expected.shape[1] == 16
    assert float(expected.std()) > 0.1  # else nothing is compared
    torch.testing.assert_close(net(images), expected, rtol=1e-10, atol=1e-10)


def test_training_mode_changes_nothing_and_gradients_reach_the_images(generator):
    net = FrozenResNet(random_state(), blocks=BLOCKS)
    images = torch.rand(2, 3, 32, 32, generator=generator, requires_grad=True)
    before = net(images)
    torch.testing.assert_close(net.train()(images), before, rtol=0, atol=0)
    before.sum().backward()
    assert float(images.grad.abs().max()) > 0
    assert list(net.parameters()) == []


def test_the_depths_are_those_of_their_names():
    """A ResNet has a stem, three convolutions a bottleneck and a classifier."""
    depths = [
        2 + 3 * sum(blocks) for blocks in (RESNET_50_BLOCKS, RESNET_101_BLOCKS, RESNET_152_BLOCKS)
    ]
    assert depths == [50, 101, 152]


def test_the_digest_is_of_the_weights():
    first, again = (FrozenResNet(random_state(), blocks=BLOCKS).digest for _ in range(2))
    other = random_state()
    other["layer2.1.bn3.running_mean"][0] += 1e-3
    assert first == again != FrozenResNet(other, blocks=BLOCKS).digest


def test_features_takes_it(tmp_path, generator):
    net = FrozenResNet(random_state(), blocks=BLOCKS)
    x = torch.rand(3, 3 * 32 * 32, generator=generator)
    made = features(net, x, shape=(3, 32, 32), cache=tmp_path)
    torch.testing.assert_close(made, net(x.reshape(3, 3, 32, 32)))


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_files_of_both_kinds_are_read(ending, tmp_path):
    state, path = random_state(), tmp_path / f"resnet.{ending}"
    torch.save(state, path) if ending == "pth" else save_file(state, path)
    assert load_resnet(path, blocks=BLOCKS).digest == FrozenResNet(state, blocks=BLOCKS).digest


@pytest.mark.parametrize("name", ["spoilt.pth", "spoilt.safetensors", "missing.pth"])
def test_a_file_that_is_none_is_one_line(name, tmp_path):
    if name.startswith("spoilt"):
        (tmp_path / name).write_bytes(b"no weights at all")
    with pytest.raises(DataError, match=f"cannot read the weights .*{name}") as caught:
        load_resnet(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["conv1.weight", "bn1.bias", "layer2.1.conv3.weight", "layer1.0.downsample.1.weight"]
)
def test_a_missing_tensor_is_named(name):
    state = random_state()
    del state[name]
    with pytest.raises(ValueError, match=f"state must hold {name}, got"):
        FrozenResNet(state, blocks=BLOCKS)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("conv1.weight", (6, 4, 7, 7)),
        ("layer1.0.conv2.weight", (4, 4, 1, 1)),
        ("layer2.0.conv1.weight", (8, 9, 1, 1)),
        ("layer2.0.downsample.0.weight", (15, 8, 1, 1)),
        ("layer2.1.bn2.running_var", (1,)),
        ("bn1.weight", ()),
    ],
)
def test_an_ill_shaped_tensor_is_named(name, shape):
    state = random_state() | {name: torch.ones(shape)}
    with pytest.raises(ValueError, match=f"{name} must be a floating-point tensor of shape"):
        FrozenResNet(state, blocks=BLOCKS)


def test_a_bottleneck_that_cannot_be_added_to_its_input_is_refused():
    state = random_state() | {"layer2.1.conv3.weight": torch.ones(5, 8, 1, 1)}
    state |= norm_state("layer2.1.bn3", 5, torch.Generator().manual_seed(1))
    with pytest.raises(ValueError, match="as many outputs as the bottleneck has inputs, 16, got 5"):
        FrozenResNet(state, blocks=BLOCKS)


@pytest.mark.parametrize("blocks", [(1, 1), (1,)])
def test_weights_of_a_deeper_network_are_refused(blocks):
    with pytest.raises(ValueError, match=r"hold .* bottlenecks and no more, got layer2"):
        FrozenResNet(random_state(), blocks=blocks)


@pytest.mark.parametrize("images", [torch.ones(3, 8, 8), torch.ones(1, 1, 8, 8), "no"])
def test_images_of_another_form_are_refused(images):
    with pytest.raises(ValueError, match="images must be a floating-point tensor of shape"):
        FrozenResNet(random_state(), blocks=BLOCKS)(images)
