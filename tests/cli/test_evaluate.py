"""`extremal evaluate` as a person meets it."""

from __future__ import annotations

import json

import torch

import extremal as ex
from extremal.data import Dataset
from tests.cli.helpers_network import POINTS, sample

COMMAND = ("evaluate", "net.safetensors", "--data", "points.safetensors")
FAST = ("--effort", "fast")


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
        assert (said in extremal(*COMMAND, "--points", "4", *arguments, *FAST)[1]) is wanted


def test_json_has_what_the_library_says(extremal, folder):
    code, out, _ = extremal(*COMMAND, "-r", "0.6", "--seed", "3", "--json")
    told = json.loads(out)
    assert code == 0
    assert set(told) == {"headline", "table", "gap", "warnings", "settings", "files"}
    test = sample()
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
    asked = {"points": POINTS, "seed": 3, "split": None, "shuffle": True, "box": None}
    assert asked.items() <= told["settings"].items()
    again = extremal(*COMMAND, "-r", "0.6", "--seed", "3", "--json")
    assert again[1] == out


def test_out_writes_numbers_and_figure(extremal, folder):
    code, out, _ = extremal(*COMMAND, "--points", "7", "--out", "here/there", *FAST)
    assert code == 0
    stored = ex.Robustness.load(folder / "here" / "there" / "robustness.json")
    assert len(stored) == 7
    assert out.splitlines()[-3:] == [
        f"here/there/robustness.{kind}" for kind in ("json", "png", "pdf")
    ]
    assert all((folder / line).is_file() for line in out.splitlines()[-3:])


def test_headlines_speak_of_the_population_for_random_points_only(extremal):
    for arguments, wanted in (
        (["--points", "5"], True),
        (["--points", "5", "--first"], False),
        (["--first"], True),  # all of them
    ):
        told = json.loads(extremal(*COMMAND, "-r", "0.5", "--json", *arguments, *FAST)[1])
        assert told["settings"]["shuffle"] is ("--first" not in arguments)
        assert told["settings"]["sampled"] is wanted
        assert ("95 % interval for the population" in told["headline"][0]) is wanted
        assert ("no interval for the population" in told["headline"][0]) is not wanted


def test_a_box_of_each_coordinate_comes_from_the_file(extremal, folder):
    command = ("evaluate", "net.safetensors", "-d", "boxed.safetensors", "--norm", "linf", "--json")
    code, out, _ = extremal(*command, "-r", "0.2", "--out", "here", *FAST)
    assert code == 0
    low, high = json.loads(out)["settings"]["box"]
    x = sample().x
    assert low == (x.amin(0) - 0.1).tolist()
    assert high == (x.amax(0) + 0.1).tolist()
    stored = ex.Robustness.load(folder / "here" / "robustness.json")
    assert stored.box[0].tolist() == low


def test_an_npz_file_holds_the_same_points(extremal):
    first = json.loads(extremal(*COMMAND, "-r", "0.6", "--json", *FAST)[1])
    command = ("evaluate", "net.safetensors", "-d", "points.npz", "-r", "0.6", "--json", *FAST)
    other = json.loads(extremal(*command)[1])
    assert other["table"] == first["table"]
