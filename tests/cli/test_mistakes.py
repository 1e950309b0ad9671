"""Help and mistakes of `extremal evaluate` and `extremal certify`."""

from __future__ import annotations

import pytest


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
    "half a box": (["{net}", "-d", "low.safetensors"], ["--data", "both low and high", "'low'"]),
    "turned box": (["{net}", "-d", "turned.safetensors"], ["box must have low <= high"]),
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
