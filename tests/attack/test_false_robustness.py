"""The false 100 %: on F^(3) the published attack finds nothing where every point breaks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import extremal as ex
from extremal.attack import Ball, published_pgd, ray_attack, run
from extremal.data import OrthonormalMixture
from extremal.models import subclass_classifier

POINTS = 50
PAGE = Path(__file__).parents[2] / "docs" / "theory" / "robustness.md"


@pytest.fixture(scope="module")
def scene():
    """The paper's sizes: 1000 dimensions, 6 and 4 subclasses, alpha = 0.1."""
    mix = OrthonormalMixture(dim=1000, positive=6, negative=4, spread=0.1)
    test = mix.sample(POINTS, generator=torch.Generator().manual_seed(0))
    return mix, subclass_classifier(mix, p=3.0).float(), test


def test_published_steps_leave_all_standing_at_three_quarters(scene):
    """2000 steps of 0.1 from zero, at a radius beyond the best possible sqrt(2)/2."""
    _, net, test = scene
    assert published_pgd(net, test.x, test.y, radius=0.75).accuracy == 1.0


@pytest.mark.parametrize("radius", [0.72, 0.75])
def test_all_attacks_together_leave_none(scene, radius, generator):
    _, net, test = scene
    told = run(net, test.x, test.y, radius=radius, generator=generator)
    assert told.accuracy == 0.0
    assert "center" not in told.names  # it was not told the centres


def test_one_step_toward_an_opposing_centre_is_enough(scene):
    """x + 0.72 (u_l - u_own)/sqrt(2) breaks each point for some opposing centre l: no search."""
    mix, net, test = scene
    left = torch.ones(len(test), dtype=torch.bool)
    for target in range(mix.count):
        opposing = mix.labels[target] != test.y
        step = mix.centers[target] - mix.centers[test.group]
        result = ray_attack(net, test.x, test.y, step.float(), Ball("l2", 0.72))
        left &= ~(result.success & opposing)
    assert not left.any()


def test_the_evaluation_brackets_the_truth_and_warns(scene, generator):
    _, net, test = scene
    result = ex.evaluate(net, test, radii=[0.69, 0.72, 0.75], generator=generator)
    curve = result.curve()
    assert curve.certified.tolist() == [1.0, 0.0, 0.0]
    assert curve.attacked.tolist() == [1.0, 0.0, 0.0]
    assert result.gap.median < 0.005
    (warning,) = result.warnings
    assert warning.name == "plain-steps-miss"
    assert "leave 100 % standing at l2 radius 0.74" in warning.sentence


def test_the_code_of_the_docs_prints_what_they_say(capsys):
    (code, told) = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", PAGE.read_text(), re.S)[0]
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == told
