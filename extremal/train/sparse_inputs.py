"""Data in which most columns nearly always hold one value, as the pixels of a dark border do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.models import DenseInputs, Preparation, PreparedInputs

# A column is rare, and kept as entries, where at most this share of the points differs.
_MOST_DIFFERING_SHARE = 1 / 8
# Entries pay off where at least this share of the columns is rare.
_LEAST_RARE_COLUMN_SHARE = 1 / 4
# The usual value of a column is the median of so many points.
_POINTS_FOR_USUAL_VALUE = 1000
# So many points are prepared at a time, to bound memory.
_POINTS_PER_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class SparseColumns:
    """What the points of a data set share: which columns are rare, and their usual values."""

    rare: Tensor  # indices of columns
    rest: Tensor
    usual: Tensor  # scale (u - center) of the rare columns, u what they nearly always hold


class SparseDataset:
    """A prepared data set z = a (scale (x - center)), a = ||scale (x - center)||^-normalize.

    In a rare column k, z_ik = a_i usual_k but for few i. So z is a matrix of the other columns and
    of a, and the entries z_ik - a_i usual_k of the rest: on MNIST 325 of 784 columns are a matrix,
    and a point has 9 entries. Nothing is left out: products are those of z, for less than half
    of the work. Data without enough rare columns is one matrix.
    """

    def __init__(self, x: Tensor, preparation: Preparation) -> None:
        usual = x[:: max(1, len(x) // _POINTS_FOR_USUAL_VALUE)].median(0).values
        differ = torch.stack([(part != usual).sum(0) for part in x.split(_POINTS_PER_BLOCK)]).sum(0)
        rare = differ <= _MOST_DIFFERING_SHARE * len(x)
        rare &= rare.sum() >= _LEAST_RARE_COLUMN_SHARE * len(rare)
        level = preparation.scaled_offset(usual.unsqueeze(0))[0, rare]
        rare, rest = rare.nonzero()[:, 0], (~rare).nonzero()[:, 0]
        self.columns = SparseColumns(rare, rest, level) if len(rare) else None
        self.matrix = x.new_empty(len(x), len(rest) + 1 if len(rare) else len(rest))
        found = [
            self._write_block(part, usual[rare], preparation, out)
            for part, out in zip(
                x.split(_POINTS_PER_BLOCK), self.matrix.split(_POINTS_PER_BLOCK), strict=True
            )
        ]
        self.counts, self.column, self.value = (
            torch.cat(parts) for parts in zip(*found, strict=True)
        )
        self.first = self.counts.cumsum(0) - self.counts

    def _write_block(
        self, x: Tensor, usual: Tensor, preparation: Preparation, out: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Write points to `out`; the number of entries of each, their columns and values."""
        z = preparation(x)
        if self.columns is None:
            out.copy_(z)
            none = torch.zeros(0, dtype=torch.long, device=x.device)
            return none, none, z.new_zeros(0)
        shared = self.columns
        length = torch.linalg.vector_norm(
            preparation.scaled_offset(x).double(), dim=1, keepdim=True
        )
        size = torch.where(length > 0, length**-preparation.normalize, 0.0).to(z.dtype)  # a
        torch.cat([z[:, shared.rest], size], dim=1, out=out)
        odd = x[:, shared.rare] != usual
        value = (z[:, shared.rare] - size * shared.usual)[odd]
        return odd.sum(1), odd.nonzero()[:, 1], value

    def take(self, rows: Tensor) -> PreparedInputs:
        """The points of these indices."""
        rows = rows.to(self.matrix.device)
        matrix = self.matrix.index_select(0, rows)
        if self.columns is None:
            return DenseInputs(matrix)
        counts = self.counts[rows]
        first = counts.cumsum(0) - counts
        start = torch.repeat_interleave(self.first[rows] - first, counts)
        at = start + torch.arange(len(start), device=start.device)
        return SparseBatch(self.columns, matrix, counts, self.column[at], self.value[at])


@dataclass(frozen=True, eq=False)
class SparseBatch(PreparedInputs):
    """Some points of a data set: the matrix, and the entries in the order of the points."""

    shared: SparseColumns
    matrix: Tensor  # (n, columns that are not rare, and a)
    counts: Tensor  # (n,) entries of each point
    column: Tensor  # (entries,) among the rare ones
    value: Tensor  # (entries,)

    def inner(self, directions: Tensor, offsets: Tensor | None) -> Tensor:
        """<z_i, direction_j> + offset_j, (n, width)."""
        rare = directions.T.index_select(0, self.shared.rare)  # (rare columns, width)
        level = (self.shared.usual @ rare).unsqueeze(1)
        whole = torch.cat([directions.index_select(1, self.shared.rest), level], dim=1)
        s = nn.functional.linear(self.matrix, whole, offsets)
        return s.add_(_grouped_sums(rare, self.column, self.value, self.counts))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """sum_i weight_ij z_i, (width, dim)."""
        shared, whole = self.shared, weights.T @ self.matrix
        point = torch.repeat_interleave(self.counts)
        order = self.column.argsort(stable=True)
        counts = torch.bincount(self.column, minlength=len(shared.rare))
        rare = _grouped_sums(weights, point[order], self.value[order], counts)
        rare.addr_(shared.usual, whole[:, -1])
        out = whole.new_empty(len(whole), len(shared.rest) + len(shared.rare))
        out.index_copy_(1, shared.rest, whole[:, :-1])
        return out.index_copy_(1, shared.rare, rare.T)


def _grouped_sums(table: Tensor, row: Tensor, value: Tensor, counts: Tensor) -> Tensor:
    """sum_e value_e table[row_e] over the entries e of each group, which are `counts` in a row."""
    first = counts.cumsum(0) - counts
    return nn.functional.embedding_bag(row, table, first, mode="sum", per_sample_weights=value)
