"""Nobody's folders but the test's own."""

from __future__ import annotations

import pytest


@pytest.fixture
def _no_outside(monkeypatch):
    for name in ("EXTREMAL_DATA", "EXTREMAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
