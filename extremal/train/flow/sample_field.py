"""The pull of all samples on neurons, in a subspace that holds their gradients up to a share.

Nothing is known of the data here. A neuron moves in the span of the data's leading directions and
of its own start: s_ij = <z_j, B x_i> + beta_j <rest_j, x_i>, where the last product never changes.
How many directions those are depends on the push: once the large groups of samples are fitted, what
pulls may lie elsewhere, and the subspace grows. Where that costs little it has all directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import batches, unit_rows
from extremal.data import Dataset
from extremal.models import relu_power_with_slope, relu_power_with_slope_
from extremal.train.flow.neuron_dynamics import SubspaceFrame
from extremal.train.losses import Loss, negative_slopes

# A block of (neurons, samples) has so many entries: a megabyte, which fits the cache.
_BLOCK_ENTRIES = 1 << 18
# Activations of so many entries are kept from the outputs to the pull: some ten megabytes.
_KEPT_ENTRIES = 1 << 22
# So many samples stand for all of them between two corrections; twice as many are used whole.
_SUBSAMPLE_SIZE = 2000
# A neuron may turn by so many tolerances before its pull is corrected by all samples again.
_MOST_TURN_TOLERANCES = 100.0
# With so many products of coordinates, samples and neurons all directions are kept: it is cheap.
_CHEAP_PRODUCTS = 100_000_000
# Directions in which the data have less than this share of their largest square have none of them.
_RANK_SHARE = 1e-14
# The gradients of so many neurons choose the subspace, and those of as many heavy ones watch it.
_PROBE_NEURONS = 128
# So do those of neurons at so many random directions, which see whatever is left to learn.
_RANDOM_PROBES = 32
# Samples that are so many times as far off the subspace as most join it, and so many at most.
_OUTLIER_RATIO = 2.0
_MOST_OUTLIERS = 64
# The share of a gradient that may lie off the subspace is so many tolerances.
OFF_SUBSPACE_TOLERANCES = 10.0
# It does not grow by directions in which what lies off it has less than this share of that.
_NEGLIGIBLE_SHARE = 0.3
# More may lie off it for this share of the neurons at the start, and of the probes.
LEFT_OFF_SHARE = 0.1
# The heavy neurons carry this share of all contributions.
_HEAVY_SHARE = 0.99
# The slope of relu rises to 1 within so many tolerances of a sample's length, for p = 1.
KINK_TOLERANCES = 0.6
# Parts of the samples have the moments of all in so many directions at most.
_CALIBRATED_DIRECTIONS = 50
# How far apart neurons are is seen at so many samples.
_SEEN_SAMPLES = 1000
# Of what the samples see, so many random projections are compared.
_SEEN_PROJECTIONS = 64

# Some neurons, their products of rests and samples, relu^p at the samples and its slope (k, n).
Activations = tuple[slice, Tensor | None, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class SampleField:
    """How all samples of a data set move neurons whose places are in a frame."""

    frame: SubspaceFrame
    samples: Tensor  # (N, dim): all of them, where the field has a part as well
    axes: Tensor  # (rank, dim): the data's directions, leading first; the frame has the first r
    most_off: float  # the share of a gradient that may lie off the subspace
    x: Tensor  # (r, n): the samples in the frame's basis
    rest_products: Tensor | None  # (h, n): <rest_j, x_i>, or None where no neuron has a rest
    label: Tensor  # (n,)
    share: Tensor  # (n,): what a sample counts in the mean loss
    p: float
    growth_rate_bound: float  # no direction grows faster than this for q_i = y_i/n
    kink_width: Tensor | None  # (n,): for p = 1, the slope of relu rises to 1 within it

    @classmethod
    def of(
        cls, data: Dataset, p: float, directions: Tensor, tolerance: float, first_push: Tensor
    ) -> tuple[SampleField, Tensor]:
        """The field of a data set for neurons that start at `directions`, and their place.

        `first_push` (n,) is what pulls at the start, up to a factor.
        """
        top, axes = _main_axes(data.x)
        longest = float(torch.linalg.vector_norm(data.x, dim=1).max())
        bound = top ** (p / 2.0) if p <= 2.0 else longest ** (p - 2.0) * top
        frame, place = SubspaceFrame.of(directions, axes[:0])
        nothing = cls(
            frame,
            samples=data.x,
            axes=axes,
            most_off=OFF_SUBSPACE_TOLERANCES * tolerance,
            x=data.x[:0],
            rest_products=None,
            label=data.y.to(data.x.dtype),
            share=torch.full((len(data),), 1.0 / len(data), dtype=torch.float64),
            p=p,
            growth_rate_bound=max(bound, 1e-300),
            kink_width=kink_widths(data.x, p, KINK_TOLERANCES * tolerance),
        )
        if data.x.numel() * len(directions) <= _CHEAP_PRODUCTS:
            return nothing._placed_in(nothing.axes, place)
        needed = nothing._dimensions_for(directions, first_push)
        return nothing._placed_in(nothing._with_outliers(nothing.axes[:needed]), place)

    def _dimensions_for(self, directions: Tensor, push: Tensor) -> int:
        """The fewest axes off which no more lies than may, for most of neurons at `directions`."""
        spaced = torch.arange(0, len(directions), max(1, len(directions) // _PROBE_NEURONS))
        most = self._off_shares(directions[spaced], push).quantile(1.0 - LEFT_OFF_SHARE, dim=0)
        enough = torch.nonzero(most <= self.most_off)
        return self._worthwhile(int(enough[0]) + 1 if len(enough) else len(self.axes))

    def _with_outliers(self, basis: Tensor) -> Tensor:
        """A basis with the directions of the samples that lie far off it, where others do not.

        They pull neurons little at the start, but may decide who will be open to them.
        """
        if len(basis) == len(self.axes):
            return basis
        inside = self.samples @ basis.T.to(self.samples.dtype)
        square = self.samples.square().sum(1)
        off = (square - inside.square().sum(1)).clamp(min=0.0).sqrt()
        far = torch.maximum(_OUTLIER_RATIO * off.median(), self.most_off * square.sqrt())
        rows = off.topk(min(_MOST_OUTLIERS, len(off))).indices
        apart = unit_rows(self.samples[rows[off[rows] > far[rows]]].double())
        apart = apart - (apart @ basis.T) @ basis
        return self._widened(basis, main_directions(apart, self.most_off))

    def _worthwhile(self, dimensions: int) -> int:
        """That many dimensions, or all of them where so many save little."""
        return dimensions if 2 * dimensions < self.samples.shape[1] else len(self.axes)

    def _off_shares(self, directions: Tensor, push: Tensor) -> Tensor:
        """Which share of each gradient lies off the first 1, 2, ... axes and the neuron's own rest.

        (h, rank), for neurons at `directions` (h, dim). With a_r the gradient's and z_r the
        direction's first r coordinates, the part along the rest is (<G, u> - <a_r, z_r>)/beta_r.
        """
        pull = self._gradients(directions, push)
        a, z = pull @ self.axes.T, directions @ self.axes.T
        radial = (pull * directions).sum(1, keepdim=True)
        beta = (1.0 - z.square().cumsum(1)).clamp(min=1e-18).sqrt()
        rest = (radial - (a * z).cumsum(1)) / beta
        whole = pull.square().sum(1, keepdim=True)
        off = whole - a.square().cumsum(1) - torch.where(beta > 1e-6, rest, 0.0).square()
        return (off / whole.clamp(min=1e-300)).clamp(min=0.0).sqrt()

    def _gradients(self, directions: Tensor, push: Tensor) -> Tensor:
        """What a push (n,) pulls neurons at `directions` (k, dim) to, up to a factor, (k, dim)."""
        s = self.samples @ directions.T.to(self.samples.dtype)
        _, slope = relu_power_with_slope(s, self.p)
        return ((slope * push.to(s.dtype)[:, None]).T @ self.samples).double()

    def off_frame(self, place: Tensor, contribution: Tensor, push: Tensor) -> Tensor:
        """What lies off the frame of the gradients for a push (n,), over their lengths, (k, dim).

        Of the heaviest neurons by their `contribution` (h,), and of random probes: neurons that
        have aligned hardly see what is left to learn, until it has turned them.
        """
        order = torch.argsort(contribution.abs(), descending=True)[:_PROBE_NEURONS]
        mass = contribution.abs()[order]
        heavy = order[mass.cumsum(0) - mass < _HEAVY_SHARE * mass.sum()]
        frame, probes = (
            replace(self.frame, rest=self.frame.rest[heavy]),
            random_probes(self.samples),
        )
        at = torch.cat([unit_rows(frame.lift(place[heavy])), probes])
        rest = torch.cat([frame.rest, torch.zeros_like(probes)])
        pull = unit_rows(self._gradients(at, push))
        off = pull - (pull @ frame.basis.T) @ frame.basis
        off = off - (off * rest).sum(1, keepdim=True) * rest
        return torch.cat([off[: len(heavy)], most_of_the_probes(off[len(heavy) :])])

    @property
    def is_whole(self) -> bool:
        """Whether the frame has all of the data's directions."""
        return len(self.frame.basis) == len(self.axes)

    def widened(self, place: Tensor, off: Tensor) -> tuple[SampleField, Tensor]:
        """The field with what lies `off` the frame in it, for neurons at a `place`, and theirs."""
        more = main_directions(off, self.most_off)
        return self._placed_in(self._widened(self.frame.basis, more), place)

    def _widened(self, basis: Tensor, more: Tensor) -> Tensor:
        """A basis with more directions, or of all dimensions where so many save little."""
        if self._worthwhile(len(basis) + len(more)) == len(self.axes):
            return self.axes
        return orthonormal_rows(torch.cat([basis, more])) if len(more) else basis

    def _placed_in(self, basis: Tensor, place: Tensor) -> tuple[SampleField, Tensor]:
        """The field in the span of orthonormal rows for neurons at a `place`, and their places."""
        frame, found = SubspaceFrame.of(unit_rows(self.frame.lift(place)), basis)
        has_rests = bool((found[:, -1] > 0).any())
        dtype = self.samples.dtype
        rest_products = frame.rest.to(dtype) @ self.samples.T if has_rests else None
        x = basis.to(dtype) @ self.samples.T
        return replace(self, frame=frame, x=x, rest_products=rest_products), found

    def __len__(self) -> int:
        return len(self.label)

    def random_rows(self, count: int) -> Tensor:
        """About `count` samples drawn at random, always the same; their indices, in order."""
        draw = torch.Generator().manual_seed(0)
        return torch.randperm(len(self), generator=draw)[:count].sort().values

    def random_part(self, count: int) -> tuple[Tensor, Tensor]:
        """About `count` samples drawn at random, and what each counts so that they stand for all.

        Where a part is drawn, its samples count so much more or less alike that the sums of 1, y
        and y x over them, in the leading directions of the frame, are those over all samples: how
        many samples of each cluster the draw has taken does not matter then.
        """
        index = self.random_rows(count)
        share = self.share[index] * (len(self) / len(index))
        if len(index) == len(self):
            return index, share
        lead = self.x[:_CALIBRATED_DIRECTIONS].double()
        label = self.label.double()
        moments = torch.cat([torch.ones_like(label)[None], label[None], label * lead])  # (m, n)
        part = moments[:, index]
        gap = moments @ self.share - part @ share
        factor = torch.linalg.lstsq((part * share) @ part.T, gap[:, None], driver="gelsd").solution
        return index, share * (1.0 + factor[:, 0] @ part).clamp(min=0.0)

    def restricted(self, index: Tensor, share: Tensor) -> SampleField:
        """The samples of that index, which count as much as `share` says."""
        products = None if self.rest_products is None else self.rest_products[:, index]
        x, label = self.x[:, index].contiguous(), self.label[index]
        ramp = None if self.kink_width is None else self.kink_width[index]
        return replace(self, x=x, rest_products=products, label=label, share=share, kink_width=ramp)

    def pull(
        self, place: Tensor, push: Tensor, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """G, (k, r + 1), and g, (k,), for q = `push` (n,) and the neurons `rows` (all if None)."""
        return self._pull_of(self._activations(place, rows), place, push)

    def outputs(self, place: Tensor, contribution: Tensor) -> Tensor:
        """f at the samples, (n,)."""
        return self._outputs_of(self._activations(place), contribution)

    def pull_with_outputs(
        self, place: Tensor, contribution: Tensor, push_of: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """G and g of all neurons for the push that their own outputs (n,) leave."""
        few = len(place) * len(self) <= _KEPT_ENTRIES
        kept = list(self._activations(place)) if few else None
        outputs = self._outputs_of(kept or self._activations(place), contribution)
        return self._pull_of(kept or self._activations(place), place, push_of(outputs))

    def _pull_of(
        self, activations: Iterable[Activations], place: Tensor, push: Tensor
    ) -> tuple[Tensor, Tensor]:
        push = push.to(self.x.dtype)
        pull, growth = torch.empty_like(place), torch.empty_like(place[:, 0])
        for at, mine, power, slope in activations:
            weight = slope.mul_(push)
            pull[at, :-1] = (weight @ self.x.T).double()
            pull[at, -1] = 0.0 if mine is None else weight.mul_(mine).sum(1).double()
            growth[at] = (power @ push).double()
        return pull, growth

    def _outputs_of(self, activations: Iterable[Activations], contribution: Tensor) -> Tensor:
        total = torch.zeros_like(self.label)
        weight = contribution.to(total.dtype)
        for at, _, power, _ in activations:
            total += weight[at] @ power
        return total.double()

    def of_groups(self, share: Tensor, place: Tensor) -> tuple[SampleField, Tensor]:
        """The field for groups of the neurons, of which `share` (k, h) has the weights, and where.

        A group is at the mean of its neurons' directions; the second result are those places.
        """
        frame, found, weight = self.frame.of_groups(share, place)
        products = self.rest_products
        if products is not None:
            products = weight.to(products.dtype) @ products
        return replace(self, frame=frame, rest_products=products), found

    def distances(self, place: Tensor) -> Callable[[int], Tensor]:
        """How far what samples see of neurons is from what they see of one of them, (h,).

        That is relu(<x, u>)^p at some samples, relative to the length of that neuron's; lengths are
        of random projections, which keep them up to a tenth or so.
        """
        index = self.random_rows(_SEEN_SAMPLES)
        some = self.restricted(index, self.share[index])
        seen = torch.cat([power for _, _, power, _ in some._activations(place)])
        draw = torch.Generator().manual_seed(0)
        shape = (len(index), _SEEN_PROJECTIONS)
        seen = seen @ torch.randn(shape, dtype=seen.dtype, generator=draw)

        def distance(leader: int) -> Tensor:
            length = torch.linalg.vector_norm(seen[leader]).clamp(min=1e-30)
            return torch.linalg.vector_norm(seen - seen[leader], dim=1) / length

        return distance

    def constant_pull(self, push: Tensor, tolerance: float) -> SubsampledPull:
        """The pull of a push (n,) that stays as it is, with sharp kinks: neurons rest there."""
        return SubsampledPull(replace(self, kink_width=None), push, tolerance)

    def push(self, loss: Loss, outputs: Tensor, rate: float) -> Tensor:
        """q_i = -l'(y f) y / n, times `rate`, (n,)."""
        return rate * self.share * negative_slopes(loss, outputs, self.label.double())

    def loss(self, loss: Loss, outputs: Tensor) -> float:
        """The mean loss."""
        return float(self.share @ Loss(loss.name).each(outputs, self.label.double()))

    def at_samples(self, outputs: Tensor) -> Tensor:
        """f on the training data, (n,)."""
        return outputs

    def _activations(self, place: Tensor, rows: Tensor | None = None) -> Iterator[Activations]:
        """Some neurons at a time, with their `rest_products`, relu^p at the samples, its slope."""
        place = place.to(self.x.dtype)
        step = max(1, _BLOCK_ENTRIES // len(self))
        for at in batches(len(place), step):
            s = place[at, :-1] @ self.x
            mine = None
            if self.rest_products is not None:
                mine = self.rest_products[at] if rows is None else self.rest_products[rows[at]]
                s.addcmul_(place[at, -1:], mine)
            yield at, mine, *rounded_power(s, self.p, self.kink_width)


class SubsampledPull:
    """The pull of a constant push by a random part of the samples, corrected with all of them.

    The correction of a neuron is the pull of all samples minus that of the part, at the place where
    the neuron was then. Its error is how much that difference has changed since, which is 0 where
    a neuron rests.
    """

    def __init__(self, samples: SampleField, push: Tensor, tolerance: float) -> None:
        self.samples, self.push, self.p = samples, push, samples.p
        self.most_turn = _MOST_TURN_TOLERANCES * tolerance
        small = len(samples) <= 2 * _SUBSAMPLE_SIZE
        index = samples.random_rows(_SUBSAMPLE_SIZE)
        grown = len(samples) / len(index)
        self.subsample = None if small else samples.restricted(index, grown * samples.share[index])
        self.subsample_push = grown * push[index]
        zeros = torch.zeros(len(samples.frame.rest), dtype=torch.float64)
        places = torch.zeros(len(zeros), len(samples.frame.basis) + 1, dtype=torch.float64)
        self.corrected_at = torch.full_like(places, torch.inf)  # each neuron's place then
        self.time_left_then = zeros  # of the step in which a neuron was corrected
        self.correction = (places, zeros.clone())
        self.passes = 0.0  # how often all samples were used, in passes over all neurons

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor) -> None:
        """Correct neurons that have turned, or grown, since their last correction."""
        if self.subsample is None:
            return
        turned = (place - self.corrected_at[rows]).abs().amax(1)
        grown = (self.time_left_then[rows] - left) * self.p * self.samples.growth_rate_bound
        stale = (turned > self.most_turn) | ((grown > 1.0) & (turned > 0.0))
        self.correct(place, left, rows, stale)

    def correct(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Compare the part with all samples for the chosen neurons."""
        if self.subsample is None or not bool(chosen.any()):
            return
        mine, here = rows[chosen], place[chosen]
        whole = self.samples.pull(here, self.push, mine)
        part = self.subsample.pull(here, self.subsample_push, mine)
        self.corrected_at[mine], self.time_left_then[mine] = here, left[chosen]
        self.correction[0][mine], self.correction[1][mine] = whole[0] - part[0], whole[1] - part[1]
        self.passes += len(mine) / len(self.corrected_at)

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G, (k, r + 1), and g, (k,), of the neurons `rows`."""
        if self.subsample is None or self.passes == 0.0:
            return self.samples.pull(place, self.push, rows)
        pull, growth = self.subsample.pull(place, self.subsample_push, rows)
        return pull + self.correction[0][rows], growth + self.correction[1][rows]


def kink_widths(x: Tensor, p: float, share: float) -> Tensor | None:
    """The width of the ramp that stands for the step of relu' at each point's kink, (n,).

    It is a share of the point's length; None unless p = 1. Where a neuron slides along the kink of
    a sample, the slope of that sample's relu lies between 0 and 1, at the value that keeps the
    neuron there. A step has no such value, and explicit steps jump to and fro about it; on a ramp
    they find it. The ramp is on the active side alone: a sample to which a neuron is closed never
    pulls it, however near its kink is, and once a neuron has grown from 1e-7 it is within a
    millionth of the kink of every sample across which it does not move.
    """
    return share * torch.linalg.vector_norm(x, dim=1) if p == 1.0 else None


def rounded_power(s: Tensor, p: float, kink_width: Tensor | None) -> tuple[Tensor, Tensor]:
    """relu(s)^p and its slope, which for p = 1 rises to 1 within `kink_width`, if there is one.

    The products `s` are written over: most of a flow's time goes into passes over them.
    """
    if kink_width is None:
        return relu_power_with_slope_(s, p)
    return torch.relu(s), s.div_(kink_width.clamp(min=1e-30)).clamp_(0.0, 1.0)


def main_directions(off: Tensor, most_off: float) -> Tensor:
    """Orthonormal rows without which little of what lies `off` a subspace (k, dim) is left."""
    _, size, rows = torch.linalg.svd(off, full_matrices=False)
    return rows[size > _NEGLIGIBLE_SHARE * most_off]


def orthonormal_rows(rows: Tensor) -> Tensor:
    """Orthonormal rows with the same span, (at most dim, dim)."""
    return torch.linalg.qr(rows[: rows.shape[1]].T).Q.T.contiguous()


def random_probes(x: Tensor) -> Tensor:
    """Some random unit vectors in the space of points (n, dim), always the same, (k, dim)."""
    draw = torch.Generator().manual_seed(1)
    shape = (_RANDOM_PROBES, x.shape[1])
    return unit_rows(torch.randn(shape, dtype=torch.float64, generator=draw))


def most_of_the_probes(off: Tensor) -> Tensor:
    """What lies off a subspace (k, dim), without the few rows of which most does."""
    length = torch.linalg.vector_norm(off, dim=1)
    return off[length <= length.quantile(1.0 - LEFT_OFF_SHARE)]


def _main_axes(x: Tensor) -> tuple[float, Tensor]:
    """The largest mean square of the data in a direction, and all directions that have data.

    The directions are orthonormal rows (rank, dim), leading first. Those with a share of at most
    `_RANK_SHARE` of the largest square are left out, but not where products are in float32: its
    rounding hides directions that hold little of the data, and those may be what decides.
    """
    if len(x) < x.shape[1]:
        _, size, rows = torch.linalg.svd(x.double(), full_matrices=False)
        values = size.square() / len(x)
    else:
        rising, columns = torch.linalg.eigh((x.T @ x).double() / len(x))
        values, rows = rising.flip(0), columns.flip(1).T
    top, exact = float(values[0]), x.dtype == torch.float64 or len(x) < x.shape[1]
    rank = int((values > _RANK_SHARE * top).sum()) if exact else len(values)
    return max(top, 0.0), rows[:rank].contiguous()
