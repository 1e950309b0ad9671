"""Mirrors on the web, here a server of this machine's own."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest

from extremal.data.fetching import download
from extremal.data.fetching.archives import SourceError
from extremal.data.fetching.download import Mirror, PackedMirror
from tests.data.helpers_sources import CONTENTS, FILES, fill, get, tgz

NAMES = list(CONTENTS)
pytestmark = pytest.mark.usefixtures("_no_outside")


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
    monkeypatch.setattr(download, "_SILENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(SourceError, match=f"{NAMES[0]}.gz: timed out"):
            get(Mirror(address))
    with pytest.raises(SourceError, match="refused"):
        get(Mirror(address))


def test_one_packed_file_is_read(served):
    address, folder = served
    packed = tgz({f"toy/{name}": content for name, content in CONTENTS.items()})
    (folder / "toy.tar.gz").write_bytes(packed)
    told = []
    source = PackedMirror(f"{address}toy.tar.gz", 10**6, "toy")
    assert {f.name: c for f, c in source.get(FILES, told.append)} == CONTENTS
    assert sum(told) == len(packed)
    with pytest.raises(SourceError, match="no other/"):
        get(PackedMirror(f"{address}toy.tar.gz", 10**6, "other"))
    (folder / "toy.tar.gz").write_bytes(packed[:-40])
    with pytest.raises(SourceError, match=r"not a whole tar\.gz file"):
        get(source)
    with pytest.raises(SourceError, match=r"[nN]ot [fF]ound"):
        get(PackedMirror(f"{address}none.tar.gz", 10**6, "toy"))
