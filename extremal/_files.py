"""Files that are whole or absent: written under another name, flushed, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from extremal import _check


class FileError(ValueError):
    """A file can't be written or read; one line says which, and why."""


def as_path(path: str | os.PathLike[str]) -> Path:
    """`path` as a Path; whatever is no path at all is a ValueError."""
    good = isinstance(path, str | os.PathLike)
    _check.require(good, "path", "be a string or a Path", type(path).__name__)
    return Path(path)


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header and the tensors of a safetensors file; ValueError where it is none."""
    try:
        with safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            return opened.metadata() or {}, tensors
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def tensor_digest(settings: str, tensors: Mapping[str, Tensor], *, separator: str = "\n") -> str:
    """SHA-256 of settings and of tensors with their names, types, shapes and values.

    `separator` stands around the name, type and shape of a tensor. A flipped bit gives another one.
    """
    digest = hashlib.sha256(settings.encode())
    for name, part in sorted(tensors.items()):
        head = f"{name} {part.dtype} {tuple(part.shape)}"
        digest.update(f"{separator}{head}{separator}".encode())
        digest.update(part.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def json_file(content: Mapping[str, object]) -> bytes:
    """The strict JSON text of a mapping, with one key a line: small, and its diffs can be read."""
    rows = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'), allow_nan=False)}"
        for key, value in content.items()
    ]
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def write_whole(
    path: str | os.PathLike[str], data: bytes, *, make_folders: bool = False, new: bool = False
) -> bool:
    """Write a file so that at every moment it is the old one, the new one or none.

    The temporary file lies in the same folder, since a rename is atomic only within a file system.
    With `make_folders` the folders above it are made where they are missing. With `new` a file that
    is there already stays, and this is False.
    """
    target = as_path(path)
    temporary = target.parent / f".{target.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
    try:
        if make_folders:
            target.parent.mkdir(parents=True, exist_ok=True)
        # Not tempfile: its files are for their owner only, and results and models are shared.
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            return _linked(temporary, target)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        # A path with a null character is a ValueError to Python, not an OSError.
        if isinstance(error, OSError | ValueError):
            raise FileError(f"cannot write {target}: {_reason(error, target)}") from error
        raise
    return True


def _linked(temporary: Path, target: Path) -> bool:
    """Give a file its name unless another one has it, which a link finds out at one stroke."""
    try:
        os.link(temporary, target)
    except OSError:
        if target.exists():
            temporary.unlink()
            return False
        os.replace(temporary, target)  # a file system without links
        return True
    temporary.unlink()
    return True


def read_whole(path: str | os.PathLike[str]) -> bytes | None:
    """The content of a file, or None where there is none."""
    target = as_path(path)
    try:
        return target.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {target}: {_reason(error, target)}") from error


def _reason(error: OSError | ValueError, path: Path) -> str:
    # "No such file" would be said of the file that is to be made; what is missing is its folder.
    if isinstance(error, FileNotFoundError) and not os.path.exists(path.parent):
        return f"no such folder {path.parent}"
    return (isinstance(error, OSError) and error.strerror) or str(error)
