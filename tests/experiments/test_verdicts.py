"""Growth laws: slopes, intervals and residuals, against scipy and exact cases."""

import math

import pytest
from scipy import stats

from extremal.experiments.verdicts import (
    exponential_fit,
    exponential_over_power,
    line_fit,
    power_fit,
)


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
