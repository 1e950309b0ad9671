"""The plane of two centres: what the network says on it, and how near a point is to the edge.

A network without biases says the same along each ray from the origin, so that the plane falls into
sectors. Their edges are angles, which are found to the precision of float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extremal import attack, certify
from extremal.models import float64_copy
from extremal.web.answer_pool import Deadline
from extremal.web.playground_settings import PLANE_REACH, PlanePoint
from extremal.web.playground_training import TrainedNetwork
from extremal.web.theme import (
    AVERAGE_COLOUR,
    DAY,
    NO_PAPER,
    TEXT_PIXELS,
    Figure,
    power_note,
    subscript,
    themed,
)

# Points of the plane's grid along an axis, whose values a pointer reads.
GRID_SIDE = 61
# Rays that are asked first; what lies between two that agree, a quarter of a degree, is not seen.
RAY_COUNT = 1440
# Halvings of the angle between two rays that differ, until it is one of rounding.
HALVINGS = 45
# Radians that a sector must have to carry its name; below, the name would not fit.
NAMED_RADIANS = 0.25
# What is written into a sector, and its colour, by what the network says there.
SECTOR_LOOKS = {
    1: ("says +", DAY.positive),
    0: ("undecided<br>f = 0", DAY.paper),
    -1: ("says −", DAY.negative),
}


@dataclass(frozen=True)
class Sector:
    """All points of the plane whose angle is between `start` and `end`, and the sign of f there."""

    start: float
    end: float  # radians, above start by at most a whole turn
    sign: int  # 0 where the network is undecided, since no neuron is active


@dataclass(frozen=True, eq=False)
class DecisionRegions:
    """The network's values on the plane and what was found around a point of it.

    `values` (GRID_SIDE, GRID_SIDE) has `up` along its rows. The attack need not stay in the
    plane: `landed` is where it ends as seen in it, `aside` how far from it.
    """

    probe: PlanePoint
    axis: Tensor  # (GRID_SIDE,)
    values: Tensor  # (GRID_SIDE, GRID_SIDE)
    sectors: tuple[Sector, ...]
    sign: int  # the class of the point, by the network; 0 where it is undecided
    radius: float  # of the smallest attack that was found; inf where none was
    landed: tuple[float, float] | None
    aside: float
    certified: float


def decision_regions(
    trained: TrainedNetwork, probe: PlanePoint, deadline: Deadline
) -> DecisionRegions:
    """The grid, the sectors, the smallest attack on the point, its certified radius ("tight")."""
    probe.check(trained.setup)
    rows = trained.mixture.centers[[probe.first - 1, probe.second - 1]]  # (2, dim) float64
    axis = torch.linspace(-PLANE_REACH, PLANE_REACH, GRID_SIDE, dtype=torch.float64)
    up, across = torch.meshgrid(axis, axis, indexing="ij")
    twin = float64_copy(trained.net)

    def outputs(across: Tensor, up: Tensor) -> Tensor:
        with torch.no_grad():
            return twin(torch.stack([across, up], -1).reshape(-1, 2) @ rows).reshape(up.shape)

    values = outputs(across, up)
    cut = sectors(lambda angles: outputs(angles.cos(), angles.sin()).sign())
    point = torch.tensor([[probe.across, probe.up]], dtype=torch.float64) @ rows
    sign = int(outputs(*point.new_tensor([[probe.across], [probe.up]])).sign())
    if sign == 0:
        return DecisionRegions(probe, axis, values, cut, 0, 0.0, None, 0.0, 0.0)
    deadline.check()
    label = torch.tensor([sign])
    generator = torch.Generator().manual_seed(trained.setup.seed)
    found = attack.minimal(twin, point, label, generator=generator, progress=deadline.check)
    certified = certify.radius(twin, point, label, attacked=found.x_adv, progress=deadline.check)
    landed, aside = None, 0.0
    if bool(found.success):
        inside = rows @ found.x_adv[0]
        landed = (float(inside[0]), float(inside[1]))
        aside = float(torch.linalg.vector_norm(found.x_adv[0] - inside @ rows))
    radius = float(found.radius) if landed else math.inf
    return DecisionRegions(probe, axis, values, cut, sign, radius, landed, aside, float(certified))


def sectors(signs_at: Callable[[Tensor], Tensor]) -> tuple[Sector, ...]:
    """The sectors of a plane on which `signs_at` (angles) is constant along each ray.

    Rays at equal angles are asked; between two neighbours that differ the edge is found by halving.
    """
    step = 2.0 * math.pi / RAY_COUNT
    rays = (torch.arange(RAY_COUNT, dtype=torch.float64) + 0.5) * step
    signs = signs_at(rays)
    differ = (signs != signs.roll(-1)).nonzero()[:, 0]
    if len(differ) == 0:
        return (Sector(0.0, 2.0 * math.pi, int(signs[0])),)
    before, low = signs[differ], rays[differ]
    high = low + step
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        same = signs_at(middle) == before
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    edges = low.tolist()
    after = signs.roll(-1)[differ].tolist()
    ends = [*edges[1:], edges[0] + 2.0 * math.pi]
    return tuple(Sector(*one) for one in zip(edges, ends, map(int, after), strict=True))


def draw_plane(found: DecisionRegions, p: float) -> Figure:
    """Where the network says + and where -, with the point, its attack and its certified disc."""
    probe = found.probe
    names = [f"μ{subscript(probe.first)}", f"μ{subscript(probe.second)}"]
    marks = {
        "type": "scatter",
        "mode": "markers+text",
        **{"x": [1.0, 0.0], "y": [0.0, 1.0], "text": names, "textposition": "top right"},
        "marker": {"symbol": "diamond", "size": 9, "color": DAY.ink},
        "hoverinfo": "skip",
    }
    square = {"range": [-PLANE_REACH, PLANE_REACH], "zeroline": False, "nticks": 7}
    corner = {"x": -PLANE_REACH + 0.05, "y": PLANE_REACH - 0.03, "xref": "x", "yref": "y"}
    layout = {
        "xaxis": {**square, "title": _title(names[0]), "constrain": "domain"},
        "yaxis": {**square, "title": _title(names[1]), "scaleanchor": "x", "constrain": "domain"},
        "margin": {"l": 64, "r": 8, "t": 8, "b": 54},
        "showlegend": False,
        "shapes": _discs(found),
        "annotations": [*_names(found), power_note(p, **corner)],
        "clickmode": "event",
        "dragmode": False,
        "uirevision": "plane",
    }
    data = [_values(found), *map(_region, found.sectors), _edges(found.sectors), marks]
    return themed({"data": [*data, *_struck(found)], "layout": layout})


def _title(name: str) -> dict[str, Any]:
    return {"text": f"along {name}", "standoff": 8}


def _values(found: DecisionRegions) -> dict[str, Any]:
    """What a pointer reads, and what a click hits; nothing is seen of it."""
    axis = [round(value, 4) for value in found.axis.tolist()]
    return {
        "type": "heatmap",
        **{"x": axis, "y": axis, "z": found.values.sign().tolist(), "showscale": False},
        "colorscale": [[0, NO_PAPER], [1, NO_PAPER]],
        "customdata": [[float(f"{value:.5g}") for value in row] for row in found.values.tolist()],
        "hovertemplate": "(%{x:.2f}, %{y:.2f}): f = %{customdata:.3g}<extra></extra>",
    }


def _border(angle: float) -> tuple[float, float]:
    """Where a ray leaves the square."""
    across, up = math.cos(angle), math.sin(angle)
    far = PLANE_REACH / max(abs(across), abs(up))
    return far * across, far * up


def _region(sector: Sector) -> dict[str, Any]:
    """A sector within the square; one without a class is hatched, so that it is seen as one."""
    corners = (math.pi / 4.0 + k * math.pi / 2.0 for k in range(8))
    between = [angle for angle in corners if sector.start < angle < sector.end]
    way = [(0.0, 0.0), *map(_border, (sector.start, *between, sector.end)), (0.0, 0.0)]
    if sector.end - sector.start > 2.0 * math.pi - 1e-9:
        way = [_border(angle) for angle in (*between[:4], between[0])]
    hatch = {"fgcolor": DAY.soft, "bgcolor": DAY.paper, "size": 9, "solidity": 0.12, "shape": "/"}
    return {
        "type": "scatter",
        **{"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "fill": "toself"},
        **{"x": [round(x, 5) for x, _ in way], "y": [round(y, 5) for _, y in way]},
        "fillcolor": SECTOR_LOOKS[sector.sign][1],
        **({"fillpattern": hatch} if sector.sign == 0 else {}),
    }


def _edges(cut: Iterable[Sector]) -> dict[str, Any]:
    """The rays between sectors."""
    found = list(cut)
    ends = [_border(one.start) for one in found] if len(found) > 1 else []
    return {
        "type": "scatter",
        **{"mode": "lines", "line": {"color": DAY.ink, "width": 1.5}, "hoverinfo": "skip"},
        "x": [value for x, _ in ends for value in (0.0, round(x, 5), None)],
        "y": [value for _, y in ends for value in (0.0, round(y, 5), None)],
    }


def _names(found: DecisionRegions) -> list[dict[str, Any]]:
    """What the network says in each sector that is wide enough, clear of what else is drawn."""
    taken = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (-PLANE_REACH, PLANE_REACH)]
    taken += [(found.probe.across, found.probe.up), *([found.landed] if found.landed else [])]
    notes = []
    for sector in found.sectors:
        wide = sector.end - sector.start
        if wide < NAMED_RADIANS:
            continue
        angles = [sector.start + share * wide for share in (0.3, 0.4, 0.5, 0.6, 0.7)]
        places = [
            (far * x, far * y)
            for far, (x, y) in itertools.product((0.4, 0.5, 0.6, 0.7), map(_border, angles))
        ]
        x, y = max(places, key=lambda place: min(math.dist(place, one) for one in taken))
        taken.append((x, y))
        words, colour = SECTOR_LOOKS[sector.sign]
        look = {"text": words, "font": {"size": TEXT_PIXELS}, "bgcolor": colour, "borderpad": 3}
        notes.append({"x": round(x, 3), "y": round(y, 3), "showarrow": False, **look})
    return notes


def _struck(found: DecisionRegions) -> list[dict[str, Any]]:
    """The point, and where the attack lands as seen in the plane."""
    at = (found.probe.across, found.probe.up)
    dot = {"color": DAY.ink, "size": 11, "symbol": "circle", "line": {"color": DAY.paper}}
    point = {"type": "scatter", "mode": "markers", "x": [at[0]], "y": [at[1]], "marker": dot}
    traces = [{**point, "hovertemplate": "the point<extra></extra>"}]
    if found.landed is not None:
        end = found.landed
        way = {"x": [at[0], end[0]], "y": [at[1], end[1]], "mode": "lines+markers"}
        marker = {"symbol": ["circle", "x"], "size": [1, 11], "color": DAY.ink}
        look_of_way = {"line": {"color": DAY.ink, "width": 2}, "marker": marker}
        words = {"hovertemplate": "the smallest attack, seen in the plane<extra></extra>"}
        traces.append({"type": "scatter", **way, **look_of_way, **words})
    return traces


def _discs(found: DecisionRegions) -> list[dict[str, Any]]:
    """The certified ball cut by the plane, filled, and the attack's radius, dotted."""
    discs = []
    for radius, line in (
        (found.certified, {"color": AVERAGE_COLOUR, "width": 2}),
        (found.radius, {"color": DAY.ink, "width": 1.5, "dash": "dot"}),
    ):
        if 0.0 < radius < math.inf:
            x, y = found.probe.across, found.probe.up
            ends = {"x0": x - radius, "x1": x + radius, "y0": y - radius, "y1": y + radius}
            discs.append({"type": "circle", **ends, "line": line})
    if discs and found.certified > 0.0:
        discs[0] |= {"fillcolor": AVERAGE_COLOUR, "opacity": 0.35}
    return discs
