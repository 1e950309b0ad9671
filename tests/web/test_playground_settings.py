"""What a browser may ask for: bounds, and links that say the same again."""

from __future__ import annotations

import contextlib
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extremal.web.playground_settings import (
    LONGEST_LINK,
    PLANE_REACH,
    SETTING_BOUNDS,
    WHOLE_NUMBERS,
    PlanePoint,
    PlaygroundSettings,
    described,
    link,
    read_link,
    read_plane_point,
    read_settings,
    usual_plane_point,
)


def reals(low: float, high: float) -> st.SearchStrategy:
    return st.floats(low, high, allow_subnormal=False)  # which the tests flush


def values(name: str) -> st.SearchStrategy:
    bound = SETTING_BOUNDS[name]
    if name in WHOLE_NUMBERS:
        return st.integers(int(bound.low), int(bound.high))
    return reals(bound.low, bound.high)


SETUPS = st.builds(
    PlaygroundSettings,
    loss=st.sampled_from(["exp", "logistic"]),
    second_p=st.none() | values("p"),
    **{name: values(name) for name in SETTING_BOUNDS},
)


@given(SETUPS, st.data())
def test_a_link_says_the_same_again(setup, data):
    centres = data.draw(st.permutations(range(1, setup.count + 1)))[:2]
    places = reals(-PLANE_REACH, PLANE_REACH)
    probe = PlanePoint(*centres, data.draw(places), data.draw(places))
    assert read_link(link(setup, probe)) == (setup, probe)


def test_the_usual_set_up_has_the_shortest_link():
    assert link(PlaygroundSettings(), PlanePoint()) == ""
    assert read_link("") == read_link(None) == (PlaygroundSettings(), PlanePoint())
    assert link(PlaygroundSettings(p=3.0), PlanePoint()) == "?p=3.0"


@pytest.mark.parametrize("name", SETTING_BOUNDS)
def test_the_bounds_are_allowed_and_nothing_beyond(name):
    bound = SETTING_BOUNDS[name]
    for value in (bound.low, bound.high):
        assert getattr(read_settings({name: value}), name) == value
        assert getattr(read_settings({name: str(value)}), name) == value
    for value in (bound.low - bound.step, bound.high + bound.step, math.nan, math.inf, "many", []):
        with pytest.raises(ValueError, match=name):
            read_settings({name: value})


def test_whole_numbers_are_whole():
    with pytest.raises(ValueError, match=r"width must be a whole number from 4 to 300, got 60\.5"):
        read_settings({"width": 60.5})


def test_what_is_missing_is_as_usual():
    assert read_settings({"loss": "logistic", "second_p": None}) == PlaygroundSettings(
        loss="logistic"
    )
    assert read_plane_point({}, PlaygroundSettings()) == PlanePoint()


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_is_there_without_a_value_is_no_default(nothing):
    for name in SETTING_BOUNDS:
        with pytest.raises(ValueError, match=rf"^{name} must be a number, got nothing$"):
            read_settings({name: nothing})
    with pytest.raises(ValueError, match="loss must be one of"):
        read_settings({"loss": nothing})
    with pytest.raises(ValueError, match="up must be a number, got nothing"):
        read_plane_point({"up": nothing}, PlaygroundSettings())


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (2, 2), (6, 1)])
def test_the_usual_plane_is_between_the_classes(positive, negative):
    setup = PlaygroundSettings(positive=positive, negative=negative)
    probe = read_plane_point({}, setup)
    assert (probe.first, probe.second) == (1, positive + 1)
    assert link(setup, probe) == link(setup, usual_plane_point(setup))
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
        ("?p=3&p=1", "link must name p once, got 3 and 1"),
        ("?p=3&seed=1&p=3", "link must name p once, got 3 and 3"),
        ("?second_p=2&beside=3", "name the second p once"),
        ("?seed=", "seed must be a number, got nothing"),
        ("?p=" + "1" * LONGEST_LINK, "at most 2000 characters"),
        ("?%00=%ff", "name only"),
    ],
)
def test_bad_links_say_what_is_wrong(search, words):
    with pytest.raises(ValueError, match=words):
        read_link(search)


@given(
    st.dictionaries(
        st.sampled_from([field.name for field in fields(PlaygroundSettings)]), st.text()
    )
)
def test_text_is_a_set_up_or_a_value_error(given_values):
    setup = None
    with contextlib.suppress(ValueError):
        setup = read_settings(given_values)
    assert setup is None or setup.dim == max(3, setup.count)


def test_two_problems_to_compare():
    both = PlaygroundSettings(p=1.0, second_p=3.0)
    assert described(both) == (
        "p = 1 and p = 3 · 2 + 2 subclasses · spread 0.1 · first weights 1e-4 · 60 neurons · "
        "seed 0 · exp loss"
    )
    assert read_link("?beside=3")[0] == both  # a link of an earlier version
    first, second = both.problems()
    assert (first, second) == (PlaygroundSettings(p=1.0), PlaygroundSettings(p=3.0))
