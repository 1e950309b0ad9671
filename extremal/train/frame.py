"""Coordinates for neurons: a shared subspace, and for each one the rest of its first direction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_NOTHING = 1e-9  # a rest shorter than this is rounding


@dataclass(frozen=True, eq=False)
class Frame:
    """u_j = z_j basis + beta_j rest_j, held as the row (z_j, beta_j) of a `place` (h, r + 1).

    `basis` (r, dim) has orthonormal rows; `rest` (h, dim) holds unit rows orthogonal to them, or
    zeros where a neuron starts within their span. Gradients on Gaussian clusters keep u in there
    (Stein's lemma); on other data the share of a gradient that lies off it is to be looked at.
    """

    basis: Tensor
    rest: Tensor

    @classmethod
    def of(cls, directions: Tensor, basis: Tensor) -> tuple[Frame, Tensor]:
        """The frame of neurons that start at `directions` (h, dim), and their first place."""
        inside = directions @ basis.T
        rest = directions - inside @ basis
        beta = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
        beta = torch.where(beta > _NOTHING, beta, 0.0)
        unit = torch.where(beta > 0, rest / torch.where(beta > 0, beta, 1.0), 0.0)
        return cls(basis, unit), torch.cat([inside, beta], 1)

    def lift(self, place: Tensor) -> Tensor:
        """Unit vectors (h, dim)."""
        return place[:, :-1] @ self.basis + place[:, -1:] * self.rest

    def mean(self, share: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Means of directions within the basis, (k, r), and the whole means' lengths, (k, 1)."""
        inside = share @ place[:, :-1]
        rest = (share * place[:, -1]) @ self.rest
        return inside, (inside.square().sum(1) + rest.square().sum(1)).sqrt()[:, None]


def unit(rows: Tensor) -> Tensor:
    """Rows of length one."""
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
