"""Prepared inputs, as a matrix or in any form that knows its two products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn


class Inputs(ABC):
    """Prepared inputs z (n, dim), of which a gradient in the parameters needs only products."""

    @abstractmethod
    def inner(self, directions: Tensor, offsets: Tensor | None) -> Tensor:
        """<z_i, direction_j> + offset_j, (n, width); a tensor of its own."""

    @abstractmethod
    def total(self, weights: Tensor) -> Tensor:
        """sum_i weight_ij z_i, (width, dim), for weights (n, width); a tensor of its own."""


@dataclass(frozen=True, eq=False)
class Rows(Inputs):
    """A matrix of prepared inputs."""

    z: Tensor  # (n, dim)

    def inner(self, directions: Tensor, offsets: Tensor | None) -> Tensor:
        """<z_i, direction_j> + offset_j, (n, width)."""
        return nn.functional.linear(self.z, directions, offsets)

    def total(self, weights: Tensor) -> Tensor:
        """sum_i weight_ij z_i, (width, dim)."""
        return weights.T @ self.z
