"""The examples run as they are, and what they print holds together."""

import re
import runpy
import sys
from pathlib import Path

from matplotlib.image import imread
from threadpoolctl import threadpool_limits

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_robust_head(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "picture.png"
    asked = ["--picture", str(picture), "--points", "25", "--epochs", "15"]
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
