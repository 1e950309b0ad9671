"""Features with labels, from files of the user's."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from extremal.data import load_features

X, Y = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 1])


def test_both_kinds_of_files_hold_the_same(tmp_path):
    save_file({"x": X, "y": Y}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", x=X.numpy(), y=Y.numpy())
    for name in ("a.safetensors", "a.npz"):
        found = load_features(tmp_path / name)
        assert torch.equal(found.x, X)
        assert torch.equal(found.y, Y)
        assert found.box is None


@pytest.mark.parametrize("ends", [(0.0, 1.0), (np.zeros(3), np.ones(3))])
def test_a_box_is_read_with_them(tmp_path, ends):
    np.savez(tmp_path / "a.npz", x=X.numpy(), y=Y.numpy(), low=ends[0], high=ends[1])
    low, high = load_features(tmp_path / "a.npz").box
    assert float(torch.as_tensor(low).max()) == 0.0
    assert float(torch.as_tensor(high).min()) == 1.0


def test_double_precision_stays(tmp_path):
    np.savez(tmp_path / "a.npz", x=X.double().numpy(), y=Y.numpy())
    assert load_features(tmp_path / "a.npz").x.dtype == torch.float64


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ({"x": X}, "path must hold x and y"),
        ({"x": X, "y": Y, "low": torch.tensor(0.0)}, "both low and high"),
        ({"x": X, "y": Y[:2]}, "y must"),
        ({"x": X / 0, "y": Y}, "x must"),
        ({"x": X, "y": torch.tensor([0, 1, -3, 1])}, "y must"),
    ],
)
def test_a_file_without_what_is_needed_is_refused(tmp_path, content, rule):
    save_file(content, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=rule):
        load_features(tmp_path / "a.safetensors")


def test_a_pickle_is_not_opened(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object), y=Y.numpy())
    with pytest.raises(ValueError, match=r"path must be a readable .npz file"):
        load_features(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.csv", "missing.npz"])
def test_no_such_file_or_kind(tmp_path, name):
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(ValueError, match="path must name"):
        load_features(tmp_path / name)


def test_a_broken_file(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"readable .safetensors file"):
        load_features(tmp_path / "a.safetensors")
