"""What `validated_flow` proves of small problems, and what that costs.

One draw of samples and start a row: unit centres, some samples around each, |v| at most 0.9 ||w||.
"Simplex" centres have equal angles, 120 degrees in the plane and 109.5 in space.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from bench._common import markdown_table, timed
from extremal import data, models, train

SETTINGS: dict[str, Any] = {
    "noise": 0.05,
    "most ratio of |v| to ||w||": 0.9,
    "dominant share": 0.99,
    "half-angles tried, degrees": [0.5 * k for k in range(6, 40)],
    "threads": 1,
}


@dataclass(frozen=True)
class Problem:
    """Centres of one kind, the first half of them positive, and a start."""

    centres: str  # "simplex" or "orthonormal"
    dim: int
    neurons: int
    samples_each: int
    p: float
    start: float
    until: float
    seed: int = 0

    @property
    def name(self) -> str:
        """What a row of the table is called."""
        count = self.dim + 1 if self.centres == "simplex" else self.dim
        sides = f"{(count + 1) // 2} + {count // 2} {self.centres} centres in {self.dim} dimensions"
        return f"{sides}, {self.neurons} neurons, {count * self.samples_each} samples"

    def points(self) -> tuple[Tensor, data.Dataset]:
        """The centres (K, dim) and the samples."""
        centres = torch.eye(self.dim, dtype=torch.float64)
        if self.centres == "simplex":
            centres = _simplex(self.dim)
        generator = torch.Generator().manual_seed(self.seed)
        x = centres.repeat_interleave(self.samples_each, 0)
        x = x + SETTINGS["noise"] * torch.randn(x.shape, dtype=x.dtype, generator=generator)
        group = torch.arange(len(centres)).repeat_interleave(self.samples_each)
        return centres, data.Dataset(x, torch.where(group < (len(centres) + 1) // 2, 1, -1))

    def network(self) -> models.PReLUNet:
        """The network before training, in float64."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        shape = (self.neurons, self.dim + 1)
        drawn = self.start * torch.randn(shape, dtype=torch.float64, generator=generator)
        w, v = drawn[:, :-1], drawn[:, -1]
        most = SETTINGS["most ratio of |v| to ||w||"] * torch.linalg.vector_norm(w, dim=1)
        start = models.Explicit(w, torch.maximum(torch.minimum(v, most), -most)[None])
        return models.PReLUNet(
            self.dim, self.neurons, self.p, init=start, dtype=torch.float64, generator=generator
        )


PROBLEMS = (
    Problem("simplex", 2, 6, 3, 3.0, 1e-2, 60.0),
    Problem("simplex", 3, 8, 3, 2.0, 1e-6, 1e4),
    Problem("simplex", 3, 8, 3, 3.0, 1e-6, 1e4),
    Problem("simplex", 3, 8, 3, 4.0, 1e-6, 1e4),
    Problem("orthonormal", 3, 8, 3, 3.0, 1e-6, 1e3),
    Problem("orthonormal", 3, 8, 3, 3.0, 1e-60, 2e3),
    Problem("orthonormal", 4, 16, 4, 3.0, 1e-6, 1e3),
)


def _simplex(dim: int) -> Tensor:
    """dim + 1 unit vectors of R^dim with equal angles, as rows."""
    corners = torch.eye(dim + 1, dtype=torch.float64) - 1.0 / (dim + 1)
    values, vectors = torch.linalg.eigh(corners)
    return torch.nn.functional.normalize(corners @ vectors[:, values > 0.5], dim=1)


def measure() -> dict[str, Any]:
    """All problems."""
    torch.set_num_threads(SETTINGS["threads"])
    rows = [measure_problem(problem) for problem in PROBLEMS]
    ratios = {
        "largest error of a direction": max(row["error of directions"] for row in rows),
        "lowest proven cosine": min(row["lowest cosine"] for row in rows),
    }
    return {
        "bench": "validated_flow",
        "ratios": ratios,
        "figures": {"rows": rows},
        "settings": SETTINGS,
    }


def measure_problem(problem: Problem) -> dict[str, Any]:
    """What is proven of one problem."""
    centres, points = problem.points()
    seconds, found = timed(
        lambda: train.validated_flow(problem.network(), points, until=problem.until)
    )
    nearest = found.cosines(centres)[list(found.dominant(SETTINGS["dominant share"]))].max(1)
    trap = None
    for degrees in SETTINGS["half-angles tried, degrees"]:
        cone, silent = found.trapped(points, centres, math.cos(math.radians(degrees)))
        if bool(((cone >= 0) | silent).all()):
            trap = degrees
            break
    return {
        "name": problem.name,
        **asdict(problem),
        "complete": found.complete,
        "pieces": found.pieces,
        "error of directions": float(found.direction_error.max()),
        "centres": len(centres),
        "centres of dominant neurons": len(set(nearest.indices.tolist())),
        "lowest cosine": float(nearest.values.min()),
        "all neurons for ever within, degrees": trap,
        "seconds": seconds,
    }


def table(result: dict[str, Any]) -> str:
    """One row for each problem."""
    rows = []
    for row in result["figures"]["rows"]:
        ever = row["all neurons for ever within, degrees"]
        centres = f"{row['centres of dominant neurons']} of {row['centres']}"
        cells = [f"{row['p']:g}", f"{row['start']:g}", f"{row['until']:g}", str(row["pieces"])]
        cells += [f"{row['error of directions']:.1e}", f"{row['lowest cosine']:.3f}", centres]
        cells += ["no" if ever is None else f"{ever:g}°", f"{row['seconds']:.1f}"]
        rows.append([row["name"], *cells])
    head = ["", "p", "start", "time", "pieces", "error of directions", "lowest cosine"]
    return markdown_table([*head, "centres", "for ever within", "seconds"], rows)
