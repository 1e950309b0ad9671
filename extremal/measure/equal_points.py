"""Points that are equal, of one class or of several."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch

from extremal.data import Dataset

Pairs = tuple[tuple[int, int], ...]


def equal_pairs(data: Dataset, reference: Dataset | None) -> tuple[Pairs, Pairs]:
    """Pairs (point, first equal one) of one class, and of different classes, by digests of rows.

    Without a reference the second is earlier in the data. A point has one pair for each class that
    has an equal point, so that many equal points do not make a square of pairs.
    """
    other = data if reference is None else reference
    kind = torch.promote_types(data.x.dtype, other.x.dtype)
    first: dict[bytes, dict[int, int]] = {}
    if reference is not None:
        for j, (digest, label) in enumerate(_rows(reference, kind)):
            first.setdefault(digest, {}).setdefault(label, j)
    same: list[tuple[int, int]] = []
    different: list[tuple[int, int]] = []
    for i, (digest, label) in enumerate(_rows(data, kind)):
        for known, j in first.get(digest, {}).items():
            pair = (i, j) if reference is not None else (j, i)
            (same if known == label else different).append(pair)
        if reference is None:
            first.setdefault(digest, {}).setdefault(label, i)
    return tuple(sorted(same)), tuple(sorted(different))


def _rows(data: Dataset, kind: torch.dtype) -> Iterator[tuple[bytes, int]]:
    """A digest of each point's values, in which -0 is 0, and its label."""
    for part, labels in zip(data.x.split(1024), data.y.split(1024), strict=True):
        values = (part.detach().cpu().to(kind) + 0.0).numpy()
        for row, label in zip(values, labels.tolist(), strict=True):
            yield hashlib.blake2b(row.tobytes(), digest_size=32).digest(), label
