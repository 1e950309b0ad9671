"""What a machine must have in common with the client, so that its results are the client's own."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "dask", "distributed")


def describe(studies: Iterable[str]) -> dict[str, str]:
    """Versions, and checksums of this package's source and of the studies' modules."""
    found = {"python": platform.python_version(), "extremal": _OURS}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    for module in sorted({study.partition(":")[0] for study in studies}):
        if not module.startswith("extremal."):
            found[module] = _module(module)
    return found


def asked(studies: Iterable[str]) -> Callable[[Any], tuple[dict[str, str], int]]:
    """A function that describes the Dask worker where it runs: versions, and memory in bytes.

    It is sent as code rather than by its name, since a machine without this package has no names.
    """
    wanted = list(studies)

    def ask(dask_worker: Any) -> tuple[dict[str, str], int]:
        import importlib  # noqa: PLC0415 - where it runs
        import platform  # noqa: PLC0415

        try:
            module = importlib.import_module("extremal.experiments.versions")
            found: dict[str, str] = module.describe(wanted)
        except ImportError as error:
            found = {"python": platform.python_version(), "extremal": f"none ({error})"}
        return found, dask_worker.memory_manager.memory_limit or 0

    return ask


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """What differs, as "torch 2.13.0 here, 2.12.0 there"."""
    return [
        f"{name} {value} here, {theirs.get(name, 'none')} there"
        for name, value in ours.items()
        if theirs.get(name) != value
    ]


def _module(name: str) -> str:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return f"none ({error})"
    file = getattr(module, "__file__", None)
    return "no file" if file is None else _digest([Path(file)])


def _digest(paths: Iterable[Path]) -> str:
    total = sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    return f"source {total.hexdigest()[:12]}"


# Once, when it is imported: a process that has run for long has what was there at its start.
_OURS = _digest(Path(__file__).parents[1].rglob("*.py"))
