"""`extremal evaluate` and `extremal certify` as a person meets them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import extremal as ex
from extremal.cli import points
from extremal.cli.main import main
from extremal.data import Dataset

POINTS = 12


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A network of 10 dimensions, a file of points for it, and some that are spoilt."""
    mix = ex.data.OrthonormalMixture(dim=10, positive=3, negative=2, spread=0.2)
    net = ex.models.subclass_classifier(mix, p=3.0)
    net.save(tmp_path / "net.safetensors")
    test = mix.sample(POINTS, generator=torch.Generator().manual_seed(0))
    save_file({"x": test.x, "y": test.y}, tmp_path / "points.safetensors")
    np.savez(tmp_path / "points.npz", x=test.x.double().numpy(), y=test.y.numpy())
    save_file({"x": test.x[:, :5].clone(), "y": test.y}, tmp_path / "narrow.safetensors")
    save_file({"x": test.x, "y": test.y * 3}, tmp_path / "labels.safetensors")
    save_file({"x": test.x, "y": test.y.clamp(min=0)}, tmp_path / "classes.safetensors")
    save_file({"x": test.x}, tmp_path / "half.safetensors")
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


COMMAND = ("evaluate", "net.safetensors", "--data", "points.safetensors")


def test_evaluate_prints_table_headlines_and_warnings(extremal):
    code, out, err = extremal(*COMMAND, "--radius", "0.5", "-r", "0.72")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "robust accuracy at l2 radius 0.5 lies between" in words
    assert "robust accuracy at l2 radius 0.72 lies between" in words
    assert "warning: plain gradient steps" in words
    assert out.splitlines()[0].split() == ["l2", "radius", "certified", "attacked"]


def test_a_certificate_that_ignores_the_box_is_said(extremal):
    said = "the certificate ignores the box"
    for arguments, wanted in (
        (["--box", "-9,9"], True),
        (["--box", "none"], False),
        (["--box", "-9,9", "--norm", "linf"], False),
    ):
        assert (said in extremal(*COMMAND, "--points", "4", *arguments)[1]) is wanted


def test_json_has_what_the_library_says(extremal, folder):
    code, out, _ = extremal(*COMMAND, "-r", "0.6", "--seed", "3", "--json")
    told = json.loads(out)
    assert code == 0
    assert set(told) == {"headline", "table", "gap", "warnings", "settings", "files"}
    mix = ex.data.OrthonormalMixture(dim=10, positive=3, negative=2, spread=0.2)
    test = mix.sample(POINTS, generator=torch.Generator().manual_seed(0))
    result = ex.evaluate(
        ex.models.load(folder / "net.safetensors"),
        Dataset(test.x, test.y),
        radii=[0.6],
        generator=torch.Generator().manual_seed(3),
    )
    assert told["table"] == result.curve([0.6]).rows()
    assert told["headline"] == [result.headline(0.6)]
    assert told["gap"]["median"] == result.gap.median
    assert [w["name"] for w in told["warnings"]] == [w.name for w in result.warnings]
    assert told["settings"]["points"] == POINTS
    assert told["settings"]["seed"] == 3
    again = extremal(*COMMAND, "-r", "0.6", "--seed", "3", "--json")
    assert again[1] == out


def test_out_writes_numbers_and_figure(extremal, folder):
    code, out, _ = extremal(*COMMAND, "--points", "7", "--out", "here/there")
    assert code == 0
    stored = ex.Robustness.load(folder / "here" / "there" / "robustness.json")
    assert len(stored) == 7
    assert out.splitlines()[-3:] == [
        f"here/there/robustness.{kind}" for kind in ("json", "png", "pdf")
    ]
    assert all((folder / line).is_file() for line in out.splitlines()[-3:])


def test_certify_prints_shares_and_quantiles(extremal, folder):
    arguments = ("certify", "net.safetensors", "--data", "points.safetensors")
    code, out, err = extremal(*arguments, "-r", "0.5")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    told = json.loads(extremal(*arguments, "-r", "0.5", "-r", "0", "--json")[1])
    mix = ex.data.OrthonormalMixture(dim=10, positive=3, negative=2, spread=0.2)
    test = mix.sample(POINTS, generator=torch.Generator().manual_seed(0))
    radius = ex.certify.radius(ex.models.load(folder / "net.safetensors"), test.x, test.y)
    assert [row["radius"] for row in told["table"]] == [0.0, 0.5]
    right = float((radius > 0).double().mean())
    assert told["table"][0]["certified"] == pytest.approx(right)
    assert told["table"][1]["certified"] == pytest.approx(float((radius >= 0.5).double().mean()))
    assert told["quantiles"]["0.5"] == float(radius.quantile(0.5))
    fast = json.loads(extremal(*arguments, "--effort", "fast", "--json")[1])
    assert fast["quantiles"]["0.5"] <= told["quantiles"]["0.5"]


def test_an_npz_file_holds_the_same_points(extremal):
    first = json.loads(extremal(*COMMAND, "-r", "0.6", "--json")[1])
    command = ("evaluate", "net.safetensors", "-d", "points.npz", "-r", "0.6", "--json")
    other = json.loads(extremal(*command)[1])
    assert other["table"] == first["table"]


def read(**settings):
    given = {"split": "test", "box": None, "points": 5, "seed": None, "progress": False}
    return points.read_points("points.safetensors", **{**given, **settings})


def test_the_first_points_or_random_ones(folder):
    first, whole = read(), read(points=1000)
    assert torch.equal(first.x, whole.x[:5])
    assert len(whole) == POINTS
    drawn, again, other = (read(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(drawn.x, again.x)
    assert not torch.equal(drawn.x, other.x)
    assert not torch.equal(drawn.x, first.x)
    assert len({tuple(row) for row in drawn.x.tolist()}) == 5
    assert read(box="-5,5").box == (-5.0, 5.0)


def test_a_known_data_set_has_its_own_box_and_splits(monkeypatch):
    x = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    train, test = (Dataset(x + k * 0.0, torch.arange(6) + k, box=(0.0, 1.0)) for k in (0, 1))
    monkeypatch.setattr(points, "load", lambda name, progress: (train, test))
    given = {"points": 4, "seed": None, "progress": False}
    found = points.read_points("mnist", split="test", box=None, **given)
    assert found.box == (0.0, 1.0)
    assert found.y.tolist() == [1, 2, 3, 4]
    other = points.read_points("mnist", split="train", box="none", **given)
    assert other.box is None
    assert other.y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("command", ["evaluate", "certify"])
def test_help_fits_and_has_an_example(extremal, command):
    code, out, _ = extremal(command, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert f"extremal {command} net.safetensors" in out


MISTAKES = {
    "no model": (["none.safetensors", "-d", "points.npz"], ["existing model", "none.safetensors"]),
    "broken model": (["broken.safetensors", "-d", "points.npz"], ["model file", "broken"]),
    "data for a model": (["points.safetensors", "-d", "points.npz"], ["model file"]),
    "unknown data": (["{net}", "-d", "minst"], ["--data", "mnist", ".npz", "minst"]),
    "no data file": (["{net}", "-d", "no.npz"], ["--data", "existing file", "no.npz"]),
    "broken npz": (["{net}", "-d", "broken.npz"], ["--data", "broken.npz"]),
    "broken data": (["{net}", "-d", "broken.safetensors"], ["--data", "broken.safetensors"]),
    "a pickle": (["{net}", "-d", "pickled.npz"], ["--data", "pickled.npz"]),
    "no labels": (["{net}", "-d", "half.safetensors"], ["--data", "x and y", "['x']"]),
    "dimensions": (["{net}", "-d", "narrow.safetensors"], ["x must", "(n, 10)", "(1, 5)"]),
    "labels": (["{net}", "-d", "labels.safetensors"], ["y must be -1", "-3"]),
    "other labels": (["{net}", "-d", "classes.safetensors"], ["y must be -1 or +1", "0"]),
    "radius": (["{net}", "-d", "points.npz", "-r", "-1"], ["--radius", ">= 0", "-1"]),
    "norm": (["{net}", "-d", "points.npz", "--norm", "l3"], ["--norm", "'l2'", "l3"]),
    "effort": (["{net}", "-d", "points.npz", "--effort", "much"], ["--effort", "much"]),
    "points": (["{net}", "-d", "points.npz", "--points", "0"], ["--points", ">= 1"]),
    "split": (["{net}", "-d", "points.npz", "--split", "all"], ["--split", "'test'", "all"]),
    "box words": (["{net}", "-d", "points.npz", "--box", "0;1"], ["--box", "low,high", "0;1"]),
    "box too small": (["{net}", "-d", "points.npz", "--box", "0,1"], ["box must contain"]),
    "no data": (["{net}"], ["--data"]),
}


@pytest.mark.parametrize("command", ["evaluate", "certify"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(extremal, command, mistake):
    arguments, words = MISTAKES[mistake]
    filled = [word.replace("{net}", "net.safetensors") for word in arguments]
    code, out, err = extremal(command, *filled)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1, err
    for word in words:
        assert word in err
