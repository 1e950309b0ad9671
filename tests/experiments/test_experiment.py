"""Records and their variants."""

from __future__ import annotations

import pytest

from extremal.experiments import Experiment, Setting

BASE = Experiment(
    "mine/first",
    "T",
    "S",
    "m:f",
    {"p": Setting([1.0, 3.0], "S"), "dim": Setting(100, "S"), "seeds": Setting(5, "O")},
    ("p",),
    (),
    quick={"dim": 10, "seeds": 2},
    smoke={"dim": 5},
)


def test_a_variant_changes_settings_and_fields_and_keeps_the_rest() -> None:
    other = BASE.variant(
        "mine/second",
        title="Another",
        settings={"dim": Setting(200, "O"), "width": Setting(7, "O")},
        smoke={"dim": 3},
    )
    assert (other.name, other.title, other.study) == ("mine/second", "Another", "m:f")
    assert list(other.settings) == ["p", "dim", "seeds", "width"]
    assert other.at("paper") == {"p": [1.0, 3.0], "dim": 200, "seeds": 5, "width": 7}
    assert (other.at("quick")["dim"], other.at("smoke")["dim"]) == (10, 3)
    assert BASE.at("paper")["dim"] == 100


def test_what_a_variant_leaves_out_is_gone_at_every_scale() -> None:
    other = BASE.variant("mine/third", without=("seeds",))
    assert "seeds" not in other.at("paper")
    assert "seeds" not in other.at("quick")
    assert len(other.trials("paper")) == 2
    with pytest.raises(ValueError, match=r"without of x must name settings of mine/first"):
        BASE.variant("x", without=("speed",))
