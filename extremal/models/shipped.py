"""Trained networks that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "networks"


def shipped() -> tuple[str, ...]:
    """The names of the networks that `load` knows, such as "mnist-p3"; README.md is their card."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.safetensors")))


def shipped_file(name: str) -> Path:
    """The file of a network that comes with the package."""
    return _FOLDER / f"{name}.safetensors"
