"""The scale that fits a set of points best."""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-300


def best_scale(a: Tensor, b: Tensor) -> float:
    """The c > 0 with the least max_i |c a_i - b_i|, exactly: where two of the 2 n lines cross.

    The maximum is convex in c. The lowest line of a falling and the one of a rising end cross below
    it; the line on top of their crossing takes the place of one of them, until none is above.
    """
    slopes, offsets = torch.cat([a, -a]), torch.cat([-b, b])

    def top(c: float) -> tuple[float, float]:
        best = int((c * slopes + offsets).argmax())
        return float(slopes[best]), float(offsets[best])

    end = 2.0 * float(b.abs().max()) / max(float(a.abs().max()), _LEAST)
    falling, rising = top(_LEAST), top(end)
    if falling[0] >= 0.0 or rising[0] <= 0.0:
        return _LEAST if falling[0] >= 0.0 else end
    for _ in range(len(slopes)):
        c = (falling[1] - rising[1]) / (rising[0] - falling[0])
        line = top(c)
        if line in (falling, rising) or line[0] == 0.0:
            break
        if line[0] < 0.0:
            falling = line
        else:
            rising = line
    return max(c, _LEAST)
