"""How the cost of a gradient flow grows: doubling runs in samples, dimension, width, p and scale.

Times are those of one run beside the run of the middle size, so that what is reported are ratios.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from extremal import data, models, train

MIDDLE = {"samples": 8000, "dimension": 200, "width": 200, "p": 3.0, "init": 1e-7}
AXES = {
    "samples": [2000, 4000, 8000, 16_000, 32_000],
    "dimension": [50, 100, 200, 400, 800],
    "width": [50, 100, 200, 400, 800],
    "p": [1.0, 1.5, 2.0, 3.0, 4.0],
    "init": [1e-4, 1e-7, 1e-15, 1e-30, 1e-60],
}
SETTINGS = {
    "middle": MIDDLE,
    "positive": 6,
    "negative": 4,
    "spread": 0.1,
    "time past alignment": 4000.0,
    "repeats": 1,
    "threads": 1,
}


def measure() -> dict[str, Any]:
    """Cost beside the middle size along each axis, for both methods, and the last doubling's."""
    torch.set_num_threads(SETTINGS["threads"])
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for method in ("general", "mixture"):
        _cost(method, MIDDLE)  # the first run of a process is slower
        middle = _cost(method, MIDDLE)[0]
        figures[f"{method}: seconds at the middle size"] = middle
        for axis, values in AXES.items():
            costs = [_cost(method, {**MIDDLE, axis: value}) for value in values]
            beside = [seconds / middle for seconds, _ in costs]
            figures[f"{method}: {axis}"] = {
                "x": values,
                "cost": beside,
                "right-hand sides": [sides for _, sides in costs],
            }
            ratios[f"{method}: {axis} {values[-1]:g} over {values[-2]:g}"] = beside[-1] / beside[-2]
    return {"bench": "growth", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _cost(method: str, size: dict[str, float]) -> tuple[float, int]:
    """The shorter of two runs in seconds, and its right-hand sides."""
    found = []
    for _ in range(SETTINGS["repeats"]):
        generator = torch.Generator().manual_seed(0)
        dim, width = int(size["dimension"]), int(size["width"])
        mixture = data.OrthonormalMixture(
            dim, SETTINGS["positive"], SETTINGS["negative"], SETTINGS["spread"]
        )
        points = mixture.sample(int(size["samples"]), generator=generator)
        start = models.Gaussian(size["init"])
        net = models.PReLUNet(
            dim, width, size["p"], init=start, dtype=torch.float64, generator=generator
        )
        # The alignment takes longer from a smaller start; what comes after it is as long for all.
        until = SETTINGS["time past alignment"] + 20.0 * -math.log(size["init"])
        begin = time.perf_counter()
        run = train.gradient_flow(net, points, until=until, method=method)
        found.append((time.perf_counter() - begin, run.info["right_hand_sides"]))
    return min(found)
