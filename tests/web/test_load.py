"""A few people at once for a moment; `python tools/load.py` lets fifty in for a minute."""

from tools.load import load


def test_nobody_gets_an_error_and_memory_is_bounded(tmp_path):
    found = load(users=3, seconds=2.0, out=str(tmp_path))
    assert found["errors"] == []
    assert found["messages"] == []
    assert found["answers"] > 0
    assert found["resident at most, MB"] < found["resident before, MB"] + 400
