"""A few people at once for a moment; `python bench/explorer_load.py` lets fifty in for a minute."""

import json
import math

import pytest

from bench.explorer_load import CHOICES, STORED, Count, load, told
from extremal.web.answer_pool import KEPT_BYTES

MOST = 1_500_000  # bytes: fewer than the answers of a moment come to


def test_nobody_gets_an_error_and_memory_is_bounded(tmp_path):
    found = load(users=3, seconds=2.5, out=str(tmp_path), most=MOST)
    assert found["errors"] == []
    assert found["messages"] == {}
    assert found["answers"] > 0
    assert found["networks"] > 3
    assert 0 < found["kept"]["bytes"] <= MOST
    assert found["kept"]["jobs"] == 0
    assert found["growth in the second half, MB"] < 20


def test_people_choose_among_more_networks_than_are_kept():
    assert math.prod(len(values) for values in CHOICES.values()) > 3 * 128


@pytest.mark.skipif(
    not STORED.is_file(), reason="python bench/explorer_load.py --store was not run yet"
)
def test_fifty_people_for_a_minute_got_no_error():
    found = json.loads(STORED.read_text())
    assert (found["users"], found["seconds"]) == (50, 60.0)
    assert found["networks"] >= 93
    assert found["errors"] == []
    assert found["kept"]["bytes"] <= KEPT_BYTES
    # What is kept may still fill in the second half, but it is bounded.
    assert (
        found["resident, MB"]["at the end"] < found["resident, MB"]["before"] + 3 * KEPT_BYTES / 1e6
    )


def test_errors_and_busy_servers_are_counted():
    good = Count(waits=[1.0, 3.0, 2.0], networks={"a", "b"}, given_up=4)
    bad = Count(errors=["no"], messages=["the server is busy", "the server is busy"])
    sizes = {"before": 1.0, "at half": 2.0, "at the end": 5.0}
    found = told([Count(), good, bad], 60.0, sizes, {"bytes": 1})
    assert (found["users"], found["networks"], found["answers"]) == (2, 2, 3)
    assert (found["errors"], found["busy"]) == (["no"], 2)
    assert found["messages"] == {"the server is busy": 2}
    assert (found["median wait, s"], found["given up for a later move"]) == (2.0, 4)
    assert found["growth in the second half, MB"] == 3.0
