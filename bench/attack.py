"""Our attack against APGD-CE and the whole of AutoAttack on MNIST networks, in one run.

Robust accuracy and seconds at the radii of Table 1 (Min & Vidal 2024), and the whole l2 curve in
one pass against one run for each radius.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench._common import markdown_table, mnist_network, mnist_points, timed
from extremal import attack, models

SETTINGS: dict[str, Any] = {
    "points": 500,
    "powers": [1, 2, 3, 4],
    "radii": {"linf": [0.05, 0.1], "l2": [1.0, 2.0], "l1": [5.0, 10.0]},
    "box": [0.0, 1.0],
    "curve": [0.2 * k for k in range(1, 16)],
    "autoattack": "pyautoattack 0.2.0, standard: APGD-CE, APGD-T, FAB-T, Square",
    "threads": 1,
    "seconds": "of the process, so that other work on the machine counts little",
}
BOX = (0.0, 1.0)


def measure() -> dict[str, Any]:
    """All settings for all powers."""
    torch.set_num_threads(SETTINGS["threads"])
    x, y = mnist_points(SETTINGS["points"])
    figures: dict[str, Any] = {}
    seconds = {"ours": 0.0, "apgd-ce": 0.0, "autoattack": 0.0}
    worst = -1.0
    ratios: dict[str, float] = {}
    for p in SETTINGS["powers"]:
        net = mnist_network(float(p))
        for norm, radii in SETTINGS["radii"].items():
            for radius in radii:
                found = _compared(net, x, y, norm, radius)
                figures[f"p = {p}, {norm} {radius:g}"] = found
                for name in seconds:
                    seconds[name] += found[name]["seconds"]
                others = min(found[name]["accuracy"] for name in ("apgd-ce", "autoattack"))
                worst = max(worst, found["ours"]["accuracy"] - others)
        ratios |= _curve(net, x, y, p, figures)
    ratios["autoattack over ours, seconds in total"] = seconds["autoattack"] / seconds["ours"]
    ratios["apgd-ce over ours, seconds in total"] = seconds["apgd-ce"] / seconds["ours"]
    figures["largest excess of our robust accuracy over the least of theirs"] = worst
    figures["seconds in total"] = seconds
    return {"bench": "attack", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _compared(
    net: models.PReLUNet, x: Tensor, y: Tensor, norm: str, radius: float
) -> dict[str, Any]:
    """Accuracy and seconds of each at one setting."""
    task: dict[str, Any] = {"norm": norm, "radius": radius, "box": BOX}

    def library(version: str) -> Callable[[], attack.AttackResult]:
        return lambda: attack.auto_attack(
            net, x, y, version=version, generator=torch.Generator().manual_seed(0), **task
        )

    generator = torch.Generator().manual_seed(0)
    runs = {
        "ours": lambda: attack.run(net, x, y, generator=generator, **task),
        "apgd-ce": library("apgd-ce"),
        "autoattack": library("standard"),
    }
    found = {}
    for name, run in runs.items():
        seconds, result = timed(run)
        found[name] = {"accuracy": result.accuracy, "seconds": seconds}
    return found


def _curve(
    net: models.PReLUNet, x: Tensor, y: Tensor, p: int, figures: dict[str, Any]
) -> dict[str, float]:
    """One pass for all radii against a run for each, l2 in the box."""
    generator = torch.Generator().manual_seed(0)
    one, result = timed(lambda: attack.minimal(net, x, y, box=BOX, generator=generator))
    many, apart = 0.0, 0.0
    for radius in SETTINGS["curve"]:
        seconds, fixed = timed(
            lambda radius=radius: attack.run(net, x, y, radius=radius, box=BOX, generator=generator)
        )
        many += seconds
        whole = float((result.radius > radius).double().mean())
        apart = max(apart, abs(whole - fixed.accuracy))
    figures[f"curve, p = {p}"] = {"one pass, s": one, "15 runs, s": many, "largest gap": apart}
    return {f"15 radii over the whole curve, seconds, p = {p}": many / one}


def table(result: dict[str, Any]) -> str:
    """One row for each setting: robust accuracy of each attack, p = 1 to 4, and the total time."""
    kinds = ("ours", "apgd-ce", "autoattack")
    powers, figures = result["settings"]["powers"], result["figures"]
    rows = []
    for norm, radii in result["settings"]["radii"].items():
        for radius in radii:
            found = [figures[f"p = {p}, {norm} {radius:g}"] for p in powers]
            cells = [" ".join(f"{of[kind]['accuracy']:.3f}" for of in found) for kind in kinds]
            rows.append([f"{norm} {radius:g}", *cells])
    spent = figures["seconds in total"]
    rows.append(["seconds, all settings", *(f"{spent[kind]:.0f}" for kind in kinds)])
    return markdown_table(["robust accuracy, p = 1 2 3 4", "ours", "APGD-CE", "AutoAttack"], rows)
