"""A part of the samples in place of all of them, with corrections, while the push is constant."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.train.flow.sample_field import Samples

_PART = 2000  # samples that stand for all of them between two looks at all
_TURNED = 100.0  # tolerances: how far a neuron may turn between two such looks


class Sketched:
    """A constant push on neurons by a part of the samples, corrected by looks at all of them.

    The correction is what all samples pull more than the part does, where the neuron was when it
    was last looked at. It errs by how much that difference changes on the way since, and not at all
    where a neuron rests.
    """

    def __init__(self, samples: Samples, push: Tensor, tolerance: float) -> None:
        self.samples, self.push, self.turned = samples, push, _TURNED * tolerance
        self.p = samples.p
        small = len(samples) <= 2 * _PART
        index = samples.some(_PART)
        grown = len(samples) / len(index)
        self.sketch = None if small else samples.part(index, grown * samples.share[index])
        self.thin = grown * push[index]
        self.seen: Tensor | None = None  # (h, r + 1): places at the last looks
        self.since: Tensor | None = None  # (h,): the time left then
        self.more: tuple[Tensor, Tensor] | None = None
        self.looks = 0.0  # at all samples, in passes over all neurons

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor, total: int) -> None:
        """Look at all samples again for neurons that have turned, or grown, since the last time."""
        if self.sketch is None:
            return
        if self.seen is None or self.since is None or self.more is None:
            self.seen = torch.full((total, place.shape[1]), torch.inf, dtype=place.dtype)
            self.since = torch.zeros(total, dtype=place.dtype)
            self.more = (torch.zeros(total, place.shape[1]).double(), torch.zeros(total).double())
        turned = (place - self.seen[rows]).abs().amax(1)
        grown = (self.since[rows] - left) * self.p * self.samples.fastest
        stale = (turned > self.turned) | ((grown > 1.0) & (turned > 0.0))
        self.look(place, left, rows, stale)

    def look(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Look at all samples for the chosen neurons."""
        if self.sketch is None or not bool(chosen.any()):
            return
        assert self.seen is not None
        assert self.since is not None
        assert self.more is not None
        mine, here = rows[chosen], place[chosen]
        whole = self.samples.pull(here, self.push, mine)
        part = self.sketch.pull(here, self.thin, mine)
        self.seen[mine], self.since[mine] = here, left[chosen]
        self.more[0][mine], self.more[1][mine] = whole[0] - part[0], whole[1] - part[1]
        self.looks += len(mine) / len(self.seen)

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G, (k, r + 1), and g, (k,), of the neurons `rows`."""
        if self.sketch is None or self.more is None:
            return self.samples.pull(place, self.push, rows)
        pull, growth = self.sketch.pull(place, self.thin, rows)
        return pull + self.more[0][rows], growth + self.more[1][rows]
