"""Whether attacks of more steps find more: a check on the radii that shorter ones report."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from extremal import models
from extremal.data import Dataset
from extremal.evaluate import Robustness, evaluate


def longer(
    net: nn.Module,
    test: Dataset,
    found: Robustness,
    radii: list[float],
    count: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    """What 100 steps of each attack find on the first points, beside the radii already `found`.

    "longer_share" is the sum of the smaller radii, none beyond the last of `radii`, as a share of
    those found: 1 where the longer attacks gain nothing. Every third radius is looked at. Of deep
    networks alone: `evaluate` has one number of steps for shallow ones.
    """
    if count == 0 or models.is_shallow(net):
        return {}
    part = test.take(slice(count))
    known = found.upper[: len(part)].clamp(max=radii[-1])
    tight = evaluate(
        net, part, radii=radii[1::3], effort="tight", certify=False, generator=generator
    )
    shorter = float(known.sum())
    total = float(tight.upper.minimum(known).sum())
    return {"longer_share": total / shorter if shorter > 0 else 1.0}
