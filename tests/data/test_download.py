"""Files of a data set: order of the sources, checks, the cache, and errors in one line."""

from __future__ import annotations

import gzip

import pytest

from extremal._files import FileError
from extremal.data import DataError
from extremal.data.fetching.download import cache_folder, fetch
from tests.data.helpers_sources import CONTENTS, FILES, Fake, fill

NAMES = list(CONTENTS)
pytestmark = pytest.mark.usefixtures("_no_outside")


def test_what_a_source_gave_is_kept_and_not_fetched_again(tmp_path):
    source = Fake(CONTENTS)
    assert fetch("toy", FILES, [source], cache=tmp_path) == CONTENTS
    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == CONTENTS
    assert fetch("toy", FILES, [source], cache=tmp_path) == CONTENTS
    assert source.asked == [NAMES]


@pytest.mark.parametrize("packed", [False, True])
def test_the_users_folder_comes_first_and_is_not_copied(tmp_path, monkeypatch, packed):
    fill(tmp_path / "mine" / "toy", CONTENTS, packed=packed)
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path / "mine"))
    source = Fake(CONTENTS)
    assert fetch("toy", FILES, [source], cache=tmp_path / "cache") == CONTENTS
    assert not source.asked
    assert not (tmp_path / "cache").exists()


def test_a_spoilt_users_folder_is_passed_over_and_left_alone(tmp_path, monkeypatch):
    wrong = {name: content + b"x" for name, content in CONTENTS.items()}
    mine = fill(tmp_path / "mine" / "toy", wrong, packed=True)
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path / "mine"))
    assert fetch("toy", FILES, [Fake(CONTENTS)], cache=tmp_path / "cache") == CONTENTS
    assert gzip.decompress((mine / f"{NAMES[0]}.gz").read_bytes()) == wrong[NAMES[0]]


SPOILT = {
    "a flipped bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("how", SPOILT)
def test_only_a_spoilt_cached_file_is_fetched_again(tmp_path, how):
    fill(tmp_path / "toy", CONTENTS)
    path = tmp_path / "toy" / NAMES[2]
    path.write_bytes(SPOILT[how](CONTENTS[NAMES[2]]))
    source = Fake(CONTENTS)
    assert fetch("toy", FILES, [source], cache=tmp_path) == CONTENTS
    assert source.asked == [[NAMES[2]]]
    assert path.read_bytes() == CONTENTS[NAMES[2]]


def test_a_half_written_file_is_none(tmp_path):
    fill(tmp_path / "toy", {f".{NAMES[0]}.17-ab.tmp": CONTENTS[NAMES[0]][:9]})
    source = Fake(CONTENTS)
    assert fetch("toy", FILES, [source], cache=tmp_path) == CONTENTS
    assert source.asked == [NAMES]


def test_sources_complete_each_other_and_bad_content_is_never_kept(tmp_path):
    first = Fake({NAMES[0]: CONTENTS[NAMES[0]], NAMES[1]: b"a page that asks you to log in"})
    last = Fake(CONTENTS)
    assert fetch("toy", FILES, [first, last], cache=tmp_path) == CONTENTS
    assert last.asked == [NAMES[1:]]
    assert (tmp_path / "toy" / NAMES[1]).read_bytes() == CONTENTS[NAMES[1]]


def test_no_source_is_one_line_with_every_reason(tmp_path):
    far = [Fake({NAMES[0]: b"??"}, "closed today"), Fake({}, "moved away")]
    with pytest.raises(DataError) as caught:
        fetch("toy", FILES, far, cache=tmp_path)
    message = str(caught.value)
    assert isinstance(caught.value, FileError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in message
    for part in (
        "cannot load toy: EXTREMAL_DATA is not set",
        f"cache {tmp_path / 'toy'}: no {NAMES[0]}, {NAMES[1]}",
        f"fake: {NAMES[0]} has fewer than its {FILES[0].size} bytes, closed today",
        "fake: moved away",
    ):
        assert part in message
    assert not (tmp_path / "toy").exists()


def test_what_one_source_gave_before_it_failed_is_kept(tmp_path):
    with pytest.raises(DataError):
        fetch("toy", FILES, [Fake({NAMES[0]: CONTENTS[NAMES[0]]}, "gone")], cache=tmp_path)
    rest = Fake(CONTENTS)
    assert fetch("toy", FILES, [rest], cache=tmp_path) == CONTENTS
    assert rest.asked == [NAMES[1:]]


def test_a_cache_that_cannot_be_written_is_said_before_any_download(tmp_path):
    (tmp_path / "file").write_text("")
    source = Fake(CONTENTS)
    with pytest.raises(DataError, match=r"cannot load toy: the cache .*file is not a folder"):
        fetch("toy", FILES, [source], cache=tmp_path / "file")
    assert not source.asked


def test_a_cache_of_another_user_is_said_before_any_download(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "extremal.data.fetching.download.os.access", lambda *_: False
    )  # root may write all
    source = Fake(CONTENTS)
    with pytest.raises(DataError, match=rf"since {tmp_path} may not be written; EXTREMAL_CACHE"):
        fetch("toy", FILES, [source], cache=tmp_path)
    assert not source.asked
    fill(tmp_path / "toy", CONTENTS)
    assert fetch("toy", FILES, [source], cache=tmp_path) == CONTENTS  # it need not be written


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "extremal"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    assert cache_folder() == tmp_path / "users" / "extremal"
    monkeypatch.setenv("EXTREMAL_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert cache_folder(tmp_path / "said") == tmp_path / "said"
    with pytest.raises(ValueError, match="path must be a string or a Path, got int"):
        cache_folder(3)


def test_progress_is_told_and_checked(tmp_path):
    told = []
    fetch("toy", FILES, [Fake(CONTENTS)], cache=tmp_path, progress=lambda *said: told.append(said))
    assert told[-1] == ("toy", 1, 1)  # megabytes, rounded up
    told.clear()
    fetch("toy", FILES, [], cache=tmp_path, progress=lambda *said: told.append(said))
    assert not told
    with pytest.raises(ValueError, match="progress must be True, False or a function"):
        fetch("toy", FILES, [], cache=tmp_path, progress=3)
