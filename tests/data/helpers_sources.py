"""A data set of the MNIST family small enough to write down, and places to get it from."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from extremal.data.fetching.archives import SourceError
from extremal.data.fetching.download import DataFile


def idx(*sizes: int, values: bytes, code: int = 8) -> bytes:
    """An idx file, written out from the format's description."""
    head = bytes([0, 0, code, len(sizes)])
    return head + b"".join(size.to_bytes(4, "big") for size in sizes) + values


# Two training images of 2 x 3 pixels and one test image.
CONTENTS = {
    "train-images-idx3-ubyte": idx(2, 2, 3, values=bytes([0, 51, 102, 153, 204, 255] + [7] * 6)),
    "train-labels-idx1-ubyte": idx(2, values=bytes([3, 9])),
    "t10k-images-idx3-ubyte": idx(1, 2, 3, values=bytes([255, 0, 0, 0, 0, 1])),
    "t10k-labels-idx1-ubyte": idx(1, values=bytes([5])),
}


def described(contents: Mapping[str, bytes]) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )


FILES = described(CONTENTS)


class Fake:
    """A source that gives `contents` and counts how often, and for what, it was asked."""

    title = "fake"

    def __init__(self, contents: Mapping[str, bytes], reason: str | None = None) -> None:
        self.contents, self.reason = contents, reason
        self.asked: list[list[str]] = []

    def get(self, files, tell):
        self.asked.append([file.name for file in files])
        for file in files:
            if file.name in self.contents:
                tell(len(self.contents[file.name]))
                yield file, self.contents[file.name]
        if self.reason is not None:
            raise SourceError(self.reason)


def fill(folder: Path, contents: Mapping[str, bytes], *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return folder


def tgz(contents: Mapping[str, bytes], *others: tarfile.TarInfo) -> bytes:
    """An archive of plain files, then of whatever else is wanted, without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for info in others:
            packed.addfile(info)
    return out.getvalue()


def wheel(contents: Mapping[str, bytes]) -> bytes:
    """A zip file of plain files, as a wheel is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in contents.items():
            packed.writestr(name, content)
    return out.getvalue()


def debian(contents: Mapping[str, bytes]) -> bytes:
    """A Debian package with files, written out from the format's description."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as packed:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": out.getvalue()}
    whole = b"!<arch>\n"
    for name, content in parts.items():
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        whole += head.encode() + content + b"\n" * (len(content) % 2)
    return whole


def get(source, files: tuple[DataFile, ...] = FILES) -> dict[str, bytes]:
    """What a source gives for files, by their names."""
    return {file.name: content for file, content in source.get(files, lambda _: None)}
