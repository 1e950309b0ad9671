"""A folder with a network and points, and the command line in this process."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import extremal as ex
from extremal.cli.main import main
from tests.cli.helpers_network import POINTS, WRONG, mixture, sample


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A network of 10 dimensions, a file of points for it, and some that are spoilt."""
    net = ex.models.subclass_classifier(mixture(), p=3.0)
    net.save(tmp_path / "net.safetensors")
    test = sample()
    save_file({"x": test.x, "y": test.y}, tmp_path / "points.safetensors")
    np.savez(tmp_path / "points.npz", x=test.x.double().numpy(), y=test.y.numpy())
    save_file({"x": test.x[:, :5].clone(), "y": test.y}, tmp_path / "narrow.safetensors")
    save_file({"x": test.x, "y": test.y * 3}, tmp_path / "labels.safetensors")
    save_file({"x": test.x, "y": test.y.clamp(min=0)}, tmp_path / "classes.safetensors")
    save_file({"x": test.x}, tmp_path / "half.safetensors")
    low, high = test.x.amin(0) - 0.1, test.x.amax(0) + 0.1
    save_file({"x": test.x, "y": test.y, "low": low, "high": high}, tmp_path / "boxed.safetensors")
    save_file({"x": test.x, "y": test.y, "low": low}, tmp_path / "low.safetensors")
    save_file({"x": test.x, "y": test.y, "low": high, "high": low}, tmp_path / "turned.safetensors")
    numbers = {"low": np.array(-9.0), "high": np.array(9)}
    np.savez(tmp_path / "numbers.npz", x=test.x.numpy(), y=test.y.numpy(), **numbers)
    wrong = test.y * torch.where(torch.arange(POINTS) < WRONG, -1, 1)
    save_file({"x": test.x, "y": wrong}, tmp_path / "wrong.safetensors")
    save_file({"x": test.x, "y": -test.y}, tmp_path / "all_wrong.safetensors")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object), y=test.y.numpy())
    (tmp_path / "broken.safetensors").write_bytes(b"\x00" * 20)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nothing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def extremal(folder, monkeypatch, capsys):
    """Run the command line in this process: the exit code, what it printed, what it complained."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["extremal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return run
