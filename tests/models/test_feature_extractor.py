"""The frozen extractor: its arithmetic against torch.nn's layers, its cache, attacks through it."""

from __future__ import annotations

import importlib
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from extremal.attack import run
from extremal.data import DataError
from extremal.models import PReLUNet, extractor, features, float64_copy, margin_gradient, through
from extremal.models.image_features.frozen_networks import (
    EFFICIENTNET_LITE0_STAGES,
    EfficientNet,
    Stage,
    zeros_around,
)
from tests.data.helpers_sources import Fake, described

# The function of the same name hides the file from `import ... as`.
file_of_extractor = importlib.import_module("extremal.models.image_features.feature_extractor")

STAGES = (
    Stage(expand=1, kernel=3, stride=1, repeats=1),
    Stage(expand=3, kernel=5, stride=2, repeats=2),
    Stage(expand=2, kernel=3, stride=2, repeats=1),
)
CHANNELS = (4, 6, 8)
STEM, WIDTH = 5, 12
SHAPE = (3, 6, 7)
DIM = 3 * 6 * 7


class Unfolded(nn.Module):
    """The same network of torch.nn's layers, with the published names of its parts."""

    def __init__(self, stages=STAGES, channels=CHANNELS, stem=STEM, width=WIDTH):
        super().__init__()
        self._conv_stem = nn.Conv2d(3, stem, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(stem, eps=1e-3)
        self._blocks = nn.ModuleList()
        here = stem
        for stage, there in zip(stages, channels, strict=True):
            for turn in range(stage.repeats):
                self._blocks.append(block(here, there, stage, stage.stride if turn == 0 else 1))
                here = there
        self._conv_head = nn.Conv2d(here, width, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(width, eps=1e-3)

    def forward(self, x):
        """Of images that have their size and scale already."""
        x = functional.relu6(self._bn0(self._conv_stem(same(x, 3, 2))))
        for part in self._blocks:
            out = x
            if hasattr(part, "_expand_conv"):
                out = functional.relu6(part._bn0(part._expand_conv(out)))
            (kernel, _), (stride, _) = part._depthwise_conv.kernel_size, part._depthwise_conv.stride
            out = same(out, kernel, stride)
            out = functional.relu6(part._bn1(part._depthwise_conv(out)))
            out = part._bn2(part._project_conv(out))
            x = out + x if out.shape == x.shape else out
        return functional.relu6(self._bn1(self._conv_head(x))).mean((2, 3))


def block(here, there, stage, stride):
    part, wide = nn.Module(), here * stage.expand
    if stage.expand > 1:
        part._expand_conv = nn.Conv2d(here, wide, 1, bias=False)
        part._bn0 = nn.BatchNorm2d(wide, eps=1e-3)
    part._depthwise_conv = nn.Conv2d(wide, wide, stage.kernel, stride, groups=wide, bias=False)
    part._bn1 = nn.BatchNorm2d(wide, eps=1e-3)
    part._project_conv = nn.Conv2d(wide, there, 1, bias=False)
    part._bn2 = nn.BatchNorm2d(there, eps=1e-3)
    return part


def same(x, kernel, stride):
    """Zeros added one by one, after and before in turn, until each stride has its window."""
    for axis in (2, 3):
        before = after = 0
        while len(range(0, x.shape[axis] + before + after - kernel + 1, stride)) < -(
            -x.shape[axis] // stride
        ):
            before, after = (before, after + 1) if after == before else (before + 1, after)
        around = (0, 0, before, after) if axis == 2 else (before, after)
        x = functional.pad(x, around)
    return x


def close(one, other):
    """Equal but for float32's rounding in a network whose values reach 100."""
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.fixture
def unfolded(generator):
    net = Unfolded().eval()
    for name, part in net.state_dict().items():
        if part.is_floating_point():
            drawn = torch.randn(part.shape, generator=generator)
            # Weights large enough that ReLU6 cuts at both ends.
            part.copy_(drawn.abs() + 0.1 if name.endswith("var") else drawn)
    return net


@pytest.fixture
def net(unfolded):
    return EfficientNet(unfolded.state_dict(), stages=STAGES, size=10)


@pytest.fixture
def x(generator):
    return torch.rand(11, DIM, generator=generator)


@pytest.fixture
def head(generator):
    linear = nn.Linear(WIDTH, 3)
    linear.weight.data.normal_(generator=generator)
    return linear


@pytest.fixture
def count(net):
    """The numbers of images that the network was asked for, call by call."""
    calls = []
    net.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    return calls


@pytest.mark.parametrize("side", [9, 10, 13, 16])
def test_folded_norms_compute_what_layers_do(unfolded, side, generator):
    net = EfficientNet(unfolded.double().state_dict(), stages=STAGES, size=side)
    images = torch.rand(4, 3, side, side, generator=generator, dtype=torch.float64)
    expected = unfolded((255 * images - 127) / 128)
    assert bool((expected > 0).any())
    torch.testing.assert_close(net(images), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(net.train()(images), expected, rtol=1e-10, atol=1e-12)
    close(net.float()(images), expected.float())  # a network takes its own precision


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "zeros"),
    [
        (224, 3, 2, (0, 1)),
        (56, 5, 2, (1, 2)),
        (7, 3, 2, (1, 1)),
        (14, 5, 1, (2, 2)),
        (1, 5, 2, (2, 2)),
        (5, 1, 2, (0, 0)),
    ],
)
def test_same_padding_by_hand(size, kernel, stride, zeros):
    assert zeros_around(size, kernel, stride) == zeros


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding_is_the_least(kernel, stride):
    for size in range(1, 20):
        before, after = zeros_around(size, kernel, stride)
        padded = same(torch.ones(1, 1, size, size), kernel, stride)[0, 0].amax(1)
        assert padded.tolist() == [0.0] * before + [1.0] * size + [0.0] * after


def test_images_grow_and_shrink_as_pillow_resizes(unfolded, generator):
    for size in (16, 5):  # of images of 9 x 12
        net = EfficientNet(unfolded.state_dict(), stages=STAGES, size=size)
        image = torch.rand(3, 9, 12, generator=generator)
        planes = [Image.fromarray(plane.numpy()) for plane in image]
        resized = [
            np.asarray(plane.resize((size, size), Image.Resampling.BILINEAR)) for plane in planes
        ]
        expected = net(torch.from_numpy(np.stack(resized))[None])
        close(net(image[None]), expected)


def test_nothing_can_be_trained_and_gradients_in_pixels_are_right(net, generator):
    assert not list(net.parameters())
    assert not net.training
    images = torch.rand(2, 3, 6, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net.double(), (images,), eps=1e-7)


def test_lite0_has_the_published_form():
    state = Unfolded(
        EFFICIENTNET_LITE0_STAGES, (16, 24, 40, 80, 112, 192, 320), 32, 1280
    ).state_dict()
    # The published file has 4,652,008 parameters, 1,281,000 of them in its classifier.
    learnt = sum(part.numel() for name, part in state.items() if name.endswith(("weight", "bias")))
    assert learnt == 4_652_008 - 1_281_000
    net = EfficientNet(state, size=32)
    assert (len(net.blocks), net.width) == (16, 1280)
    assert net(torch.zeros(1, 3, 8, 8)).shape == (1, 1280)


def test_features_are_the_networks(net, x, tmp_path):
    found = features(net, x, shape=SHAPE, batch=4, cache=tmp_path)
    assert (found.shape, found.dtype, found.requires_grad) == ((11, WIDTH), torch.float32, False)
    close(found, net(x.reshape(11, *SHAPE)))
    assert torch.unique(found, dim=0).shape == found.shape


def test_a_second_call_computes_nothing(net, x, count, tmp_path):
    told = []
    first = features(
        net, x, shape=SHAPE, batch=4, cache=tmp_path, progress=lambda *a: told.append(a)
    )
    assert count == [4, 4, 3]
    assert told == [("features", done, 11) for done in (4, 8, 11, 11)]
    assert torch.equal(features(net, x.clone(), shape=SHAPE, batch=5, cache=tmp_path), first)
    assert count == [4, 4, 3]
    assert not list(tmp_path.rglob("*.tmp"))


def test_anything_else_is_computed(net, x, unfolded, count, tmp_path):
    def asked(network=net, points=x, shape=SHAPE):
        before = len(list(tmp_path.rglob("*.safetensors")))
        found = features(network, points, shape=shape, cache=tmp_path)
        close(found, network(points.reshape(-1, *shape)))
        return len(list(tmp_path.rglob("*.safetensors"))) - before

    assert asked() == 1
    assert asked(points=x.flip(0)) == 1
    assert asked(shape=(3, 7, 6)) == 1
    assert asked(EfficientNet(unfolded.state_dict(), stages=STAGES, size=9)) == 1
    unfolded._bn1.running_mean[0] -= 0.5
    assert asked(EfficientNet(unfolded.state_dict(), stages=STAGES, size=10)) == 1
    assert asked() == 0


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other", "moved"])
def test_a_broken_file_is_made_anew(net, x, count, harm, tmp_path):
    first = features(net, x, shape=SHAPE, cache=tmp_path)
    (path,) = (tmp_path / "features").iterdir()
    content = path.read_bytes()
    if harm == "moved":  # another's features under this name
        path.unlink()
        features(net, 1 - x, shape=SHAPE, cache=tmp_path)
        (there,) = (tmp_path / "features").iterdir()
        spoilt = there.read_bytes()
        there.unlink()
    else:
        flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
        spoilt = {"cut": content[:-8], "flip": flipped, "empty": b"", "other": b"no tensors"}[harm]
    path.write_bytes(spoilt)
    count.clear()
    assert torch.equal(features(net, x, shape=SHAPE, cache=tmp_path), first)
    assert sum(count) == 11
    assert torch.equal(features(net, x, shape=SHAPE, cache=tmp_path), first)
    assert sum(count) == 11


def test_an_interrupted_run_goes_on(net, x, count, monkeypatch, tmp_path):
    monkeypatch.setattr(file_of_extractor, "_IMAGES_PER_FILE", 4)
    whole = features(net, x, shape=SHAPE, batch=2, cache=tmp_path / "whole")
    count.clear()

    def stop(_, given):
        if sum(count) > 9:
            raise KeyboardInterrupt

    handle = net.register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        features(net, x, shape=SHAPE, batch=2, cache=tmp_path / "cut")
    handle.remove()
    assert count == [2, 2, 2, 2, 2]  # the last of them in vain
    assert len(list((tmp_path / "cut" / "features").iterdir())) == 2
    count.clear()
    found = features(net, x, shape=SHAPE, batch=2, cache=tmp_path / "cut")
    assert count == [2, 1]
    assert torch.equal(found, whole)


def test_a_users_own_network_in_its_mode(x, tmp_path):
    own = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(DIM, 3).double())
    own[2].eval()
    with pytest.raises(ValueError, match=r"net must have a `digest`.* got Sequential"):
        features(own, x, shape=SHAPE, cache=tmp_path)
    own.digest = "linear 1"
    x = x.double()
    found = features(own, x, shape=SHAPE, cache=tmp_path)
    close(found, own[2](x).float())
    assert (own.training, own[1].training, own[2].training) == (True, True, False)


def test_the_cache_is_where_data_are(net, x, monkeypatch, tmp_path):
    monkeypatch.setenv("EXTREMAL_CACHE", str(tmp_path / "mine"))
    features(net, x, shape=SHAPE)
    assert len(list((tmp_path / "mine" / "features").iterdir())) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": torch.zeros(2, DIM + 1)}, r"x must be .* \(n, 126\) .* got shape \(2, 127\)"),
        ({"x": torch.zeros(2, *SHAPE)}, r"x must be .* got shape \(2, 3, 6, 7\)"),
        ({"x": torch.zeros(0, DIM)}, "x must be .* n >= 1"),
        ({"x": torch.zeros(2, DIM, dtype=torch.uint8)}, "x must be a floating-point tensor"),
        ({"x": torch.full((2, DIM), torch.nan)}, "x must be finite"),
        ({"x": torch.full((2, DIM), 255.0)}, r"x must lie in \[0, 1\], got 255 to 255"),
        ({"x": torch.full((2, DIM), -0.01)}, r"x must lie in \[0, 1\], got -0.01"),
        ({"shape": (6, 21)}, r"shape must be \(channels, height, width\), got \(6, 21\)"),
        ({"shape": (3, 6, 7.0)}, "shape must be an integer >= 1"),
        ({"shape": 126}, "shape must be .* got 126"),
        (
            {"shape": (1, 18, 7)},
            r"images must .* \(n, 3, height, width\), got shape \(8, 1, 18, 7\)",
        ),
        ({"batch": 0}, "batch must be an integer >= 1"),
        ({"net": torch.relu}, "net must be a torch.nn.Module"),
        ({"progress": 1}, "progress must be"),
    ],
)
def test_bad_arguments_of_features(net, x, changed, message, tmp_path):
    given = {"net": net, "x": x, "shape": SHAPE, "cache": tmp_path} | changed
    with pytest.raises(ValueError, match=message):
        features(**given)
    assert not list(tmp_path.iterdir())


def test_networks_that_make_no_features(x, tmp_path):
    flat = nn.Flatten(0)
    flat.digest = "flat"
    with pytest.raises(
        ValueError, match=r"net\(x\) must be .* of shape \(8, width\), got shape \(1008,\)"
    ):
        features(flat, x, shape=SHAPE, cache=tmp_path)
    nothing = nn.Sequential(nn.Flatten(), nn.Threshold(2.0, torch.nan))
    nothing.digest = "nan"
    with pytest.raises(ValueError, match=r"net\(x\) must be finite"):
        features(nothing, x, shape=SHAPE, cache=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_bad_arguments_of_the_others(net, head):
    with pytest.raises(ValueError, match="name must be one of 'efficientnet-lite0', got 'resnet'"):
        extractor("resnet")
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        extractor(size=0)
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        EfficientNet({}, size=0)
    with pytest.raises(ValueError, match=r"state must hold _conv_stem\.weight, got 0 other"):
        EfficientNet({})
    with pytest.raises(ValueError, match="head must be a"):
        through(net, torch.relu, SHAPE)
    with pytest.raises(ValueError, match="net must be a"):
        through(torch.relu, head, SHAPE)
    with pytest.raises(ValueError, match="shape must be"):
        through(net, head, (3, 6))
    with pytest.raises(ValueError, match="batch must be"):
        through(net, head, SHAPE, batch=0)
    with pytest.raises(ValueError, match=r"x must be .* \(n, 126\), got shape \(2, 125\)"):
        through(net, head, SHAPE)(torch.zeros(2, 125))


def test_weights_are_fetched_once_and_checked(unfolded, monkeypatch, tmp_path):
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    out = io.BytesIO()
    torch.save(
        Unfolded(EFFICIENTNET_LITE0_STAGES, (16, 24, 40, 80, 112, 192, 320), 32, 1280).state_dict(),
        out,
    )
    contents = {"weights.pth": out.getvalue()}
    source = Fake(contents)
    monkeypatch.setattr(file_of_extractor, "registered_files", lambda _: described(contents))
    monkeypatch.setitem(file_of_extractor._WEIGHT_SOURCES, "efficientnet-lite0", source)
    first = extractor(size=32, cache=tmp_path)
    assert (
        first.digest
        == extractor(size=32, cache=tmp_path).digest
        != extractor(cache=tmp_path).digest
    )
    assert len(source.asked) == 1
    spoilt = Fake({"weights.pth": out.getvalue()[:-1] + b"?"})
    monkeypatch.setitem(file_of_extractor._WEIGHT_SOURCES, "efficientnet-lite0", spoilt)
    with pytest.raises(DataError, match=r"cannot load efficientnet-lite0: .* another SHA-256"):
        extractor(cache=tmp_path / "none")


def test_pieces_give_the_same_gradients(net, head, x, generator):
    y = torch.randint(3, (11,), generator=generator)
    whole, pieces = (through(net, head, SHAPE, batch=batch) for batch in (11, 3))
    for one, other in zip(margin_gradient(whole, x, y), margin_gradient(pieces, x, y), strict=True):
        close(one, other)
    assert bool((margin_gradient(whole, x, y)[1].abs().amax(1) > 0).all())
    close(pieces(x), head(net(x.reshape(-1, *SHAPE))))
    assert {id(part) for part in pieces.parameters()} == {id(part) for part in head.parameters()}


def test_a_head_may_have_another_precision(net, x, generator):
    head = PReLUNet(WIDTH, 9, 3.0, dtype=torch.float64, generator=generator)
    out = through(net, head, SHAPE)(x)
    assert (out.shape, out.dtype) == ((11,), torch.float64)
    torch.testing.assert_close(
        float64_copy(through(net, head, SHAPE))(x.double()), out, rtol=1e-4, atol=0
    )


def test_an_attack_on_pixels_changes_the_class(net, head, x, generator):
    model = through(net, head, SHAPE, batch=4)
    y = model(x).argmax(1)
    assert len(torch.unique(y)) > 1
    result = run(model, x, y, norm="linf", radius=0.3, box=(0.0, 1.0), steps=5, generator=generator)
    assert bool(result.success.any())
    broken = result.x_adv[result.success]
    assert bool((model(broken).argmax(1) != y[result.success]).all())
    assert float((result.x_adv - x).abs().max()) <= 0.3 + 1e-5
    assert (float(result.x_adv.min()) >= 0, float(result.x_adv.max()) <= 1) == (True, True)


# Computed with another implementation, the Python package efficientnet_lite_pytorch 0.1.0 with the
# same weights: `extract_features` in evaluation mode, averaged over places, of `pattern()` resized
# by Pillow (mode F, bilinear) and scaled to (255 x - 127) / 128; at 128 with its image_size=128.
# The first of the features, the largest, and the means of eight parts of 160.
REFERENCE = {
    224: (
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.01187, 0.0, 0.00031, 0.0, 0.0],
        {689: 4.13245, 273: 3.72042, 1140: 3.63449, 71: 2.58007, 103: 2.52523, 61: 2.46151},
        [0.190940, 0.149314, 0.164852, 0.137953, 0.209910, 0.159541, 0.112164, 0.195210],
    ),
    128: (
        [0.0, 0.06422, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        {273: 4.57956, 831: 4.31737, 692: 3.81313, 642: 3.58431, 119: 3.46364, 417: 3.31713},
        [0.172532, 0.162394, 0.204900, 0.189445, 0.249616, 0.180343, 0.140679, 0.225492],
    ),
}


def pattern():
    """Curved stripes, exactly."""
    c, i, j = np.ogrid[:3, :32, :32]
    values = ((c + 1) * i * i + (3 - c) * i * j + 2 * j) % 48 / 47
    return torch.from_numpy(values.astype(np.float32)).reshape(1, -1)


@pytest.mark.fetch
@pytest.mark.parametrize("size", REFERENCE)
def test_the_published_weights(size, tmp_path):
    try:
        net = extractor(size=size)
    except DataError as error:
        pytest.skip(str(error))
    found = features(net, pattern(), cache=tmp_path)[0]
    first, largest, means = REFERENCE[size]
    assert found[:10].tolist() == pytest.approx(first, abs=1e-4)
    assert {at: float(found[at]) for at in largest} == pytest.approx(largest, abs=1e-4)
    assert found.reshape(8, 160).mean(1).tolist() == pytest.approx(means, abs=1e-5)
