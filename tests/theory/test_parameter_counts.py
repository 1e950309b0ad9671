"""Orders of growth with their places, and the counts that hold exactly."""

import math

import pytest

from extremal import theory


def test_orders_say_what_is_unknown():
    upper = theory.training_parameters("upper", 100, 10)
    lower = theory.training_parameters("lower", 100, 10)
    assert (upper.value, lower.value) == (1000.0, pytest.approx(math.sqrt(1000)))
    assert upper.logarithms
    assert not upper.known
    assert "unknown" in str(upper)
    assert "Theorem 2.2" in str(upper)
    assert "Theorem 2.3" in str(lower)
    clean = theory.clean_parameters(10)
    assert clean.known
    assert clean.value == 11.0


@pytest.mark.parametrize(
    ("case", "side", "place"),
    [
        ("general", "upper", "3.3"),
        ("general", "lower", "3.4"),
        ("linear", "lower", "4.3"),
        ("manifold", "upper", "5.5"),
        ("manifold", "lower", "5.8"),
    ],
)
def test_generalisation_has_the_table_s_places(case, side, place):
    order = theory.generalisation_parameters(side, case, 30, 4)
    assert order.source.endswith(place)
    assert order.exponential
    assert order.value == (4.0 if case == "manifold" else 30.0)


def test_counts():
    assert theory.memoriser_parameters(7, 5) == 6 * 7 * 5 + 2 * 7
    assert theory.memoriser_parameters(7, 5, "l1") == 6 * 7 * 5 + 4 * 7
    assert theory.ratio_lipschitz(0.2) == pytest.approx(10.0)
    sizes = [theory.grid_nodes_needed(0.2, 0.05, dim) for dim in (1, 2, 3)]
    assert sizes == [21, 21**2, 21**3]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="intrinsic must be given for a manifold"):
        theory.generalisation_parameters("upper", "manifold", 5)
    with pytest.raises(ValueError, match="intrinsic must be at most dim"):
        theory.generalisation_parameters("upper", "manifold", 5, 6)
    with pytest.raises(ValueError, match="radius must be below half the separation"):
        theory.grid_nodes_needed(0.2, 0.1, 2)
    with pytest.raises(ValueError, match="side must be one of"):
        theory.training_parameters("middle", 1, 1)
