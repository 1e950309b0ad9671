"""The shallow pReLU network of Min & Vidal 2024, for any real p >= 1, with gradients by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.activations import relu_power, relu_power_with_slope
from extremal.models.initialisation import Gaussian, Initialisation
from extremal.models.preparation import (
    Preparation,
    Prepared,
    check_rows,
    directions_and_norms,
)

if TYPE_CHECKING:
    from extremal.models.network_reduction import Reduction


class PreparedInputs(ABC):
    """Prepared inputs z (n, dim), of which a gradient in the parameters needs only two products.

    A matrix, `DenseInputs`, or any form that computes them faster: training uses one for columns
    that hardly vary.
    """

    @abstractmethod
    def inner(self, directions: Tensor, offsets: Tensor | None) -> Tensor:
        """<z_i, u_j> + b_j, (n, width), u `directions`, b `offsets` or None; a new tensor."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """sum_i weight_ij z_i, (width, dim), for `weights` (n, width); a tensor of its own."""


@dataclass(frozen=True, eq=False)
class DenseInputs(PreparedInputs):
    """A matrix of prepared inputs."""

    z: Tensor  # (n, dim): as a `Preparation` leaves them

    def inner(self, directions: Tensor, offsets: Tensor | None) -> Tensor:
        """<z_i, u_j> + b_j, (n, width), u `directions`, b `offsets` or None."""
        return nn.functional.linear(self.z, directions, offsets)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """sum_i weight_ij z_i, (width, dim), for `weights` (n, width)."""
        return weights.T @ self.z


@dataclass(frozen=True)
class ParameterGradient:
    """Gradients of a scalar in a network's parameters (None where it has none), and f itself."""

    out: Tensor  # (n,) where outputs == 1, else (n, outputs)
    neurons: Tensor  # (width, dim)
    votes: Tensor  # (outputs, width)
    hidden_bias: Tensor | None  # (width,)
    bias: Tensor | None  # (outputs,)


class PReLUNet(nn.Module):
    r"""f(x) = sum_j votes_j relu(<z, w_j> + b_j)^p / ||w_j||^(p-1) + bias, z = preparation(x).

    `neurons` (width, dim) holds the w_j, `votes` (outputs, width) the v_j, `hidden_bias` (width,)
    the b_j, and `bias` (outputs,) the output biases; the last two are None unless asked for.
    Min & Vidal 2024, Section 2 ("Shallow pReLU Network"); p = 1 is a ReLU network.

    Without biases f is 2-homogeneous in its parameters and unchanged under (w, v) -> (a w, v/a).
    A neuron with w_j = 0 contributes zero and has a zero gradient (for p > 1 this defines the
    quotient; for p = 1 it contributes v_j relu(b_j), as in any ReLU network).

    Internally f = sum_j (v_j ||w_j||) relu(s_j)^p with s_j = <z, u_j> + b_j/||w_j|| and
    u_j = w_j/||w_j||, so that no power of a small weight is formed.

    Arguments:

    - `dim`: how many coordinates a point has.
    - `width`: how many hidden neurons there are.
    - `p`: the power of the activation, any real number of at least 1. The default is 1.
    - `outputs`: how many outputs: 1 (the default) for labels -1 / +1, C for labels 0..C-1.
    - `bias`: whether there are output biases (default False).
    - `hidden_bias`: whether the hidden neurons have biases (default False).
    - `preparation`: a `Preparation` of inputs; None leaves them as they are.
    - `init`: draws the first weights, such as `Kaiming()`; None means `Gaussian(1e-7)`.
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    neurons: nn.Parameter
    votes: nn.Parameter
    hidden_bias: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        width: int,
        p: float = 1.0,
        outputs: int = 1,
        *,
        bias: bool = False,
        hidden_bias: bool = False,
        preparation: Preparation | None = None,
        init: Initialisation | None = None,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dim = _check.integer("dim", dim, minimum=1)
        self.width = _check.integer("width", width, minimum=1)
        self.outputs = _check.integer("outputs", outputs, minimum=1)
        self.p = _check.number("p", p, minimum=1.0)
        _check.floating("dtype", dtype)
        _check.generator("generator", generator)
        known = preparation is None or isinstance(preparation, Preparation)
        _check.require(known, "preparation", "be a Preparation or None", preparation)
        draws = init is None or (hasattr(init, "draw") and not isinstance(init, type))
        _check.require(draws, "init", "be an initialisation such as Gaussian(1e-7)", init)
        self.preparation = (preparation or Preparation()).map(lambda c: c.to(dtype, copy=True))
        self.preparation.check_dim(self.dim)
        self.reduction: Reduction | None = None
        weights = (init or Gaussian(1e-7)).draw(
            self.dim, self.width, self.outputs, generator=generator
        )
        self.neurons = nn.Parameter(weights.neurons.to(dtype))
        self.votes = nn.Parameter(weights.votes.to(dtype))
        for name, wanted, drawn in (
            ("hidden_bias", hidden_bias, weights.hidden_bias),
            ("bias", bias, weights.bias),
        ):
            value = nn.Parameter(drawn.to(dtype)) if wanted else None
            self.register_parameter(name, value)

    def extra_repr(self) -> str:
        """The settings that define the network, for print()."""
        return f"dim={self.dim}, width={self.width}, p={self.p:g}, outputs={self.outputs}"

    def forward(self, x: Tensor) -> Tensor:
        """f at `x` (n, dim): (n,) where outputs == 1, else (n, outputs)."""
        out = self.hidden(x) @ self.votes.T  # (n, outputs)
        if self.bias is not None:
            out = out + self.bias
        return out.squeeze(-1) if self.outputs == 1 else out

    def hidden(self, x: Tensor) -> Tensor:
        """The post-activations relu(<z, w_j> + b_j)^p / ||w_j||^(p-1) at `x`, (n, width)."""
        z = self._prepared(x).z
        directions, norms, offsets = self._directions_norms_offsets()
        power = relu_power(nn.functional.linear(z, directions, offsets), self.p)
        return power if self.p == 1.0 else norms * power

    def input_gradient(
        self, x: Tensor, cotangent: Tensor | Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """f(`x`), (n, outputs), and the gradient (n, dim) of sum_o cotangent_o f_o(x) in x.

        `cotangent` has the shape of f(x), or is a function of f(x), such as a loss's slope.
        Two matrix products and no graph: z-gradient = sum_j C_j p relu(s_j)^(p-1) u_j with
        C_j = ||w_j|| sum_o cotangent_o votes_oj, then pulled back through the preparation.
        """
        with torch.no_grad():
            directions, norms, offsets = self._directions_norms_offsets()
            at = self._prepared(x)
            s = nn.functional.linear(at.z, directions, offsets)  # (n, width)
            power, slope = relu_power_with_slope(s, self.p)
            out = self._read(power, norms)
            if callable(cotangent):
                cotangent = cotangent(out.squeeze(-1) if self.outputs == 1 else out)
            weight = (cotangent.reshape(len(x), -1) @ self.votes) * norms * slope
            grad = self.preparation.pull_back(at, weight @ directions)
        return out, grad

    def parameter_gradient(
        self, x: Tensor | PreparedInputs, cotangent: Tensor | Callable[[Tensor], Tensor]
    ) -> ParameterGradient:
        """The gradient of sum_io cotangent_io f_o(x_i) in the parameters at points `x`, by hand.

        `cotangent` has the shape of f(x), or is a function of f(x), such as a loss's slope.
        With q = cotangent @ votes (n, width): d/dw_j = sum_i q_ij (p r^(p-1) z_i - (p-1) r^p u_j),
        d/dv_oj = ||w_j|| sum_i cotangent_io r^p, d/db_j = sum_i q_ij p r^(p-1), r = relu(s_ij);
        with hidden biases the term -(p-1) r^p u_j stays and r has its offset b_j/||w_j||.
        `PreparedInputs` are taken as prepared: they are z.
        """
        with torch.no_grad():
            directions, norms, offsets = self._directions_norms_offsets()
            z = x if isinstance(x, PreparedInputs) else DenseInputs(self._prepared(x).z)
            power, slope = relu_power_with_slope(z.inner(directions, offsets), self.p)
            out = self._read(power, norms)
            out = out.squeeze(-1) if self.outputs == 1 else out
            given = cotangent(out) if callable(cotangent) else cotangent
            given = given.reshape(len(power), -1)  # (n, outputs)
            q = given @ self.votes
            weighted = slope.mul_(q)  # in place here and below: a new (n, width) costs as much
            neurons = z.weighted_sum(weighted)
            votes = given.T @ power * norms
            if self.p != 1.0:
                along = q.mul_(power).sum(0).mul_(1.0 - self.p)
                neurons.addcmul_(along.unsqueeze(-1), directions)
            return ParameterGradient(
                out=out,
                neurons=neurons,
                votes=votes,
                hidden_bias=None if self.hidden_bias is None else weighted.sum(0),
                bias=None if self.bias is None else given.sum(0),
            )

    def freeze(self, *names: str) -> PReLUNet:
        """Stop training of the parts `names` ("neurons", "votes", "hidden_bias", "bias")."""
        for name in names:
            parts = dict(self.named_parameters())
            _check.require(name in parts, "names", f"be among {sorted(parts)}", name)
            parts[name].requires_grad_(False)
        return self

    def effective(self, tolerance: float = 1e-9) -> PReLUNet:
        """A smaller network of the same function, with a bound on the difference.

        Neurons of one direction (and offset) are merged, negligible ones dropped;
        `.reduction.bound(radius)` on the result bounds the largest change of f on a ball. See
        `extremal.models.reduced_networks` for what `tolerance` means. All parameters of the result
        are frozen, and training it is refused: the bound holds for the weights it was made with.
        """
        from extremal.models.network_reduction import reduced_networks  # noqa: PLC0415 - it builds PReLUNets

        return next(reduced_networks(self, [tolerance]))

    def save(self, path: str | Path) -> None:
        """Write the network to `path`, safetensors with a JSON header; `models.load` reads it."""
        from extremal.models.model_files import save  # noqa: PLC0415 - it knows every kind of network

        save(self, path)

    def _apply(self, fn: Any, recurse: bool = True) -> PReLUNet:
        """Carry the preparation along where parameters change dtype or device."""
        super()._apply(fn, recurse)
        self.preparation = self.preparation.map(fn)
        return self

    def _prepared(self, x: Tensor) -> Prepared:
        check_rows(x, self.dim)
        kind = self.neurons.dtype
        _check.require(x.dtype == kind, "x", f"have the network's dtype {kind}", str(x.dtype))
        return self.preparation.at(x)

    def _directions_norms_offsets(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Directions (width, dim), norms (width,) and offsets (width,) or None of f's inner form.

        f = sum_j v_j norm_j relu(<z, direction_j> + offset_j)^p. For p = 1 nothing needs dividing,
        and these are w_j, 1 and b_j; otherwise u_j, ||w_j|| and b_j/||w_j||.
        """
        if self.p == 1.0:
            return self.neurons, torch.ones_like(self.votes[0]), self.hidden_bias
        directions, lengths = directions_and_norms(self.neurons)
        norms = lengths.squeeze(-1)
        if self.hidden_bias is None:
            return directions, norms, None
        safe = torch.where(norms > 0, norms, 1.0)
        return directions, norms, torch.where(norms > 0, self.hidden_bias / safe, -torch.inf)

    def _read(self, power: Tensor, norms: Tensor) -> Tensor:
        out = power @ (self.votes * norms).T
        return out if self.bias is None else out + self.bias
