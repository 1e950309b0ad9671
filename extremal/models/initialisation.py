"""How networks start: each initialisation draws the weights of a shallow network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from extremal import _check


@dataclass(frozen=True)
class Weights:
    """Weights of a shallow network: shapes (width, dim), (outputs, width), (width,), (outputs,)."""

    neurons: Tensor  # (width, dim): the w_j of `PReLUNet`
    votes: Tensor  # (outputs, width): what each neuron adds to each output
    hidden_bias: Tensor  # (width,): of the neurons
    bias: Tensor  # (outputs,): of the outputs


class Initialisation(Protocol):
    """Anything that draws `Weights` in float64 from a generator.

    A protocol: any class with such a `draw` will do. It can't be made itself, so that it takes no
    `args` or `kwargs`.
    """

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """The weights of a network of this size.

        Arguments:

        - `dim`: how many coordinates a point has.
        - `width`: how many neurons there are.
        - `outputs`: how many outputs the neurons vote on.
        - `generator`: a `torch.Generator` that all random draws come from.
        """
        ...


@dataclass(frozen=True)
class Gaussian:
    """Every weight and hidden bias N(0, std^2), output biases zero.

    Min & Vidal 2024, Section 5.1, with std = 1e-7.
    """

    std: float  # above 0: the standard deviation of each weight

    def __post_init__(self) -> None:
        _check.number("std", self.std, above=0.0)

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """Draw neurons, then votes, then hidden biases. Arguments as in `Initialisation.draw`."""
        return Weights(
            neurons=self.std * normal_draw(width, dim, generator=generator),
            votes=self.std * normal_draw(outputs, width, generator=generator),
            hidden_bias=self.std * normal_draw(width, generator=generator),
            bias=torch.zeros(outputs, dtype=torch.float64),
        )


@dataclass(frozen=True)
class Balanced:
    """w_j = scale w_j0 and |v_j| = ||w_j||: Min & Vidal 2024, eq. 4 (`scale` is epsilon).

    w_j0 has entries uniform in (-1/sqrt(dim), 1/sqrt(dim)), as the paper's footnote 2 suggests, so
    that ||w_j0|| <= M = 1. Signs are drawn fairly; with several outputs the votes of a neuron are a
    random direction of length ||w_j||. Hidden biases start at zero.
    """

    scale: float

    def __post_init__(self) -> None:
        _check.number("scale", self.scale, above=0.0)

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """Draw directions, then the votes' directions. Arguments as in `Initialisation.draw`."""
        first = uniform_draw(width, dim, generator=generator) / dim**0.5
        toward = normal_draw(outputs, width, generator=generator)
        toward = toward / torch.linalg.vector_norm(toward, dim=0)
        lengths = torch.linalg.vector_norm(first, dim=-1)
        return Weights(
            neurons=self.scale * first,
            votes=self.scale * lengths * toward,
            hidden_bias=torch.zeros(width, dtype=torch.float64),
            bias=torch.zeros(outputs, dtype=torch.float64),
        )


@dataclass(frozen=True)
class Kaiming:
    """The initialisation of the MNIST networks: neurons uniform in +-sqrt(6/width).

    The authors apply Kaiming's uniform rule to a (dim, width) tensor, so its fan-in is the width;
    votes and biases are uniform in +-1/sqrt(width), PyTorch's default for a linear layer. Hidden
    biases, which the paper's networks lack, are uniform in +-1/sqrt(dim).
    """

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """Draw neurons, votes, hidden and output biases. Arguments as in `Initialisation.draw`."""
        return Weights(
            neurons=(6.0 / width) ** 0.5 * uniform_draw(width, dim, generator=generator),
            votes=width**-0.5 * uniform_draw(outputs, width, generator=generator),
            hidden_bias=dim**-0.5 * uniform_draw(width, generator=generator),
            bias=width**-0.5 * uniform_draw(outputs, generator=generator),
        )


@dataclass(frozen=True)
class Blocks:
    """Neurons N(0, std^2), and votes that assign each neuron to one output or one side.

    With one output the first half of the neurons votes +`vote` and the others -`vote`; with C
    outputs equally many neurons vote `vote` for each, in order, and 0 for the others. Hidden biases
    are N(0, bias_std^2), or zero. Li et al. 2025 keep these votes fixed: `net.freeze("votes")`.
    """

    std: float  # above 0: the standard deviation of each entry of a neuron
    bias_std: float = 0.0  # at least 0: the standard deviation of each hidden bias
    vote: float = 1.0  # above 0: the size of each vote

    def __post_init__(self) -> None:
        _check.number("std", self.std, above=0.0)
        _check.number("bias_std", self.bias_std, minimum=0.0)
        _check.number("vote", self.vote, above=0.0)

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """Draw neurons, then hidden biases. Arguments as in `Initialisation.draw`."""
        sides = max(2, outputs)
        even = width % sides == 0
        _check.require(even, "width", f"be a multiple of {sides}, so that blocks are equal", width)
        side = torch.arange(width) // (width // sides)
        one = nn.functional.one_hot(side, sides).double().T  # (sides, width)
        votes = one if outputs > 1 else one[:1] - one[1:]
        return Weights(
            neurons=self.std * normal_draw(width, dim, generator=generator),
            votes=self.vote * votes,
            hidden_bias=self.bias_std * normal_draw(width, generator=generator),
            bias=torch.zeros(outputs, dtype=torch.float64),
        )


@dataclass(frozen=True, eq=False)
class Explicit:
    """Given weights; biases default to zero."""

    neurons: Tensor  # (width, dim): the w_j of `PReLUNet`
    votes: Tensor  # (outputs, width): what each neuron adds to each output
    hidden_bias: Tensor | None = None  # (width,): used where the network has hidden biases
    bias: Tensor | None = None  # (outputs,): used where the network has output biases

    def draw(self, dim: int, width: int, outputs: int, *, generator: torch.Generator) -> Weights:
        """The given weights; nothing is random. Arguments as in `Initialisation.draw`."""
        del generator
        wanted: dict[str, tuple[int, ...]] = {
            "neurons": (width, dim),
            "votes": (outputs, width),
            "hidden_bias": (width,),
            "bias": (outputs,),
        }
        parts: dict[str, Tensor] = {}
        for name, shape in wanted.items():
            value: Tensor | None = getattr(self, name)
            if value is None and name.endswith("bias"):
                value = torch.zeros(shape, dtype=torch.float64)
            # A copy: training a network must not change the weights that another one holds.
            copied = (
                value.detach().to(torch.float64, copy=True) if isinstance(value, Tensor) else value
            )
            parts[name] = _check.tensor(name, copied, shape)
        return Weights(**parts)


def normal_draw(*shape: int, generator: torch.Generator) -> Tensor:
    """Numbers N(0, 1), in float64, so that one seed gives the same in every dtype."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def uniform_draw(*shape: int, generator: torch.Generator) -> Tensor:
    """Numbers uniform in (-1, 1), in float64, so that one seed gives the same in every dtype."""
    return 2.0 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1.0
