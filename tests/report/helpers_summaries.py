"""A made-up summary with every kind of panel and row, as the experiments would store it."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np


def line_panel() -> dict[str, Any]:
    """Robust accuracy against the radius for p = 1 and p = 3, with bands and the two radii."""
    radii = np.linspace(0, 1.5, 15)
    series = []
    for label, radius in (("p = 1", 0.316), ("p = 3", 0.66)):
        mean = 1 / (1 + np.exp((radii - radius) / 0.05))
        low, high = np.clip(mean - 0.06, 0, 1), np.clip(mean + 0.06, 0, 1)
        lists = {"x": radii, "y": mean, "low": low, "high": high}
        lists = {name: values.tolist() for name, values in lists.items()}
        series.append({"label": label, **lists, "style": "solid", "n": 10})
    marks = [
        {"at": 1 / math.sqrt(10), "label": "1/√K"},
        {"at": math.sqrt(2) / 2, "label": "√2/2"},
    ]
    return {
        "kind": "line",
        "title": "Robust accuracy under an ℓ2 attack",
        "xlabel": "radius",
        "ylabel": "robust accuracy",
        "log": "",
        "series": series,
        "marks": marks,
    }


def named_panel() -> dict[str, Any]:
    """Two series over four names, one of them long: points that are not joined."""
    names = ["ReLU", "p = 3", "ReLU, adversarial", "p = 3, adversarial"]
    series = [
        {"label": label, "x": names, "y": [0.1, 0.4, None, 0.6], "style": style, "n": 3}
        | {"low": [0.0, 0.3, None, 0.5], "high": [0.2, 0.6, None, 0.8]}
        for label, style in (("MNIST", "solid"), ("digits", "dotted"))
    ]
    axes = {"xlabel": "", "ylabel": "accuracy", "log": "", "joined": False}
    return {"kind": "line", "title": "By network", **axes, "series": series, "marks": []}


def distance_panel() -> dict[str, Any]:
    """Distances against the spread on a logarithmic scale, one value missing."""
    spread = np.linspace(0.01, 0.3, 15)
    series = []
    for label, size in (("p = 1", 0.05), ("p = 3", 0.02)):
        mean = [float(size + spread_ * size * 8) for spread_ in spread]
        low, high = [0.8 * value for value in mean], [1.3 * value for value in mean]
        values: list[float | None] = [*mean[:-1], None]
        line = {"x": spread.tolist(), "y": values, "low": low, "high": high}
        series.append({"label": label, **line, "style": "solid", "n": 5})
    return {
        "kind": "line",
        "title": "Distance to the classifier that the conjecture names",
        "xlabel": "spread α",
        "ylabel": "distance",
        "log": "y",
        "series": series,
        "marks": [],
    }


def bars_panel() -> dict[str, Any]:
    """Contributions of 300 neurons."""
    heights = (0.4 * np.exp(-np.arange(300) / 40) + 0.002).tolist()
    labels = {"xlabel": "neuron", "ylabel": "contribution |v| ‖w‖"}
    return {"kind": "bars", "title": "Contributions, p = 1", **labels, "y": heights}


def heat_panel(rows: int, columns: int, names: list[str] | None) -> dict[str, Any]:
    """Cosines of neurons with directions: each neuron has one close direction."""
    noise = np.random.default_rng(rows).uniform(-0.15, 0.15, (rows, columns))
    noise[np.arange(rows), np.arange(rows) % columns] = 0.95
    title = f"Cosines of the top {rows} neurons"
    labels = {"xlabel": "direction", "ylabel": "neuron"}
    bounds = {"low": -1.0, "high": 1.0, "columns": names}
    return {"kind": "heat", "title": title, **labels, "z": noise.tolist(), **bounds}


def pictures_panel() -> dict[str, Any]:
    """Two rows of two grey images of 2x3 pixels: 0 to 5, then 10 to 15, and so on."""
    coded = [base64.b64encode(bytes(range(10 * k, 10 * k + 6))).decode() for k in range(4)]
    rows = [{"label": "image", "images": coded[:2]}, {"label": "<robust>", "images": coded[2:]}]
    return {"kind": "pictures", "title": "Pictures", "shape": [2, 3, 1], "rows": rows}


def space_panel() -> dict[str, Any]:
    """Three clusters, 200 neurons and three centres in space."""
    random = np.random.default_rng(0)
    data = [np.eye(3)[k] + 0.08 * random.standard_normal((60, 3)) for k in range(3)]
    neurons = np.eye(3)[random.integers(0, 3, 200)] * random.uniform(0.1, 0.9, (200, 1))
    neurons += 0.04 * random.standard_normal((200, 3))
    clouds = [
        _cloud("positive data", "points", "positive", np.concatenate(data[:2])),
        _cloud("negative data", "points", "negative", data[2]),
        _cloud("neurons", "rays", "neutral", neurons),
        _cloud("centres", "rays", "accent", 1.25 * np.eye(3)),
    ]
    return {"kind": "scene", "title": "Aligned, p = 3", "dim": 3, "clouds": clouds}


def plane_panel() -> dict[str, Any]:
    """A field of arrows on a ring around two centres in the plane."""
    angle = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    field = 0.2 * (np.array([0.7, 0.7]) - ring)
    arrows = _cloud("field", "arrows", "neutral", ring)
    arrows["heads"] = field.tolist()
    clouds = [
        arrows,
        _cloud("centres", "rays", "accent", np.eye(2)),
        _cloud("data", "points", "positive", np.eye(2) * 0.9),
    ]
    return {"kind": "scene", "title": "The field at p = 2", "dim": 2, "clouds": clouds}


def _cloud(label: str, style: str, colour: str, points: Any) -> dict[str, Any]:
    shape = {"label": label, "style": style, "colour": colour}
    return {**shape, "points": points.tolist(), "heads": None}


def make_summary() -> dict[str, Any]:
    """A summary with every kind of panel, of claim and of setting."""
    panels = [
        distance_panel(),
        bars_panel(),
        heat_panel(300, 2, ["μ₊ average", "μ₋ average"]),
        heat_panel(30, 10, [f"μ{k}" for k in range(1, 11)]),
        line_panel(),
        space_panel(),
        plane_panel(),
        {"kind": "missing", "title": "Contributions, p = 3"},
    ]
    return {
        "experiment": "min-vidal-2024/figure-2",
        "title": "Two biases: averages for p = 1, subclass centres for p = 3",
        "source": "Min & Vidal 2024, Figure 2",
        "scale": "quick",
        "notes": "The paper's figure with fewer repetitions. Distances use data-like points.",
        "trials": {"done": 28, "failed": 2, "total": 30},
        "failures": [
            {"params": {"p": 3.0, "spread": 0.3}, "seed": 1, "reason": "the loss is not finite"},
            {"params": {"p": 1.0, "spread": 0.3}, "seed": 4, "reason": "killed <by> the user"},
        ],
        "settings": [
            {"name": "dim", "value": 1000, "mark": "S", "note": ""},
            {"name": "steps", "value": 8020, "mark": "O", "note": "chosen for time"},
            {"name": "spread", "value": [0.01, 0.1, 0.3], "mark": "S", "note": "15 in the paper"},
            {"name": "lr", "value": 0.2, "mark": "A", "note": ""},
        ],
        "marks": {
            "S": "stated in the source",
            "A": "found in the authors' published code or result files",
            "O": "ours, or from where the note says",
        },
        "rows": [
            _row("radius at which p = 1 falls to one half", 0.3162, 0.3301, 0.32, 0.34, 0.05, True),
            _row("radius at which p = 3 falls to one half", 0.7071, 0.61, 0.5, 0.68, 0.05, False),
            {
                **_row("distance to F^(3), α = 0.1", 0.1, 0.051, 0.04, 0.06, 0.0, True),
                "rule": "below",
            },
            _row("clean accuracy of p = 4 on MNIST", 0.98, None, None, None, 0.01, None),
        ],
        "panels": panels,
        "columns": 3,
        "seconds": 4325.2,
    }


def _row(
    quantity: str,
    published: float,
    ours: float | None,
    low: float | None,
    high: float | None,
    tolerance: float,
    ok: bool | None,
) -> dict[str, Any]:
    return {
        "quantity": quantity,
        "published": published,
        "ours": ours,
        "low": low,
        "high": high,
        "tolerance": tolerance,
        "ok": ok,
        "source": "Figure 2e",
        "rule": "near",
        "n": 0 if ours is None else 5,
    }
