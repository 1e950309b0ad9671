"""The curve counts right, and the sentence and the table say its numbers."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest

import extremal as ex
from extremal.evaluate import wilson_interval
from tests.evaluate.scenes import flat_net, made, points


def test_curve_counts_below_at_and_above_each_radius():
    """Robust at r: surely where lower >= r, surely not where upper <= r."""
    result = made([0.0, 0.5, 1.0, 0.2], [0.0, 0.8, 1.0, math.inf])
    radii = [0.0, 0.2, 0.2000001, 0.5, 0.8, 1.0, 2.0]
    curve = result.curve(radii)
    assert curve.certified.tolist() == [0.75, 0.75, 0.5, 0.5, 0.25, 0.0, 0.0]
    assert curve.attacked.tolist() == [0.75, 0.75, 0.75, 0.75, 0.5, 0.25, 0.25]
    assert curve.radii.tolist() == radii
    brute = [float(((result.lower >= r) & (result.upper > r)).double().mean()) for r in radii]
    assert curve.certified.tolist() == brute


def test_wilson_is_that_of_another_library():
    for count in (1, 7, 500):
        hits = torch.tensor(sorted({0, count // 3, count - 1, count}))
        for k, ends in zip(hits.tolist(), wilson_interval(hits, count).tolist(), strict=True):
            other = binomtest(k, count).proportion_ci(0.95, method="wilson")
            assert ends == pytest.approx([other.low, other.high], abs=1e-12)


def test_headline_and_table_say_the_numbers():
    lower = [0.6] * 439 + [0.497] * 1 + [0.3] * 59 + [0.0]
    upper = [0.625] * 439 + [0.6] * 1 + [0.4] * 59 + [0.0]
    attack = ("shortest",) * 499 + ("clean",)
    result = made(lower, upper, attack=attack)
    low = binomtest(439, 500).proportion_ci(0.95, method="wilson").low
    high = binomtest(440, 500).proportion_ci(0.95, method="wilson").high
    assert result.headline(0.5) == (
        "robust accuracy at l2 radius 0.5 lies between 87.8 % and 88.0 % on these 500 points "
        f"(95 % interval for the population {100 * low:.1f}-{100 * high:.1f} %), "
        "bracket gap median 4.0 %"
    )
    assert result.gap.ninetieth == pytest.approx(0.25)
    lines = result.table([0.5, 0.7]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert lines[1].split()[0] == "0.5"
    assert "87.8 %" in lines[1]
    assert "88.0 %" in lines[1]
    assert lines[2].count("0.0 %") == 2


def test_without_a_certificate_the_headline_claims_no_lower_bound(generator):
    w, test = points(generator)
    result = ex.evaluate(flat_net(w), test, certify=False, generator=generator)
    assert not result.lower.any()
    assert "is at most" in result.headline(0.1)
    assert "nothing is certified" in result.headline(0.1)
    assert set(result.certificate) == {""}
    assert not result.warnings


def test_all_wrong_and_nothing_found_are_said(generator):
    w, test = points(generator, wrong=0.0)
    wrong = ex.evaluate(flat_net(-w), test, generator=generator)
    assert not wrong.upper.any()
    assert math.isnan(wrong.gap.median)
    assert "no finite bracket" in wrong.headline(0.0)
    assert wrong.curve([0.0]).attacked.tolist() == [0.0]


def test_points_that_were_not_drawn_at_random_say_nothing_of_a_population():
    fields = {"attack": ("shortest",) * 4, "certificate": ("parabolas",) * 4}
    lower, upper = [0.6, 0.6, 0.3, 0.5], [0.625, 0.625, 0.4, 0.6]
    first = made(lower, upper, sampled=False, **fields)
    assert first.headline(0.5) == (
        "robust accuracy at l2 radius 0.5 lies between 75.0 % and 75.0 % on these 4 points "
        "(not drawn at random: no interval for the population), bracket gap median 10.3 %"
    )
    assert "for the population 30.1-95.4 %" in made(lower, upper, **fields).headline(0.5)
    assert "[" in made(lower, upper, **fields).table([0.5])
    assert first.table([0.5]).splitlines()[1].split() == ["0.5", "75.0", "%", "75.0", "%"]
    bare = made([0.0] * 4, upper, sampled=False, certified=False)
    assert bare.headline(0.5) == (
        "robust accuracy at l2 radius 0.5 is at most 75.0 % on these 4 points "
        "(not drawn at random: no interval for the population), nothing is certified"
    )


def test_the_evaluation_keeps_what_it_is_told_of_the_points(generator):
    w, test = points(generator, count=4, wrong=0.0)
    told = [
        ex.evaluate(flat_net(w), test, certify=False, sampled=sampled, generator=generator)
        for sampled in (True, False)
    ]
    assert [result.sampled for result in told] == [True, False]
