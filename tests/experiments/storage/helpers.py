"""Trials and stores for the tests of the storage."""

from __future__ import annotations

from pathlib import Path

import torch

from extremal.experiments import Outcome, Store, Trial


def trial(number: int) -> Trial:
    """A trial by number."""
    return Trial("m:f", {"a": number}, 0)


def trials(*numbers: int) -> list[Trial]:
    """Several of them."""
    return [trial(number) for number in numbers]


def trials_of_one_pack(count: int) -> list[Trial]:
    """Trials whose keys begin alike, in the order of their keys."""
    start, found, number = trial(0).key[:2], list[Trial](), 0
    while len(found) < count:
        if trial(number).key[:2] == start:
            found.append(trial(number))
        number += 1
    return sorted(found, key=lambda each: each.key)


def filled(root: Path, *numbers: int) -> Store:
    """A store with these trials, each with a number and an array."""
    store = Store(root)
    for number in numbers:
        arrays = {"x": torch.tensor([float(number)])}
        store.write(trial(number), Outcome({"value": number}, arrays), 0.5 * number)
    return store


def damage(path: Path, at: int = -9) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
