"""What a browser may ask for: bounds, and links that say the same again."""

from __future__ import annotations

import contextlib
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extremal.web.playground_settings import (
    BOUNDS,
    LONGEST_LINK,
    REACH,
    WHOLE,
    Probe,
    Setup,
    link,
    read_link,
    read_probe,
    read_setup,
    usual_probe,
)


def reals(low: float, high: float) -> st.SearchStrategy:
    return st.floats(low, high, allow_subnormal=False)  # which the tests flush


def values(name: str) -> st.SearchStrategy:
    bound = BOUNDS[name]
    if name in WHOLE:
        return st.integers(int(bound.low), int(bound.high))
    return reals(bound.low, bound.high)


SETUPS = st.builds(
    Setup,
    loss=st.sampled_from(["exp", "logistic"]),
    beside=st.none() | values("p"),
    **{name: values(name) for name in BOUNDS},
)


@given(SETUPS, st.data())
def test_a_link_says_the_same_again(setup, data):
    centres = data.draw(st.permutations(range(1, setup.count + 1)))[:2]
    places = reals(-REACH, REACH)
    probe = Probe(*centres, data.draw(places), data.draw(places))
    assert read_link(link(setup, probe)) == (setup, probe)


def test_the_usual_set_up_has_the_shortest_link():
    assert link(Setup(), Probe()) == ""
    assert read_link("") == read_link(None) == (Setup(), Probe())
    assert link(Setup(p=3.0), Probe()) == "?p=3.0"


@pytest.mark.parametrize("name", BOUNDS)
def test_the_bounds_are_allowed_and_nothing_beyond(name):
    bound = BOUNDS[name]
    for value in (bound.low, bound.high):
        assert getattr(read_setup({name: value}), name) == value
        assert getattr(read_setup({name: str(value)}), name) == value
    for value in (bound.low - bound.step, bound.high + bound.step, math.nan, math.inf, "many", []):
        with pytest.raises(ValueError, match=name):
            read_setup({name: value})


def test_whole_numbers_are_whole():
    with pytest.raises(ValueError, match=r"width must be a whole number from 4 to 300, got 60\.5"):
        read_setup({"width": 60.5})


def test_what_is_missing_is_as_usual():
    assert read_setup({"loss": "logistic", "beside": None}) == Setup(loss="logistic")
    assert read_probe({}, Setup()) == Probe()


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_is_there_without_a_value_is_no_default(nothing):
    for name in BOUNDS:
        with pytest.raises(ValueError, match=rf"^{name} must be a number, got nothing$"):
            read_setup({name: nothing})
    with pytest.raises(ValueError, match="loss must be one of"):
        read_setup({"loss": nothing})
    with pytest.raises(ValueError, match="up must be a number, got nothing"):
        read_probe({"up": nothing}, Setup())


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (2, 2), (6, 1)])
def test_the_usual_plane_is_between_the_classes(positive, negative):
    setup = Setup(positive=positive, negative=negative)
    probe = read_probe({}, setup)
    assert (probe.first, probe.second) == (1, positive + 1)
    assert link(setup, probe) == link(setup, usual_probe(setup))
    assert "second" not in link(setup, probe)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("?p=9", "p must"),
        ("?pp=3", "name only"),
        ("?loss=hinge", "'exp', 'logistic'"),
        ("?first=1&second=1", "another centre"),
        ("?first=7", "centres 1..4"),
        ("?across=2", "across must"),
        ("?p=1e400", "p must be a number"),
        ("?seed=", "seed must be a number, got nothing"),
        ("?p=" + "1" * LONGEST_LINK, "at most 2000 characters"),
        ("?%00=%ff", "name only"),
    ],
)
def test_bad_links_say_what_is_wrong(search, words):
    with pytest.raises(ValueError, match=words):
        read_link(search)


@given(st.dictionaries(st.sampled_from([field.name for field in fields(Setup)]), st.text()))
def test_text_is_a_set_up_or_a_value_error(given_values):
    setup = None
    with contextlib.suppress(ValueError):
        setup = read_setup(given_values)
    assert setup is None or setup.dim == max(3, setup.count)


def test_two_problems_to_compare():
    first, second = Setup(p=1.0, beside=3.0).problems()
    assert (first, second) == (Setup(p=1.0), Setup(p=3.0))
