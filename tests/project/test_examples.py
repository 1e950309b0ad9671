"""The examples run as they are, and what they print holds together."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread
from threadpoolctl import threadpool_limits

import extremal as ex
from tests.helpers_fork import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(name, monkeypatch, capsys, *asked):
    """What an example prints, run as a script."""
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as Python does for a script
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *asked])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_robust_head(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "picture.png"
    asked = ["--picture", str(picture), "--points", "15", "--epochs", "8"]
    monkeypatch.setattr(sys, "argv", ["robust_head.py", *asked])
    with threadpool_limits(1):  # MLPClassifier's many small products are slower with more
        runpy.run_path(str(EXAMPLES / "robust_head.py"))
    printed = capsys.readouterr().out
    lines = re.findall(
        r"^(.+): accuracy (\S+); at l2 radius 0.5 certified (\S+), attacked (\S+)$", printed, re.M
    )
    assert [line[0] for line in lines] == ["pReLU, p = 3", "pReLU, p = 1", "MLPClassifier"]
    found = {name: [float(value) for value in values] for name, *values in lines}
    for clean, certified, attacked in found.values():
        assert 0.0 < certified <= attacked <= clean
    assert found["pReLU, p = 3"][1] > found["MLPClassifier"][2]
    height, width, _ = imread(picture).shape
    assert height > 400
    assert width > 800


def test_alignment(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "picture.png"
    printed = ran(
        "alignment", monkeypatch, capsys, "--picture", str(picture), "--dim", "30", "--until", "120"
    )
    assert "p = 1: 2 of 2 class averages followed" in printed
    assert "p = 3: 5 of 5 subclass centres followed" in printed
    lowest = [float(value) for value in re.findall(r"neurons (\S+)$", printed, re.M)]
    assert min(lowest) > 0.95
    assert imread(picture).shape[1] > 800


def test_own_network(tmp_path, monkeypatch, capsys):
    saved = tmp_path / "net.safetensors"
    asked = ("--points", "15", "--steps", "100", "--save", str(saved))
    printed = ran("own_network", monkeypatch, capsys, *asked)
    assert "same outputs: True" in printed
    rows = re.findall(r"certified (\S+), attacked (\S+), PGD of 20 steps (\S+)$", printed, re.M)
    assert len(rows) == 2
    for certified, attacked, weak in (map(float, row) for row in rows):
        assert 0.0 < certified <= attacked <= weak
    assert isinstance(ex.models.load(saved), ex.models.PReLUNet)


def test_own_experiment_computes_nothing_twice(tmp_path, monkeypatch, capsys):
    asked = ("--scale", "smoke", "--out", str(tmp_path))
    printed = ran("own_experiment", monkeypatch, capsys, *asked)
    assert printed.startswith("2 of 2 trials done, 0 failed")
    assert (tmp_path / "mine/clusters/smoke/report.html").is_file()
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/*")}
    assert ran("own_experiment", monkeypatch, capsys, *asked) == printed
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/*")} == stored


def test_sweep_on_dask(forks, tmp_path):
    """On workers that it starts; tests/project/test_cluster_page.py gives it an address."""
    words = [str(EXAMPLES / "sweep_on_dask.py"), "--out", str(tmp_path), "--steps", "5"]
    process = forks.start(f"{run_script.__module__}:run_script", *words)
    printed, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert "12 of 12 trials done, 0 failed" in printed
    assert len(re.findall(r"^p = .*: radius 0[.]\d+$", printed, re.M)) == 12
    assert {"report.html", "table.csv"} <= {path.name for path in tmp_path.glob("sweeps/width/*")}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_tested_here_and_says_how_to_run_it(path):
    assert f'"{path.stem}' in Path(__file__).read_text()
    assert f"`python examples/{path.name}" in path.read_text()
