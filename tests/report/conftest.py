from typing import Any

import pytest

from tests.report.helpers_summaries import make_summary


@pytest.fixture
def summary() -> dict[str, Any]:
    """A fresh copy for each test."""
    return make_summary()
