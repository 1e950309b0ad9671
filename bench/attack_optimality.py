"""How near `attack.minimal` is to the best of all known attacks, on small networks and raw tables.

For each point the least radius that any rival or ours found is the reference; radii of rivals are
kept in the cache folder, under the names of their cases, so that they are computed once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench._attack_cases import Problem, RandomCase, TableCase, random_cases, table_cases
from bench._attack_rivals import Rival, rivals
from bench._common import markdown_table, timed
from extremal import attack
from extremal.data import cache_folder

SETTINGS: dict[str, Any] = {
    "networks for each power, norm and box": 6,
    "points of each table and power in l2": 200,
    "points of each table and power elsewhere": 24,
    "threads": 1,
}
# A rival's perturbation may be longer than its norm by this share, which is of rounding.
ROUNDING_SHARE = 1e-7
# Shares of points are counted whose radius is at most so many times the reference.
LIMITS = (1.001, 1.01, 1.1, 2.0)
Case = RandomCase | TableCase


def measure() -> dict[str, Any]:
    """Every case, ours against the reference."""
    torch.set_num_threads(SETTINGS["threads"])
    cases = [
        *random_cases(SETTINGS["networks for each power, norm and box"]),
        *table_cases(
            SETTINGS["points of each table and power in l2"],
            SETTINGS["points of each table and power elsewhere"],
        ),
    ]
    return summary(compared(cases))


def compared(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Ours over the reference for each point of each case, and the seconds that ours took."""
    found = {}
    for case in cases:
        problem = case.problem()
        best = reference(case, problem)
        seconds, ours = timed(lambda: our_radii(case, problem))  # noqa: B023 - called at once
        least = torch.minimum(best, ours)
        ratio = torch.where(ours == least, 1.0, ours / least)
        found[case.name] = {"ratio": ratio.tolist(), "seconds": seconds}
    return found


def our_radii(case: Case, problem: Problem) -> Tensor:
    """The radii (n,) that `attack.minimal` finds."""
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {"norm": case.norm, "box": problem.box, "generator": generator}
    return attack.minimal(problem.net, problem.x, problem.y, **given).radius


def reference(case: Case, problem: Problem) -> Tensor:
    """The least radius (n,) that any rival finds at each point."""
    path = reference_folder() / f"{case.name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    radii = {name: kept[name] for name in kept if len(kept[name]) >= len(problem.x)}
    least = torch.full_like(problem.x[:, 0], torch.inf)
    for name, rival in rivals(case.p, case.norm).items():
        if name not in radii:
            radii[name] = _verified_radii(problem, case.norm, rival, least).tolist()
            path.write_text(json.dumps(radii))
        found = torch.tensor(radii[name], dtype=torch.float64)
        least = torch.minimum(least, found[: len(problem.x)])
    return least


def reference_folder() -> Path:
    """Where rivals' radii are kept."""
    folder = cache_folder() / "attack-optimality"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _verified_radii(problem: Problem, norm: str, rival: Rival, known: Tensor) -> Tensor:
    """The radii (n,) of a rival's perturbations, infinite where they break nothing."""
    delta = rival(problem, norm, known)
    size = attack.Ball(norm, 0.0).norms(delta)
    ball = attack.Ball(norm, size * (1.0 + ROUNDING_SHARE), problem.box)
    points = ball.rounded_points(delta, problem.x)
    found = attack.verified(problem.net, problem.x, problem.y, points, ball, "rival")
    return torch.where(size > 0, found.radius, torch.inf)


def summary(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Shares of points within each limit, group by group."""
    groups: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for name, case in found.items():
        for group in _groups(name):
            groups.setdefault(group, []).extend(case["ratio"])
            seconds[group] = seconds.get(group, 0.0) + case["seconds"]
    figures = {group: _shares(ratios, seconds[group]) for group, ratios in groups.items()}
    ratios = {
        f"share of points within {limit:g}, {group.removesuffix(', all')}": shares[
            f"within {limit:g}"
        ]
        for group, shares in figures.items()
        if group.endswith(", all")
        for limit in LIMITS
    }
    return {
        "bench": "attack_optimality",
        "ratios": ratios,
        "figures": figures,
        "settings": SETTINGS,
    }


def _groups(name: str) -> list[str]:
    """The groups that a case counts in, from its name."""
    kind, power, region, *_ = name.split(", ")
    return [f"{kind}, all", f"{kind}, {region}", f"{kind}, {power}"]


def _shares(ratios: list[float], seconds: float) -> dict[str, float]:
    """How many points there are, how near to the best they are, and the seconds they took."""
    ratio = torch.tensor(ratios, dtype=torch.float64)
    shares = {f"within {limit:g}": float((ratio <= limit).double().mean()) for limit in LIMITS}
    largest = float(ratio.max())
    missed = int(ratio.isinf().sum())
    return {
        "points": len(ratio),
        **shares,
        "missed": missed,
        "largest": largest,
        "seconds": seconds,
    }


def table(result: dict[str, Any]) -> str:
    """One row for each group."""
    head = ["", "points", ".1 %", "1 %", "10 %", "2 times", "missed", "largest", "ms a point"]
    rows = []
    for group, found in result["figures"].items():
        shares = [f"{100 * found[f'within {limit:g}']:.2f}" for limit in LIMITS]
        spent = 1e3 * found["seconds"] / found["points"]
        ends = [str(found["missed"]), f"{found['largest']:.4g}", f"{spent:.3g}"]
        rows.append([group, str(found["points"]), *shares, *ends])
    return markdown_table(head, rows)
