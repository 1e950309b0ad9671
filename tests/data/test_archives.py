"""Chosen files out of packed ones: broken, evil and too large archives are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest

from extremal.data.fetching.archives import (
    SourceError,
    debian_members,
    gunzip,
    tar_members,
    zip_members,
)
from extremal.data.fetching.download import Folder
from tests.data.helpers_sources import CONTENTS, debian, get, tgz

NAMES = list(CONTENTS)


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
    assert tar_members(tgz(good), {"package/data/a": 3}) == good
    with pytest.raises(SourceError, match=reason):
        tar_members(tgz(good, other), {"package/data/a": 3})


def test_members_are_the_named_ones_if_not_too_large():
    packed = tgz({"a": b"123", "b": b"4"})
    assert tar_members(packed, {"b": 1}) == {"b": b"4"}
    for name, size in (("a", 2), ("c", 1)):
        with pytest.raises(SourceError, match=f"no {name} of at most {size} bytes"):
            tar_members(packed, {name: size})
    for broken in (packed[:-20], b"no archive", b""):
        with pytest.raises(SourceError, match=r"not a whole tar\.gz file"):
            tar_members(broken, {"a": 3, "b": 1})


def test_a_debian_package_is_read():
    files = {"usr/share/a.gz": b"123", "usr/share/b": b"4"}
    packed = debian(files)
    assert debian_members(packed, {"usr/share/a.gz": 3}) == {"usr/share/a.gz": b"123"}
    with pytest.raises(SourceError, match="no usr/share/c of at most 3 bytes"):
        debian_members(packed, {"usr/share/c": 3})
    with pytest.raises(SourceError, match="not a Debian package"):
        debian_members(tgz(files), {"usr/share/b": 3})
    for cut in (20, 100, 300, len(packed) // 2):
        with pytest.raises(SourceError, match=r"no data\.tar\.xz|not a whole tar\.xz"):
            debian_members(packed[:cut], {"usr/share/b": 3})


def test_a_wheel_is_read():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("pkg/weights", b"12345")
    content = out.getvalue()
    assert zip_members(content, {"pkg/weights": 5}) == {"pkg/weights": b"12345"}
    assert zip_members(content, {"pkg/weights": 2}) == {"pkg/weights": b"123"}  # one too many
    with pytest.raises(SourceError, match="no pkg/other in it"):
        zip_members(content, {"pkg/other": 5})
    with pytest.raises(SourceError, match="not a whole zip file"):
        zip_members(content[:-30], {"pkg/weights": 5})
