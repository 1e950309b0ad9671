"""The neurons in space: where each stands at each recorded time, and what stands still.

With three dimensions the drawing is exact. With more, an orthogonal projection is drawn, which puts
the difference of the class averages upright and the centres of each class on a ring around it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from extremal.measure import cosines
from extremal.web.playground_settings import PlaygroundSettings, link, usual_plane_point
from extremal.web.playground_training import (
    FIRST_TIME,
    FRAME_COUNT,
    LAST_TIME,
    TrainedNetwork,
    directions,
)
from extremal.web.theme import (
    AVERAGE_COLOUR,
    DAY,
    NEGATIVE_COLOUR,
    POSITIVE_COLOUR,
    TEXT_PIXELS,
    Figure,
    power_note,
    subscript,
    themed,
)

# The length that the shortest neuron is drawn with, where the longest has 1.
SHORTEST_DRAWN_LENGTH = 0.25
# Coordinates are sent as whole numbers of thousandths, which are short.
STEPS_OF_A_UNIT = 1000
# The places of the two traces that the browser moves.
RAY_TRACE = 0
TIP_TRACE = 1


def projection(setup: PlaygroundSettings) -> Tensor:
    """Orthonormal rows (3, dim): the identity for three dimensions.

    Beyond, row 3 is (average of + minus average of -) / sqrt(2), and rows 1 and 2 put centre k of a
    class with K of them at the angle 2 pi k / K; a class of two lies along one row, each class
    along its own.
    """
    if setup.dim == 3:
        return torch.eye(3, dtype=torch.float64)
    rows = torch.zeros(3, setup.dim, dtype=torch.float64)
    begin = 0
    for turn, (sign, count) in enumerate(((1.0, setup.positive), (-1.0, setup.negative))):
        own = slice(begin, begin + count)
        rows[2, own] = sign / math.sqrt(2.0 * count)
        if count > 1:
            angles = 2.0 * math.pi * torch.arange(count, dtype=torch.float64) / count
            angles += turn * math.pi / (2.0 if count == 2 else count)
            rows[0, own], rows[1, own] = angles.cos(), angles.sin()
        begin += count
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return _completed(rows / torch.where(lengths > 1e-9, lengths, 1.0))


def _completed(rows: Tensor) -> Tensor:
    """Rows that are orthonormal: one of rounding's size is replaced, all are straightened."""
    for index in range(3):
        if torch.linalg.vector_norm(rows[index]) < 0.5:
            left = torch.eye(rows.shape[1], dtype=rows.dtype)
            left = left - left @ rows.T @ rows
            rows[index] = left[torch.linalg.vector_norm(left, dim=1).argmax()]
        for other in range(index):
            rows[index] -= (rows[index] @ rows[other]) * rows[other]
        rows[index] /= torch.linalg.vector_norm(rows[index])
    return rows


def places(trained: TrainedNetwork) -> Tensor:
    """Where each neuron is drawn at each recorded time, (frames, width, 3).

    Along its direction, as far as the logarithm of its length tells:
    SHORTEST_DRAWN_LENGTH for the shortest of all neurons and times, 1 for the longest.
    """
    weights = trained.run.snapshots["neurons"].double()
    lengths = torch.linalg.vector_norm(weights, dim=-1, keepdim=True).clamp(min=1e-300)
    logs = lengths.log()
    low, high = float(logs.min()), float(logs.max())
    share = (logs - low) / (high - low) if high > low else torch.ones_like(logs)
    return (
        weights / lengths * (SHORTEST_DRAWN_LENGTH + (1.0 - SHORTEST_DRAWN_LENGTH) * share)
    ) @ projection(trained.setup).T


def track(trained: TrainedNetwork) -> dict[str, Any]:
    """What the browser needs to move the neurons: recorded times, and whole thousandths."""
    moved = (places(trained) * STEPS_OF_A_UNIT).round().int()
    phases = trained.run.info["phases"]
    end = float(trained.run.times[-1])
    last = next((k for k, time in enumerate(grid_times()) if time >= end), FRAME_COUNT - 1)
    return {
        "of": link(trained.setup, usual_plane_point(trained.setup)),
        "p": trained.setup.p,
        "last": last,  # the first moment of the time control at which the flow has ended
        "times": [float(f"{time:.5g}") for time in trained.run.times.tolist()],
        "x": moved[:, :, 0].tolist(),
        "y": moved[:, :, 1].tolist(),
        "z": moved[:, :, 2].tolist(),
        "loss": [float(f"{value:.4g}") for value in trained.run.values["loss"].tolist()],
        "turn": float(phases["alignment ends"]),
        "fit": float(phases["fitting starts"]),
    }


def grid_times() -> list[float]:
    """The times that the time control stands for: those of the record, whether reached or not."""
    step = math.log(LAST_TIME / FIRST_TIME) / (FRAME_COUNT - 1)
    return [float(f"{FIRST_TIME * math.exp(step * k):.5g}") for k in range(FRAME_COUNT)]


def draw_space(trained: TrainedNetwork) -> Figure:
    """Neurons at the end of training, data, centres and class averages."""
    last = places(trained)[-1]
    votes = trained.net.votes.detach()[0]
    colours = [POSITIVE_COLOUR if vote > 0 else NEGATIVE_COLOUR for vote in votes.tolist()]
    data = [*_neurons(trained, last, colours), *_points(trained), *_known(trained)]
    hidden = {"showticklabels": False, "title": {"text": ""}, "showspikes": False, "nticks": 4}
    axis = {**hidden, "range": [-1.15, 1.15], "showbackground": False, "zeroline": False}
    eye = {"x": 1.15, "y": 1.25, "z": 0.75} if trained.setup.dim == 3 else {"x": 1.5, "y": 0.7}
    layout = {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "showlegend": True,
        "annotations": [power_note(trained.setup.p)],
        "legend": {
            "orientation": "h",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "itemsizing": "constant",
        },
        "uirevision": f"space {trained.setup.dim == 3}",
        "scene": {
            **{f"{name}axis": dict(axis) for name in "xyz"},
            "aspectmode": "cube",
            "camera": {"eye": {"z": 0.55, **eye}, "center": {"x": 0, "y": 0, "z": -0.08}},
            "uirevision": f"scene {trained.setup.dim == 3}",
        },
    }
    return themed({"data": data, "layout": layout})


def _neurons(trained: TrainedNetwork, last: Tensor, colours: list[str]) -> list[dict[str, Any]]:
    """The two traces that the browser moves: rays and their tips."""
    names, rows = directions(trained.mixture)
    best = cosines(trained.net.neurons, rows).max(1)
    words = [
        f"neuron {j + 1}: cosine {cosine:.3f} with {names[k]}"
        for j, (k, cosine) in enumerate(
            zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
    ]
    rays = {
        "type": "scatter3d",
        "mode": "lines",
        **_segments(last),
        "line": {"color": [c for c in colours for _ in range(3)], "width": 2},
        "opacity": 0.35,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    tips = {
        "type": "scatter3d",
        "mode": "markers",
        "name": "neurons (colour: sign of the vote)",
        **_coordinates(last),
        "marker": {"color": colours, "size": 4.5},
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
    }
    return [rays, tips]


def _points(trained: TrainedNetwork) -> list[dict[str, Any]]:
    found = []
    view = projection(trained.setup).T
    for sign, colour, name in ((1, POSITIVE_COLOUR, "+"), (-1, NEGATIVE_COLOUR, "−")):
        own = trained.points.x[trained.points.y == sign].double() @ view
        if len(own) == 0:
            continue
        found.append(
            {
                "type": "scatter3d",
                "mode": "markers",
                "name": f"data of class {name}",
                **_coordinates(own),
                "marker": {"color": colour, "size": 2, "opacity": 0.35},
                "hoverinfo": "skip",
            }
        )
    return found


def _known(trained: TrainedNetwork) -> list[dict[str, Any]]:
    """Centres, with their numbers, and the averages of classes that have several."""
    view = projection(trained.setup).T
    centers = trained.mixture.centers @ view
    found = [
        {
            "type": "scatter3d",
            "mode": "markers+text",
            "name": "subclass centres",
            **_coordinates(centers),
            "text": [f"μ{subscript(k + 1)}" for k in range(len(centers))],
            "textposition": "top center",
            "textfont": {"color": DAY.ink, "size": TEXT_PIXELS + 2},
            "marker": {"color": DAY.ink, "size": 6, "symbol": "diamond"},
            "hovertemplate": "centre %{text}<extra></extra>",
        }
    ]
    classes = ((1, trained.mixture.positive, "+"), (-1, trained.mixture.negative, "−"))
    several = [(sign, name) for sign, count, name in classes if count > 1]
    if several:
        ends = torch.stack([trained.mixture.average(sign) for sign, _ in several]) @ view
        found.append(
            {
                "type": "scatter3d",
                "mode": "lines+markers+text",
                "name": "class averages",
                **_segments(ends),
                "text": [word for _, name in several for word in ("", f"average {name}", "")],
                "textposition": "top center",
                "textfont": {"color": AVERAGE_COLOUR, "size": TEXT_PIXELS + 1},
                "line": {"color": AVERAGE_COLOUR, "width": 5, "dash": "dash"},
                "marker": {"color": AVERAGE_COLOUR, "size": 4, "symbol": "square"},
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    return found


def _coordinates(points: Tensor) -> dict[str, list[float]]:
    return {name: _short(points[:, k]) for k, name in enumerate("xyz")}


def _segments(ends: Tensor) -> dict[str, list[float | None]]:
    """Segments from the origin, with a gap after each."""
    return {
        name: [value for end in _short(ends[:, k]) for value in (0.0, end, None)]
        for k, name in enumerate("xyz")
    }


def _short(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
