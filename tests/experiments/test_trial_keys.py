"""The content addresses of all trials of all records: stored results are found by them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from extremal.experiments import SCALES, get, names

# Of each record and scale the number of trials and the SHA-256 of their keys, one a line. A record
# that computes something else has a higher `version` and new keys: only then is a row changed.
KEYS = json.loads((Path(__file__).parent / "trial_keys.json").read_text())


def test_all_records_are_listed() -> None:
    assert sorted(KEYS) == names()


@pytest.mark.parametrize("name", sorted(KEYS))
def test_keys_stay_what_they_are(name: str) -> None:
    record = get(name)
    found = {}
    for scale in SCALES:
        keys = [trial.key for trial in record.trials(scale)]
        found[scale] = [len(keys), hashlib.sha256("\n".join(keys).encode()).hexdigest()]
    assert found == KEYS[name]
