"""Gradient flow of any two-layer network in coordinates in which no small number occurs.

With w = a u, ||u|| = 1, the hidden bias b = a beta and the votes V = a r of a neuron (r has an
entry for each output), f = sum_j a_j^2 r_j relu(<x, u_j> + beta_j)^p + c. With q_i the negative
slopes of the loss in the outputs of sample i, s_i = relu(<x_i, u> + beta), and sums over samples

    g = sum_i q_i s_i^p,   G = p sum_i <r, q_i> s_i^(p-1) x_i,   h = p sum_i <r, q_i> s_i^(p-1),

the flow of the weights is

    (log a)' = <r, g> - beta h,   u' = G - <G, u> u,   beta' = h - beta (log a)',
    r' = g - r (log a)',          c' = sum_i q_i,

where a frozen part loses its own term: with frozen votes r = V/a, with frozen neurons a and u stay.
A start of 1e-60 differs from one of 1e-7 in log a alone. With neurons, hidden biases and votes
trained, ||V||^2 - ||w||^2 - b^2 is conserved, and steps are put back to where it is. For p = 1 a
hidden bias is one more coordinate of w, and of x a one. Where votes are frozen, neurons grow like
time and not exponentially: then w and b are followed as they are, by w' = a (u' + u (log a)').
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from extremal._tensors import batches, unit_rows
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.flow.chebyshev import ChebyshevStepper, largest_change
from extremal.train.flow.driver import Flow
from extremal.train.flow.neuron_dynamics import tangential
from extremal.train.flow.runge_kutta import State
from extremal.train.flow.sample_field import kink_widths, rounded_power
from extremal.train.losses import Loss, trainable

# A block of (samples, neurons) has so many entries: some megabytes, which the cache holds.
_BLOCK_ENTRIES = 1 << 19
# A step may be wrong by this share of the tolerance: errors add up while neurons grow.
_STEP_SHARE = 0.5
# The slope of relu rises to 1 within so many tolerances of a sample's length, for p = 1.
_KINK_TOLERANCES = 2.0
# Where ||V|| is below this share of ||w||, its length is left as the step has found it.
_LEAST_PROJECTED_RATIO = 0.5


class ShallowFlow(Flow):
    """All neurons of a two-layer network, in Chebyshev steps, on all samples.

    States are (u (h, dim), log a (h,), beta (h,), r (h, C), c (C,)), or (w, b, c) where votes are
    frozen, in float64; products with the samples are in the samples' own dtype.
    """

    def __init__(
        self, net: PReLUNet, data: Dataset, loss: Loss, tolerance: float, *, time: float = 0.0
    ) -> None:
        super().__init__()
        self.loss, self.p, self.y, self.one_output = loss, net.p, data.y, net.outputs == 1
        self.trained = set(trainable(net))
        inner = {"neurons", "hidden_bias"} & set(dict(net.named_parameters()))
        self.extended = len(inner) == 2 and net.p == 1.0 and len(inner & self.trained) != 1
        # Where votes are frozen neurons grow like time, not exponentially: a straight line in w.
        self.on_weights = "neurons" in self.trained and "votes" not in self.trained
        self.conserves = inner | {"votes"} <= self.trained
        x = net.preparation.map(lambda center: center.to(data.x.dtype))(data.x)
        if self.extended:
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        # Coordinates in which all samples are zero move no neuron.
        live = torch.nonzero(x.any(0)).squeeze(1)
        self.live: Tensor | slice = live if len(live) < x.shape[1] else slice(None)
        self.x = x[:, self.live].contiguous()
        self.kink_width = kink_widths(self.x, net.p, _KINK_TOLERANCES * tolerance)
        start = self._read(net)
        self.votes = torch.exp(start[1])[:, None] * start[3]  # (h, C), as they were at the start
        self.hidden_bias = torch.exp(start[1]) * start[2]  # (h,), likewise
        self.first_log_norm = start[1]
        self.imbalance = start[3].square().sum(1) - 1.0 - start[2].square()
        self.last_loss = math.nan
        self.stepper = ChebyshevStepper(
            self._velocity,
            self._from_polar(start),
            time,
            _STEP_SHARE * tolerance,
            self.counts,
            measure=self._measure,
        )
        self.first_loss = float(loss.value(self.outputs(time), self.y))

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.stepper.time

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return self.stepper.is_at_rest

    def step(self, limit: float) -> None:
        """Take one step, not beyond `limit`, and put it back to what the flow conserves."""
        self.stepper.advance(limit)
        self.mark_phases(self.last_loss)
        if not self.on_weights:
            self.stepper.state = self._projected(self.stepper.state)

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,) or (n, C), at a time within the last step."""
        state = self._projected(self._to_polar(self.stepper.state_at(time)))
        found = [self._block_outputs(rows, state)[0] for rows in self._blocks()]
        return torch.cat(found).double()

    def write(self, net: PReLUNet, time: float) -> None:
        """Put the trained weights as they were at a time within the last step into a network."""
        state = self._to_polar(self.stepper.state_at(time))
        place, log_norm, offset, ratio, bias = self._projected(state)
        norm = torch.exp(log_norm)
        weights = norm[:, None] * place
        hidden_bias = weights[:, -1] if self.extended else norm * offset
        found = {
            "neurons": weights[:, : net.dim],
            "votes": (norm[:, None] * ratio).T,
            "hidden_bias": hidden_bias,
            "bias": bias,
        }
        with torch.no_grad():
            for name in self.trained:
                getattr(net, name).copy_(found[name])

    def report(self) -> dict[str, object]:
        """What is to be said of the run."""
        return {"engine": "shallow", "phases": self.phases, "rate": self.stepper.rate}

    def _read(self, net: PReLUNet) -> State:
        """The state of a network, formed without squares that underflow."""
        parts = {name: part.detach().double().clone() for name, part in net.named_parameters()}
        w, v = parts["neurons"], parts["votes"].T
        b, bias = parts.get("hidden_bias", v.new_zeros(len(w))), parts.get("bias", v.new_zeros(1))
        if self.extended:
            w, b = torch.cat([w, b[:, None]], 1), torch.zeros_like(b)
        largest = w.abs().amax(1)
        shrunk = w / largest[:, None]
        length = torch.linalg.vector_norm(shrunk, dim=1)
        norm = length * largest
        place, log_norm = shrunk / length[:, None], torch.log(length) + torch.log(largest)
        return place, log_norm, b / norm, v / norm[:, None], bias.expand(net.outputs).clone()

    def _velocity(self, state: State) -> State:
        """The right-hand side, which also notes the loss."""
        state = self._to_polar(state)
        place, bias = state[0], state[4]
        offset, ratio = self._offset(state), self._ratio(state)
        # Frozen votes may be 1e40 times as long as their neurons, which float32 can't hold.
        scale = ratio.abs().amax(1).clamp(min=1e-300)
        shrunk = (ratio / scale[:, None]).T.to(self.x.dtype)
        turn, push = torch.zeros_like(place), torch.zeros_like(bias)
        growth, lift = torch.zeros_like(ratio), torch.zeros_like(offset)
        summed = replace(self.loss, reduction="sum")
        share = 1.0 if self.loss.reduction == "sum" else 1.0 / len(self.x)
        total = 0.0
        for rows in self._blocks():
            out, power, slope = self._block_outputs(rows, state)
            total += share * float(summed.value(out, self.y[rows]))
            q = -share * summed.slope(out, self.y[rows]).reshape(len(out), -1)  # (n, C)
            weight = slope.mul_(q @ shrunk)  # (n, h)
            turn[:, self.live] += (weight.T @ self.x[rows]).double()
            lift += weight.sum(0).double()
            growth += (power.T @ q).double()
            push += q.sum(0).double()
        self.last_loss = total
        turn, lift = scale[:, None] * turn, scale * lift
        found = self._assembled((place, offset, ratio), turn, growth, lift, push)
        if not self.on_weights:
            return found
        norm, (turned, rate, shifted, _, pushed) = torch.exp(state[1]), found
        w_slope = norm[:, None] * (turned + rate[:, None] * place)
        return w_slope, norm * (shifted + rate * offset), pushed

    def _assembled(
        self,
        at: tuple[Tensor, Tensor, Tensor],
        turn: Tensor,
        growth: Tensor,
        lift: Tensor,
        push: Tensor,
    ) -> State:
        """The right-hand side from the sums over samples, without the terms of frozen parts."""
        place, offset, ratio = at

        def own(name: str, part: Tensor) -> Tensor:
            return part if name in self.trained else torch.zeros_like(part)

        rate = own("neurons", (ratio * growth).sum(1) - offset * lift)
        if self.extended:  # the bias is a coordinate of the neuron
            lift = torch.zeros_like(lift)
        return (
            own("neurons", tangential(turn, place)),
            rate,
            own("hidden_bias", lift) - offset * rate,
            own("votes", growth) - ratio * rate[:, None],
            own("bias", push),
        )

    def _block_outputs(self, rows: slice, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """f (b,) or (b, C), relu^p (b, h) and its slope at some samples, in the samples' dtype."""
        place, log_norm, _, _, bias = state
        x, offset = self.x[rows], self._offset(state)
        s = torch.addmm(offset.to(x.dtype), x, place[:, self.live].T.to(x.dtype))
        width = None if self.kink_width is None else self.kink_width[rows, None]
        power, slope = rounded_power(s, self.p, width)
        weight = torch.exp(2.0 * log_norm)[:, None] * self._ratio(state)
        out = power @ weight.to(x.dtype) + bias.to(x.dtype)
        return out.squeeze(1) if self.one_output else out, power, slope

    def _from_polar(self, state: State) -> State:
        """The state that is followed: (w, b, c) where votes are frozen, else the polar one."""
        if not self.on_weights:
            return state
        place, log_norm, offset, _, bias = state
        norm = torch.exp(log_norm)
        return norm[:, None] * place, norm * offset, bias

    def _to_polar(self, state: State) -> State:
        """The polar state of the one that is followed."""
        if not self.on_weights:
            return state
        weights, hidden_bias, bias = state
        largest = weights.abs().amax(1).clamp(min=1e-300)
        norm = largest * torch.linalg.vector_norm(weights / largest[:, None], dim=1)
        ratio = self.votes / norm[:, None]
        return weights / norm[:, None], torch.log(norm), hidden_bias / norm, ratio, bias

    def _measure(self, change: State, state: State) -> float:
        """How large a change of the state is; of (w, b), relative to the neuron's length."""
        if not self.on_weights:
            return largest_change(change, state)
        lengths = []
        for weights, hidden_bias, _ in (change, state):
            lengths.append(torch.hypot(torch.linalg.vector_norm(weights, dim=1), hidden_bias))
        turned = float((lengths[0] / lengths[1].clamp(min=1e-300)).max())
        return max(turned, largest_change(change[2:], state[2:]))

    def _ratio(self, state: State) -> Tensor:
        """r = V/a, (h, C); for frozen votes from a alone."""
        if "votes" in self.trained:
            return state[3]
        return torch.exp(-state[1])[:, None] * self.votes

    def _offset(self, state: State) -> Tensor:
        """beta = b/a, (h,); for frozen hidden biases from a alone."""
        if "hidden_bias" in self.trained or self.extended:
            return state[2]
        return torch.exp(-state[1]) * self.hidden_bias

    def _projected(self, state: State) -> State:
        """A state with unit directions, and with ||V||^2 - ||w||^2 - b^2 as at the start."""
        place, log_norm, offset, ratio, bias = state
        if self.conserves:
            shrunk = self.imbalance * torch.exp(2.0 * (self.first_log_norm - log_norm))
            wanted = 1.0 + offset.square() + shrunk
            found = ratio.square().sum(1)
            sure = torch.minimum(wanted, found) > _LEAST_PROJECTED_RATIO**2
            factor = torch.where(sure, wanted / torch.where(sure, found, 1.0), 1.0).sqrt()
            ratio = factor[:, None] * ratio
        whole = (unit_rows(place), log_norm, offset, ratio, bias)
        return (*whole[:2], self._offset(whole), self._ratio(whole), bias)

    def _blocks(self) -> list[slice]:
        """The samples in blocks whose products with all neurons fit the cache."""
        return list(batches(len(self.x), max(1, _BLOCK_ENTRIES // len(self.votes))))
