"""A ReLU network that interpolates a function on a grid of the cube: exp(d) parameters."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import norm_ratio, rounding_share
from extremal.models.fully_connected import MLP
from extremal.models.provable_constructions import (
    Circuit,
    DistanceRatio,
    Norm,
    SparseSum,
    check_dense,
    combined,
    pairwise_distances,
)

# A block of nodes has so many coordinates at most, so that memory stays small.
_BLOCK_COORDINATES = 1 << 22

# A grid has so many nodes at most, each of which takes dim + 1 numbers.
_MOST_NODES = 1 << 22

# A coordinate of the cube, and its distance to a node, are rounded so often at most.
_CUBE_ROUNDINGS = 32.0

# So many parameters at most are counted one by one, which holds all of them.
_MOST_COUNTED_PARAMETERS = 1 << 21


class GridNet(nn.Module):
    """f(x) = sum over nodes k of values_k hat(s x - k): piecewise linear through its nodes' values.

    Nodes k in {0..s}^d stand at k/s, s = `side` - 1. hat(t) = relu(1 - max_j relu(t_j)
    - max_j relu(-t_j)) is the nodal function of the Freudenthal triangulation of the grid, so that
    f(x) is a mean of the values at the corners of a simplex, each nearer than 1/s to x in linf.
    Points outside the cube are moved to its nearest point. A function with Lipschitz constant L in
    linf is met to within L/s.

    `values` has d axes of `side` entries. As a ReLU network it has `parameter_count` parameters;
    `explicit` is that network with dense matrices, for small grids.
    """

    values: Tensor
    nodes: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        _check.instance("values", values, Tensor, "be a tensor with one axis for each coordinate")
        same = values.ndim >= 1 and len(set(values.shape)) == 1 and values.shape[0] >= 2
        rule = "have axes of one length >= 2"
        _check.require(same, "values", rule, f"shape {tuple(values.shape)}")
        _check.finite("values", values)
        self.dim, self.side, self.outputs = values.ndim, values.shape[0], 1
        self.register_buffer("values", values.detach().double().flatten())
        self.register_buffer("nodes", _grid_nodes(self.dim, self.side))

    @classmethod
    def of(cls, function: nn.Module, dim: int, side: int) -> GridNet:
        """The interpolant of a network (n, dim) to (n,) on a grid of side^dim nodes.

        Arguments:

        - `function`: any module from points (n, dim) to outputs (n,).
        - `dim`: how many coordinates a point has.
        - `side`: nodes along each axis, 2 or more; more of them are nearer to the function.
        """
        _check.integer("dim", dim, minimum=1)
        _check.integer("side", side, minimum=2)
        many = side**dim
        _check.require(many <= _MOST_NODES, "side", f"have side^dim <= {_MOST_NODES}", many)
        with torch.no_grad():
            places = _grid_nodes(dim, side) / (side - 1)
            values = torch.cat([function(part) for part in places.split(4096)])
        return cls(values.reshape([side] * dim))

    @property
    def spacing(self) -> float:
        """1/s, the distance of neighbouring nodes."""
        return 1.0 / (self.side - 1)

    @property
    def parameter_count(self) -> int:
        """Weights and biases of `explicit`, in closed form.

        3 d for the move into the cube, 6 d side for the distances along each axis, and for each
        node two maxima over d numbers, the hat and its value.
        """
        weights, terms = _maximum_count(self.dim)
        node = 2 * weights + 2 * terms + 1 + 1
        return 3 * self.dim + 6 * self.dim * self.side + self.side**self.dim * node

    def forward(self, x: Tensor) -> Tensor:
        """The output (n,) at `x` (n, dim), computed in the dtype of the values."""
        dtype, x = x.dtype, x.to(self.values.dtype)
        inside = x.clamp(0.0, 1.0) * (self.side - 1)
        block = max(1, _BLOCK_COORDINATES // (max(1, len(x)) * self.dim))
        out = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for nodes, values in zip(self.nodes.split(block), self.values.split(block), strict=True):
            t = inside.unsqueeze(1) - nodes  # (n, nodes, d)
            above, below = torch.relu(t).amax(2), torch.relu(-t).amax(2)
            out = out + torch.relu(1.0 - above - below) @ values
        return out.to(dtype)

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """The linf distance to the nearest node whose value is not of class y, less the spacing.

        Up to there all corners of a point's simplex have the right sign. By enumeration of nodes.
        Arguments as in `KnowsRadii.proven_radii`.
        """
        x = x.clamp(0.0, 1.0)
        block = max(1, _BLOCK_COORDINATES // max(1, len(x)))
        least = torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for nodes, values in zip(self.nodes.split(block), self.values.split(block), strict=True):
            far = pairwise_distances(x, nodes * self.spacing, "linf")
            wrong = y.to(x.dtype).unsqueeze(1) * values <= 0
            least = torch.minimum(least, far.where(wrong, torch.inf).amin(1))
        # Coordinates of the cube are rounded to it in a few steps.
        rounding = rounding_share(_CUBE_ROUNDINGS, x.dtype)
        return (least - self.spacing - rounding).clamp(min=0.0) / norm_ratio("linf", norm, self.dim)

    def explicit(self) -> MLP:
        """The same function as linear layers and ReLUs, in float64: dense, of 2^27 weights at most.

        Some 4 dim side^(2 dim) of them, nearly all of which are zeros.
        """
        dim, many, rounds = self.dim, len(self.nodes), []
        while dim > 1:
            rounds.append(2 * many * dim)
            dim = -(-dim // 2)
        ends = [self.dim, 2 * self.dim, 2 * self.dim * self.side]
        check_dense("side", [*ends, *rounds, many, 1])
        circuit, output = self._circuit()
        return circuit.network([output])

    def counted(self) -> int:
        """The parameters of `explicit`, counted one by one; no matrix is built."""
        rule = f"have at most {_MOST_COUNTED_PARAMETERS} parameters to count"
        few = self.parameter_count <= _MOST_COUNTED_PARAMETERS
        _check.require(few, "side", rule, self.parameter_count)
        circuit, output = self._circuit()
        circuit.end([output])
        return circuit.count

    def _circuit(self) -> tuple[Circuit, SparseSum]:
        """The hidden layers, and the sum that the output is."""
        circuit, scale = Circuit(self.dim), float(self.side - 1)
        circuit.add(({j: 1.0}, bias) for j in range(self.dim) for bias in (None, -1.0))
        signs = (1.0, -1.0)
        circuit.add(
            ({2 * j: sign * scale, 2 * j + 1: -sign * scale}, -sign * k)
            for sign in signs
            for j in range(self.dim)
            for k in range(self.side)
        )
        nodes = list(product(range(self.side), repeat=self.dim))
        maxima: list[list[SparseSum]] = [
            [{(turn * self.dim + j) * self.side + k: 1.0} for j, k in enumerate(node)]
            for node in nodes
            for turn in range(2)
        ]
        while len(maxima[0]) > 1:
            maxima = _maximum_layer(circuit, maxima)
        ends = [only for (only,) in maxima]
        hats = circuit.add(
            (combined((-1.0, ends[2 * i]), (-1.0, ends[2 * i + 1])), 1.0) for i in range(len(nodes))
        )
        return circuit, combined(*zip(self.values.tolist(), hats, strict=True))


def ratio_side(separation: float, radius: float) -> int:
    """The side of the coarsest grid on which f* keeps all points at an linf `radius` < eps.

    A node with a value of the wrong sign is at least eps = separation / 2 away from a point, so
    that the interpolant holds up to eps minus the spacing: 1/(side - 1) <= eps - radius.

    Arguments:

    - `separation`: the linf distance between the two classes, above 0.
    - `radius`: the linf radius to withstand, below eps; nearer to it the grid is finer.
    """
    size = _check.number("separation", separation, above=0.0)
    _check.number("radius", radius, minimum=0.0)
    room = size / 2.0 - radius
    _check.require(room > 0, "radius", f"be below half the separation, {size / 2:g}", radius)
    return max(2, math.ceil(1.0 / room - 1e-9) + 1)


def ratio_grid(ratio: DistanceRatio, radius: float) -> GridNet:
    """f* of sets in the unit cube as a ReLU network that is robust at `radius` on all points.

    Arguments:

    - `ratio`: f* as a `DistanceRatio` of the norm linf, with all its points in [0, 1]^dim; the grid
      that it needs may have 2^22 nodes at most.
    - `radius`: the linf radius to withstand, below half the distance of the classes.
    """
    _check.instance("ratio", ratio, DistanceRatio, "be a DistanceRatio")
    _check.require(ratio.norm == "linf", "ratio", "be of the norm linf", ratio.norm)
    inside = all(bool(((part >= 0) & (part <= 1)).all()) for part in ratio.buffers())
    _check.require(inside, "ratio", "have its sets in the unit cube", "points outside")
    return GridNet.of(ratio, ratio.dim, ratio_side(ratio.separation, radius))


def _grid_nodes(dim: int, side: int) -> Tensor:
    """All of {0..side-1}^dim, (side^dim, dim) in float64, the last coordinate fastest."""
    axis = torch.arange(side, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)


def _maximum_layer(circuit: Circuit, maxima: list[list[SparseSum]]) -> list[list[SparseSum]]:
    """One layer of max(a, b) = relu(a - b) + relu(b), for a, b >= 0, in each list of numbers."""
    neurons: list[tuple[SparseSum, float | None]] = []
    shorter: list[list[SparseSum]] = []
    for numbers in maxima:
        left: list[SparseSum] = []
        for a, b in zip(numbers[::2], numbers[1::2], strict=False):
            left.append({len(neurons): 1.0, len(neurons) + 1: 1.0})
            neurons += [(combined((1.0, a), (-1.0, b)), None), (b, None)]
        if len(numbers) % 2:
            left.append({len(neurons): 1.0})
            neurons.append((numbers[-1], None))
        shorter.append(left)
    circuit.add(neurons)
    return shorter


def _maximum_count(many: int) -> tuple[int, int]:
    """Weights of the layers that find the largest of `many` numbers, and terms of the result."""
    widths, weights = [1] * many, 0
    while len(widths) > 1:
        pairs = list(zip(widths[::2], widths[1::2], strict=False))
        weights += sum(a + 2 * b for a, b in pairs)
        odd = widths[-1:] if len(widths) % 2 else []
        weights += sum(odd)
        widths = [2] * len(pairs) + [1] * len(odd)
    return weights, widths[0]
