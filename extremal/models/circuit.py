"""ReLU networks put together neuron by neuron, with their parameters counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from extremal.models.deep import MLP

Wire = Mapping[int, float]  # a sum of neurons of the last layer (or of inputs), with weights
Neuron = tuple[Wire, float | None]  # relu(wire + bias), or without a bias


class Circuit:
    """Layers of ReLU neurons over `dim` inputs, each a sparse sum of neurons of the layer before.

    `count` is the number of weights and biases so far: those that a neuron names.
    """

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._inputs = dim
        self._layers: list[nn.Module] = []

    def add(self, neurons: Iterable[Neuron]) -> list[Wire]:
        """Add a layer; wires to each of its neurons are returned."""
        listed = list(neurons)
        self._append([wire for wire, _ in listed], [bias for _, bias in listed])
        self._layers.append(nn.ReLU())
        return [{i: 1.0} for i in range(len(listed))]

    def network(self, outputs: Sequence[Wire]) -> MLP:
        """The network that reads these sums of the last layer, in float64."""
        self._append(outputs, [None] * len(outputs))
        ends = [nn.Flatten(0)] if len(outputs) == 1 else []
        return MLP(*self._layers, *ends)

    def _append(self, wires: Sequence[Wire], biases: Sequence[float | None]) -> None:
        # Made on "meta", so that it draws nothing.
        layer = nn.Linear(self._inputs, len(wires), dtype=torch.float64, device="meta")
        layer = layer.to_empty(device="cpu")
        weight = torch.zeros(len(wires), self._inputs, dtype=torch.float64)
        for row, wire in enumerate(wires):
            for place, value in wire.items():
                weight[row, place] = value
        self._fill(layer.weight, weight)
        values = [0.0 if bias is None else bias for bias in biases]
        self._fill(layer.bias, torch.tensor(values, dtype=torch.float64))
        self.count += sum(map(len, wires)) + sum(bias is not None for bias in biases)
        self._layers.append(layer)
        self._inputs = len(wires)

    @staticmethod
    def _fill(part: Tensor, value: Tensor) -> None:
        with torch.no_grad():
            part.copy_(value)


def combined(*terms: tuple[float, Wire]) -> Wire:
    """The sum of wires, each times a number."""
    total: dict[int, float] = {}
    for factor, wire in terms:
        for place, value in wire.items():
            total[place] = total.get(place, 0.0) + factor * value
    return total
