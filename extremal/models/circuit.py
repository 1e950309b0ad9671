"""ReLU networks put together neuron by neuron, with their parameters counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from extremal import _check
from extremal.models.fully_connected import MLP

MOST_WEIGHTS = 1 << 27  # of dense matrices: 1 GB
Wire = Mapping[int, float]  # a sum of neurons of the last layer (or of inputs), with weights
Neuron = tuple[Wire, float | None]  # relu(wire + bias), or without a bias


class Circuit:
    """Layers of ReLU neurons over `dim` inputs, each a sparse sum of neurons of the layer before.

    `count` is the number of weights and biases so far: those that a neuron names.
    """

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._inputs = dim
        self._sums: list[tuple[list[Wire], list[float | None]]] = []

    def add(self, neurons: Iterable[Neuron]) -> list[Wire]:
        """Add a layer; wires to each of its neurons are returned."""
        listed = list(neurons)
        self._append([wire for wire, _ in listed], [bias for _, bias in listed])
        return [{i: 1.0} for i in range(len(listed))]

    def network(self, outputs: Sequence[Wire]) -> MLP:
        """The network that reads these sums of the last layer, in float64."""
        self.end(outputs)
        layers: list[nn.Module] = []
        inputs = self._inputs
        for wires, biases in self._sums:
            layers += [_dense(inputs, wires, biases), nn.ReLU()]
            inputs = len(wires)
        ends = [nn.Flatten(0)] if len(outputs) == 1 else []
        return MLP(*layers[:-1], *ends)

    def end(self, outputs: Sequence[Wire]) -> None:
        """Add the output layer, to count it, with no matrix built."""
        self._append(list(outputs), [None] * len(outputs))

    def _append(self, wires: list[Wire], biases: list[float | None]) -> None:
        self.count += sum(map(len, wires)) + sum(bias is not None for bias in biases)
        self._sums.append((wires, biases))


def _dense(inputs: int, wires: list[Wire], biases: list[float | None]) -> nn.Linear:
    """A linear layer with these weights, and zeros elsewhere."""
    # Made on "meta", so that it draws nothing.
    layer = nn.Linear(inputs, len(wires), dtype=torch.float64, device="meta")
    layer = layer.to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.zero_()
        for row, wire in enumerate(wires):
            for place, value in wire.items():
                layer.weight[row, place] = value
        values = [0.0 if bias is None else bias for bias in biases]
        layer.bias.copy_(torch.tensor(values, dtype=torch.float64))
    return layer


def check_dense(name: str, widths: Sequence[int]) -> None:
    """Require that dense matrices between layers of these widths have at most 2^27 weights."""
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    rule = f"be small enough for dense matrices of at most {MOST_WEIGHTS} weights"
    _check.require(weights <= MOST_WEIGHTS, name, rule, f"{weights} weights")


def combined(*terms: tuple[float, Wire]) -> Wire:
    """The sum of wires, each times a number."""
    total: dict[int, float] = {}
    for factor, wire in terms:
        for place, value in wire.items():
            total[place] = total.get(place, 0.0) + factor * value
    return total
