"""Rows of a summary: when ours agrees with published; growth laws against scipy and exact cases."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from extremal.experiments import Claim, Setting, Store, summarise
from extremal.experiments.verdicts import (
    exponential_fit,
    exponential_over_power,
    line_fit,
    power_fit,
)
from tests.experiments.helpers_known_trials import known_experiment, row_of, summary_of


def test_a_claim_is_the_mean_over_the_matching_trials(tmp_path: Path) -> None:
    claim = Claim(
        "q", "value", 31.0, 0.25, "Table 1", where={"p": 3, "spread": 0.5}, against="theory"
    )
    assert row_of(tmp_path, claim) == {
        "quantity": "q",
        "published": 31.0,
        "ours": 31.0,
        "low": 30.5,
        "high": 31.5,
        "tolerance": 0.25,
        "ok": True,
        "source": "Table 1",
        "rule": "near",
        "n": 2,
    }


@pytest.mark.parametrize(
    ("rule", "published", "ok"),
    [
        ("near", 30.9, True),
        ("near", 31.1, True),
        ("near", 30.8, False),
        ("near", 31.2, False),
        ("below", 31.4, True),  # every trial counts: the largest is 31.5
        ("below", 31.3, False),
        ("below", 40.0, True),
        ("above", 30.6, True),  # the smallest is 30.5
        ("above", 30.7, False),
        ("above", 20.0, True),
    ],
)
def test_the_rules_of_agreement(tmp_path: Path, rule: Any, published: float, ok: bool) -> None:
    where = {"p": 3.0, "spread": 0.5}
    row = row_of(tmp_path, Claim("q", "value", published, 0.1, "", where, rule, against="theory"))
    assert row["ours"] == 31.0
    assert row["ok"] is ok


@pytest.mark.parametrize(
    ("published", "tolerance", "ok"),
    [(30.4, 0.0, True), (30.5, 0.0, False), (30.2, 0.2, True), (30.3, 0.2, False)],
)
def test_over_is_strict_in_every_trial(
    tmp_path: Path, published: float, tolerance: float, ok: bool
) -> None:
    """The smallest is 30.5: a tie is no agreement, and the tolerance is a margin."""
    where = {"p": 3.0, "spread": 0.5}
    row = row_of(
        tmp_path, Claim("q", "value", published, tolerance, "", where, "over", against="theory")
    )
    assert row["ok"] is ok


def test_a_reported_number_has_no_verdict(tmp_path: Path) -> None:
    where = {"p": 3.0, "spread": 0.5}
    row = row_of(tmp_path, Claim("q", "value", None, 0.0, "", where, "reported", against="theory"))
    assert (row["ours"], row["low"], row["high"]) == (31.0, 30.5, 31.5)
    assert (row["published"], row["ok"], row["rule"]) == (None, None, "reported")


def test_a_claim_without_a_number_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    row = row_of(tmp_path, Claim("q", "undefined", 1.0, 0.1, "", against="theory"))
    assert (row["ours"], row["ok"]) == (None, None)
    assert row["n"] > 0


def test_decimal_fractions_agree_at_the_edge_of_the_tolerance(tmp_path: Path) -> None:
    assert 0.8 - 0.1 > 0.7
    assert row_of(tmp_path, Claim("q", "seven", 0.8, 0.1, "", against="theory"))["ok"] is True


def test_published_values_can_depend_on_the_settings_at_the_scale(tmp_path: Path) -> None:
    claim = Claim(
        "q", "value", lambda s: sum(s["p"]), 1.0, "", scales=("smoke", "paper"), against="theory"
    )
    experiment = known_experiment(claims=(claim,), smoke={"p": [7.0]})
    assert summary_of(tmp_path, experiment)["rows"][0]["published"] == 4.0
    assert summarise(experiment, "smoke", Store(tmp_path))["rows"][0]["published"] == 7.0
    assert summarise(experiment, "quick", Store(tmp_path))["rows"] == []


@pytest.mark.parametrize(("offset", "ok"), [(0.0, True), (0.4, True), (0.6, False)])
def test_a_claim_can_be_held_against_other_trials(tmp_path: Path, offset: float, ok: bool) -> None:
    # Seeds 0 and 1 give 30.5 and 31.5 for spread 0.5; the mean for spread 0.5 + offset must be
    # within that range.
    claim = Claim(
        "q", "value", {"p": 3.0, "spread": 0.5}, 0.0, "", {"spread": 0.5 + offset}, against="theory"
    )
    given = {"p": Setting([3.0], "O"), "spread": Setting([0.5, 0.5 + offset], "O")}
    if offset == 0.0:
        given["spread"] = Setting([0.5], "O")
    rest = {"broken": Setting(-1.0, "O"), "seeds": Setting(2, "O")}
    row = row_of(tmp_path, claim, settings={**given, **rest})
    assert row["published"] == 31.0
    assert row["tolerance"] == 0.5
    assert row["ours"] == pytest.approx(31.0 + offset)
    assert row["ok"] is ok


@pytest.mark.parametrize(
    ("value", "rule", "ok"),
    [("hit", "above", True), ("hit", "over", False), ("value", "over", True)],
)
def test_over_other_trials_is_seed_by_seed(tmp_path: Path, value: str, rule: Any, ok: bool) -> None:
    """Hits are 1 and 1 for p = 3, 1 and 0 for p = 1: more on average, and a tie in seed 0."""
    claim = Claim(
        "q",
        value,
        {"p": 1.0, "spread": 0.5},
        0.0,
        "",
        {"p": 3.0, "spread": 0.5},
        rule,
        against="theory",
    )
    assert row_of(tmp_path, claim)["ok"] is ok


@pytest.mark.parametrize("value", ["undefined", "only_3"])
def test_a_lead_that_is_not_known_has_no_verdict(tmp_path: Path, value: str) -> None:
    others = {"p": 1.0, "spread": 0.5 if value == "undefined" else 7.0}
    claim = Claim("q", value, others, 0.0, "", {"p": 3.0, "spread": 0.5}, "over", against="theory")
    assert row_of(tmp_path, claim)["ok"] is None


def test_seeds_are_compared_one_by_one(tmp_path: Path) -> None:
    claim = Claim("q", "value", {"p": 1.0}, 0.0, "", {"p": 3.0}, "over", against="theory")
    with pytest.raises(ValueError, match="where of 'q' must match one trial of a seed"):
        row_of(tmp_path, claim)


@pytest.mark.parametrize(
    ("rule", "offset", "ok"),
    [("above", 0.6, True), ("above", -0.1, False), ("below", 0.1, False), ("below", -0.6, True)],
)
def test_an_order_of_trials_is_one_of_their_means(
    tmp_path: Path, rule: Any, offset: float, ok: bool
) -> None:
    # 30.5 and 31.5 for spread 0.5, both moved by the offset for the other spread.
    claim = Claim(
        "q", "value", {"spread": 0.5}, 0.0, "", {"spread": 0.5 + offset}, rule, against="theory"
    )
    given = {"p": Setting([3.0], "O"), "spread": Setting([0.5, 0.5 + offset], "O")}
    rest = {"broken": Setting(-1.0, "O"), "seeds": Setting(2, "O")}
    row = row_of(tmp_path, claim, settings={**given, **rest})
    assert (row["published"], row["tolerance"]) == (31.0, 0.0)
    assert row["ours"] == pytest.approx(31.0 + offset)
    assert row["ok"] is ok


def test_a_claim_against_trials_that_are_not_there_is_open(tmp_path: Path) -> None:
    claim = Claim("q", "value", {"spread": 0.1}, 0.0, "", where={"spread": 0.5}, against="theory")
    row = row_of(tmp_path, claim, broken=0.1)
    assert row["published"] is None
    assert row["ok"] is None


def test_a_claim_with_no_trial_done_is_open(tmp_path: Path) -> None:
    row = row_of(
        tmp_path,
        Claim("q", "value", 1.0, 0.1, "", where={"spread": 0.1}, against="theory"),
        broken=0.1,
    )
    assert (row["ours"], row["low"], row["high"], row["ok"], row["n"]) == (None,) * 4 + (0,)
    assert (
        row_of(tmp_path, Claim("q", "value", 1.0, 0.1, "", where={"p": 2.0}, against="theory"))["n"]
        == 0
    )


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            Claim("q", "value", 1.0, 0.1, "", {"seed": 0}, against="theory"),
            "where of 'q' must use parameters",
        ),
        (Claim("q", "word", 1.0, 0.1, "", against="theory"), "word must be a number for 'q'"),
        (Claim("q", "curve", 1.0, 0.1, "", against="theory"), "curve must be a number for 'q'"),
    ],
)
def test_claims_that_ask_for_nonsense_are_refused(
    tmp_path: Path, claim: Claim, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        row_of(tmp_path, claim)


def test_a_claim_says_what_it_is_held_against() -> None:
    with pytest.raises(TypeError, match="'against'"):
        Claim("q", "value", 1.0, 0.1, "")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="against of 'q' must be one of 'published', 'theory'"):
        Claim("q", "value", 1.0, 0.1, "", against="poster")  # type: ignore[arg-type]


def test_a_share_has_the_interval_of_wilson(tmp_path: Path) -> None:
    """6 of 8: its ends are where the normal test of a probability just rejects the share."""
    row = row_of(tmp_path, Claim("q", "hit", 1.0, 0.3, "s", interval="share", against="theory"))
    assert (row["ours"], row["n"], row["ok"]) == (0.75, 8, True)
    for end in (row["low"], row["high"]):
        assert abs(0.75 - end) / math.sqrt(end * (1 - end) / 8) == pytest.approx(1.959964)
    assert row["low"] < 0.75 < row["high"]


def test_a_share_is_of_zeros_and_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="value must be 0 or 1 in each trial"):
        row_of(tmp_path, Claim("q", "value", 1.0, 0.3, "s", interval="share", against="theory"))


def test_a_slope_is_fitted_to_all_trials(tmp_path: Path) -> None:
    points = [(p, 10 * p + s + seed) for p in (1.0, 3.0) for s in (0.1, 0.5) for seed in (0, 1)]
    for kind, change in (("exponential", float), ("power", math.log2)):
        known = stats.linregress([change(x) for x, _ in points], [math.log2(y) for _, y in points])
        reach = stats.t.ppf(0.975, 6) * known.stderr
        claim = Claim(
            "q", "value", 0.1, 0.0, "s", {}, "above", interval=kind, abscissa="p", against="theory"
        )
        row = row_of(tmp_path / kind, claim)
        assert row["ours"] == pytest.approx(known.slope)
        assert row["low"] == pytest.approx(known.slope - reach, rel=1e-4)
        assert row["high"] == pytest.approx(known.slope + reach, rel=1e-4)
        assert row["ok"] == (row["low"] >= 0.1)


def test_a_fit_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    """Two points of each trial, (0.5, 1) and (1, 2): one doubling on a half."""
    claim = Claim(
        "q",
        "bad",
        1.9,
        0.0,
        "s",
        {},
        "above",
        interval="exponential",
        abscissa="radii",
        against="theory",
    )
    row = row_of(tmp_path, claim)
    assert (row["ours"], row["ok"]) == (pytest.approx(2.0), True)
    claim = dataclasses.replace(claim, where={"p": 1.0, "spread": 0.1}, abscissa="short")
    with pytest.raises(ValueError, match="bad must be as long as 'short', 1, got 3"):
        row_of(tmp_path / "other", claim)


def test_a_line_is_that_of_scipy():
    x, y = [2, 3, 4, 5, 5], [1.0, 2.0, 4.0, 4.0, 5.0]
    known = stats.linregress(x, y)
    reach = stats.t.ppf(0.975, 3) * known.stderr
    fit = line_fit(x, y)
    assert fit.slope == pytest.approx(known.slope)
    assert (fit.low, fit.high) == pytest.approx(
        (known.slope - reach, known.slope + reach), rel=1e-4
    )


def test_each_law_has_no_residual_where_it_holds():
    x = [2, 3, 4, 6]
    fast, slow = [3.0 * 2 ** (0.7 * a) for a in x], [5.0 * a**1.5 for a in x]
    assert exponential_fit(x, fast).slope == pytest.approx(0.7)
    assert power_fit(x, slow).slope == pytest.approx(1.5)
    assert exponential_fit(x, fast).residual == pytest.approx(0.0, abs=1e-7)
    assert exponential_over_power(x, fast).slope < 0.01
    assert exponential_over_power(x, slow).slope > 100.0


def test_too_few_points_have_no_slope():
    for x in ([1, 2], [3, 3, 3]):
        assert math.isnan(line_fit(x, [1.0] * len(x)).slope)
    with pytest.raises(ValueError, match="y must have 2 values, got 1"):
        line_fit([1, 2], [1.0])
    with pytest.raises(ValueError, match="y must be above 0 for a growth law"):
        exponential_fit([1, 2, 3], [1.0, 0.0, 2.0])
