"""Model files: exact round trips, and nothing but a ValueError from any other file."""

from __future__ import annotations

import errno
import json
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from extremal._files import FileError, tensor_digest
from extremal.models import Grouped, PReLUNet, Preparation, load, save
from tests.models.helpers_networks import TRIPLES, Config, make_net, make_points


def saved(folder: Path) -> Path:
    path = folder / "net.safetensors"
    full = Config(True, True, True, "small", "p", 3)
    make_net(full, 3.0, torch.Generator().manual_seed(0)).save(path)
    return path


def content(net: PReLUNet) -> dict[str, object]:
    """All that defines a network, for comparison bit by bit."""
    parts = {"p": net.p} | vars(net.preparation) | dict(net.named_parameters())
    return {
        name: (part.dtype, part.requires_grad, part.tolist()) if torch.is_tensor(part) else part
        for name, part in parts.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_is_exact_for_every_configuration(dtype, tmp_path, generator):
    x = make_points(5, generator).to(dtype)
    for i, config in enumerate(TRIPLES):
        net = make_net(replace(config, dtype=dtype), 1.0 + i / 7, generator)
        net.freeze(*[name for k, name in enumerate(dict(net.named_parameters())) if (i >> k) & 1])
        net.save(tmp_path / "net.safetensors")
        back = load(tmp_path / "net.safetensors")
        assert content(net) == content(back), config
        assert torch.equal(net(x), back(x))


@pytest.mark.parametrize("signed", [False, True])
def test_round_trip_keeps_groups(signed, tmp_path, generator):
    core = make_net(Config(outputs=3), 3.0, generator).freeze("neurons")
    net = Grouped(core, torch.tensor([1, 0, 1]), signed=signed)
    save(net, tmp_path / "net.safetensors")
    back = load(tmp_path / "net.safetensors")
    x = make_points(5, generator)
    assert isinstance(back, Grouped)
    assert content(core) == content(back.net)
    assert torch.equal(net(x), back(x))


def old_file(path: Path, net: PReLUNet, *, grouped: object = None, **more: Tensor) -> Path:
    """A file as earlier versions wrote it: without the scale in the header, or with a tensor."""
    parts = {name: part.detach() for name, part in net.named_parameters()}
    tensors = parts | {f"preparation.{name}": part for name, part in more.items()}
    header = {"p": net.p, "normalize": net.preparation.normalize, "frozen": ["votes"]}
    network = json.dumps(header | ({"grouped": grouped} if grouped else {}))
    metadata = {
        "format": "extremal-model-1",
        "network": network,
        "digest": tensor_digest(network, tensors, separator=""),
    }
    save_file(tensors, path, metadata)
    return path


SCALE = torch.tensor([0.1, 2.0, 5.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1.0, 3.0])
@pytest.mark.parametrize("centred", [False, True])
def test_a_scale_of_each_coordinate_in_an_old_file_becomes_part_of_the_weights(
    dtype, p, centred, tmp_path, generator
):
    config = Config(bias=True, hidden_bias=True, outputs=3, dtype=dtype)
    net = make_net(config, p, generator)
    center = {"center": torch.tensor([0.5, -1.0, 3.0], dtype=dtype)} if centred else {}
    groups = {"groups": [1, 0, 1], "signed": False}
    x = make_points(20, generator).to(dtype)
    z = SCALE.to(dtype) * (x - center["center"] if centred else x)
    near = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    )
    path, scale = tmp_path / "net.safetensors", SCALE.to(dtype)
    back = load(old_file(path, net, scale=scale, **center))
    torch.testing.assert_close(back(x), net(z), **near)
    assert [name for name, part in back.named_parameters() if not part.requires_grad] == ["votes"]
    assert (back.preparation.center is None) != centred
    grouped = load(old_file(path, net, scale=scale, grouped=groups, **center))
    expected = Grouped(net, torch.tensor([1, 0, 1]))(z)
    torch.testing.assert_close(grouped(x), expected, **near)


def test_an_old_file_that_normalises_is_read_where_its_scales_are_equal(tmp_path, generator):
    net = make_net(Config(normalize="p"), 3.0, generator)
    path, x = tmp_path / "net.safetensors", make_points(20, generator)
    torch.testing.assert_close(load(old_file(path, net))(x), net(x))
    back = load(old_file(path, net, scale=torch.full((3,), 1.7)))
    torch.testing.assert_close(back(x), net(1.7 * x))
    reason = "extremal can read, .*scale must be one number where the network normalises"
    with pytest.raises(ValueError, match=f"^path must .*{reason}"):
        load(old_file(path, net, scale=SCALE))


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def tamper(path: Path, **changes: object) -> None:
    """Write a network that could not be made."""
    net = load(path)
    vars(net).update(changes)
    net.save(path)


BROKEN = {
    "missing": Path.unlink,
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("p = 3\nwidth = 20\n" * 40),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "cut at the end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap(path.with_name("marker")))),
    "torch.save": lambda path: torch.save(Trap(path.with_name("marker")), path),
    "foreign safetensors": lambda path: save_file({"neurons": torch.ones(2, 2)}, path),
    "foreign format": lambda path: save_file({"a": torch.ones(2)}, path, {"format": "pt"}),
    "no network": lambda path: save_file({}, path, {"format": "extremal-model-1"}),
    "p below 1": lambda path: tamper(path, p=0.5),
    "p as text": lambda path: tamper(path, p="3"),
    "centre of another dimension": lambda path: tamper(
        path, preparation=Preparation(center=torch.zeros(2))
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_and_foreign_files_are_refused(kind, tmp_path):
    folder = tmp_path / ("a" * 100)  # a message has the whole path, however long
    folder.mkdir()
    path = saved(folder)
    BROKEN[kind](path)
    with pytest.raises(ValueError, match=r"^path must ") as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert not (folder / "marker").exists()


def test_a_file_of_torch_save_says_what_to_do(tmp_path):
    path = tmp_path / "net.pt"
    torch.save({"weight": torch.ones(2)}, path)
    with pytest.raises(ValueError, match=r"torch\.save: .* ex\.models\.from_torch\(module\)\.save"):
        load(path)


def test_a_flipped_bit_is_refused_or_harmless(tmp_path):
    path = saved(tmp_path)
    raw, net = path.read_bytes(), load(path)
    (size,) = struct.unpack("<Q", raw[:8])
    messages = []
    for place in [*range(0, 8 + size, 2), *range(8 + size, len(raw), 50)]:
        flipped = raw[place] ^ (0x80 if place % 4 else 0x01)
        path.write_bytes(raw[:place] + bytes([flipped]) + raw[place + 1 :])
        try:
            assert content(net) == content(load(path))
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > size / 4
    assert all(message.startswith("path must ") and str(path) in message for message in messages)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(step, tmp_path, monkeypatch, generator):
    path = saved(tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(
            FileError, match=r"^cannot write .*: No space left on device$"
        ) as caught:
            make_net(Config(), 2.0, generator).save(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_files_are_as_readable_as_any_other(tmp_path):
    (tmp_path / "other").touch()
    assert saved(tmp_path).stat().st_mode == (tmp_path / "other").stat().st_mode
