"""`extremal certify` as a person meets it."""

from __future__ import annotations

import json

import pytest
import torch
from scipy.stats import binomtest

import extremal as ex
from tests.cli.helpers_network import POINTS, WRONG, sample

COMMAND = ("certify", "net.safetensors", "--data", "points.safetensors")
SPOILT = ("certify", "net.safetensors", "--data", "wrong.safetensors")


def radii(folder, y) -> torch.Tensor:
    return ex.certify.radius(ex.models.load(folder / "net.safetensors"), sample().x, y)


def test_certify_prints_shares_and_quantiles(extremal, folder):
    code, out, err = extremal(*COMMAND, "-r", "0.5")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    told = json.loads(extremal(*COMMAND, "-r", "0.5", "-r", "0", "--json")[1])
    radius = radii(folder, sample().y)
    assert [row["radius"] for row in told["table"]] == [0.0, 0.5]
    right = float((radius > 0).double().mean())
    assert told["table"][0]["certified"] == pytest.approx(right)
    assert told["table"][1]["certified"] == pytest.approx(float((radius >= 0.5).double().mean()))
    assert told["quantiles"]["0.5"] == float(radius[radius > 0].quantile(0.5))
    fast = json.loads(extremal(*COMMAND, "--effort", "fast", "--json")[1])
    assert fast["quantiles"]["0.5"] <= told["quantiles"]["0.5"]


def test_misclassified_points_count_in_the_accuracy_and_not_in_the_quantiles(extremal, folder):
    told = json.loads(extremal(*SPOILT, "--json")[1])
    turned = torch.where(torch.arange(POINTS) < WRONG, -1, 1)
    radius = radii(folder, sample().y * turned)
    right = radius > 0
    assert int(right.sum()) == POINTS - WRONG
    assert told["clean"]["correct"] == POINTS - WRONG
    assert told["clean"]["accuracy"] == 0.75
    ends = binomtest(POINTS - WRONG, POINTS).proportion_ci(0.95, method="wilson")
    assert told["clean"]["interval"] == pytest.approx([ends.low, ends.high])
    levels = [0.1, 0.25, 0.5, 0.75, 0.9]
    wanted = [float(radius[right].quantile(level)) for level in levels]
    assert [told["quantiles"][str(level)] for level in levels] == pytest.approx(wanted)
    words = " ".join(extremal(*SPOILT)[1].split())
    assert "clean accuracy 75.0 % [46.8, 91.1] on all 12 points" in words
    assert "the certified radius, of the 9 correctly classified points alone: 10 %: " in words
    assert f"50 %: {wanted[2]:.4g}" in words


def test_no_correct_point_has_no_quantiles(extremal):
    arguments = ("certify", "net.safetensors", "--data", "all_wrong.safetensors")
    code, out, err = extremal(*arguments)
    assert (code, err) == (0, "")
    assert "clean accuracy 0.0 %" in out
    assert "no point is classified correctly" in out
    assert set(json.loads(extremal(*arguments, "--json")[1])["quantiles"].values()) == {None}


def test_settings_say_which_points_in_which_box(extremal):
    arguments = ("--points", "5", "--first", "--box", "-9,9", "--seed", "4", "--json")
    told = json.loads(extremal(*COMMAND, *arguments)[1])["settings"]
    asked = {"box": [-9.0, 9.0], "split": None, "shuffle": False, "sampled": False, "seed": 4}
    assert asked.items() <= told.items()
    assert told["points"] == 5


def test_which_points_is_said(extremal):
    drawn, first = (
        " ".join(extremal(*COMMAND, "--points", "5", *more)[1].split())
        for more in ([], ["--first"])
    )
    assert "on 5 of 12 points, drawn at random" in drawn
    assert "on the first 5 of 12 points, which are not drawn at random" in first
    assert "[" in drawn
    assert "[" not in first


def test_warnings_say_where_radii_are_no_more_than_rounding(extremal, folder):
    net = ex.models.load(folder / "net.safetensors")
    assert json.loads(extremal(*COMMAND, "--json")[1])["warnings"] == []
    net.votes.data[:] = net.votes.data[0, 0]  # One vote for all: the same sign everywhere.
    net.neurons.data.zero_()
    net.save(folder / "net.safetensors")
    code, out, err = extremal(*COMMAND)
    assert (code, err) == (0, "")
    assert "warning: the network gives the same output at every point" in " ".join(out.split())
    told = json.loads(extremal(*COMMAND, "--json")[1])
    assert "constant" in [warning["name"] for warning in told["warnings"]]
