"""How near `attack.minimal` is to the best of all known attacks, on small networks and raw tables.

For each point the least radius that any rival or ours found is the reference. What each case showed
is kept in the user's cache, in a file of its own, so that a run that was stopped goes on: radii of
rivals by the rivals' names, ours as long as the sources of attacks are the same. From the root of
the repository, for a tenth of the networks and points:

python -m bench.attack_optimality 0.1
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from bench._attack_cases import Problem, RandomCase, TableCase, random_cases, table_cases
from bench._attack_rivals import Rival, rivals
from bench._common import markdown_table, timed
from extremal import attack
from extremal.attack.two_layer import minimal_perturbation
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


def measure(share: float = 1.0, folder: Path | None = None) -> dict[str, Any]:
    """A share of all cases, ours against the reference; what is in the folder is taken from there.

    The folder is one of the user's cache unless it is given.
    """
    torch.set_num_threads(SETTINGS["threads"])
    networks, most, few = (
        math.ceil(share * SETTINGS[name]) for name in SETTINGS if name != "threads"
    )
    cases = [*random_cases(networks), *table_cases(most, few)]
    result = summary(compared(cases, folder or cache_folder() / "attack-optimality"))
    return {**result, "settings": {**SETTINGS, "share of a whole run": share}}


def compared(cases: Sequence[Case], folder: Path) -> dict[str, dict[str, Any]]:
    """For each case ours over the reference at each point, and the seconds that ours took.

    Beside them the seconds of the same code without convex problems.
    """
    found = {}
    for case in cases:
        kept = _completed(case, folder / f"{case.name.replace(', ', '-').replace(' ', '-')}.json")
        radii = torch.tensor(list(kept["radii"].values()), dtype=torch.float64)
        ours = torch.tensor(kept["ours"]["radii"], dtype=torch.float64)
        least = torch.minimum(radii[:, : len(ours)].amin(0), ours)
        ratio = torch.where(ours == least, 1.0, ours / least)
        found[case.name] = {**kept["ours"], "ratio": ratio.tolist()}
    return found


def _completed(case: Case, path: Path) -> dict[str, Any]:
    """What is kept of a case in a file, once all that is missing has been computed."""
    kept = json.loads(path.read_text()) if path.exists() else {"radii": {}}
    problem = case.problem()
    count, ours = len(problem.x), kept.get("ours", {})
    if ours.get("sources") != _sources() or len(ours["radii"]) != count:
        kept["ours"] = our_radii(case, problem)
        _keep(kept, path)
    least = torch.full_like(problem.x[:, 0], torch.inf)
    for name, rival in rivals(case.p, case.norm).items():
        if len(kept["radii"].get(name, [])) < count:
            kept["radii"][name] = _verified_radii(problem, case.norm, rival, least).tolist()
            _keep(kept, path)
        found = torch.tensor(kept["radii"][name], dtype=torch.float64)[:count]
        least = torch.minimum(least, found)
    kept["radii"] = {name: radii[:count] for name, radii in kept["radii"].items()}
    return kept


def _keep(kept: dict[str, Any], path: Path) -> None:
    """Write a case's file by rename, so that none is ever half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.replace(path)


@cache
def _sources() -> str:
    """A hash of what our radii depend on."""
    root = Path(__file__).parents[1]
    files = [root / "bench" / "_attack_cases.py", *sorted((root / "extremal/attack").rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def our_radii(case: Case, problem: Problem) -> dict[str, Any]:
    """The radii that `attack.minimal` finds, its seconds, and those without convex problems."""

    def found() -> list[float]:
        generator = torch.Generator().manual_seed(0)
        given: dict[str, Any] = {"norm": case.norm, "box": problem.box, "generator": generator}
        radii: Tensor = attack.minimal(problem.net, problem.x, problem.y, **given).radius
        return radii.tolist()

    with mock.patch.object(minimal_perturbation, "small_enough", return_value=False):
        before, _ = timed(found)
    seconds, radii = timed(found)
    return {"radii": radii, "seconds": seconds, "seconds before": before, "sources": _sources()}


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
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, case in found.items():
        for group in _groups(name):
            groups.setdefault(group, []).append(case)
    figures = {group: _shares(cases) for group, cases in groups.items()}
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
    }


def _groups(name: str) -> list[str]:
    """The groups that a case counts in, from its name."""
    kind, power, region, *_ = name.split(", ")
    return [f"{kind}, all", f"{kind}, {region}", f"{kind}, {power}"]


def _shares(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many points there are, how near to the best they are, and the seconds they took."""
    ratio = torch.tensor([r for case in cases for r in case["ratio"]], dtype=torch.float64)
    shares = {f"within {limit:g}": float((ratio <= limit).double().mean()) for limit in LIMITS}
    seconds, before = (sum(case[name] for case in cases) for name in ("seconds", "seconds before"))
    return {
        "points": len(ratio),
        **shares,
        "missed": int(ratio.isinf().sum()),
        "largest": float(ratio.max()),
        "seconds": seconds,
        "times the cost without convex problems": seconds / before,
    }


def table(result: dict[str, Any]) -> str:
    """One row for each group."""
    head = ["", "points", ".1 %", "1 %", "10 %", "2 times", "missed", "largest", "ms", "cost"]
    rows = []
    for group, found in result["figures"].items():
        shares = [f"{100 * found[f'within {limit:g}']:.2f}" for limit in LIMITS]
        spent = 1e3 * found["seconds"] / found["points"]
        cost = found["times the cost without convex problems"]
        ends = [str(found["missed"]), f"{found['largest']:.4g}", f"{spent:.3g}", f"{cost:.2g}"]
        rows.append([group, str(found["points"]), *shares, *ends])
    return markdown_table(head, rows)


if __name__ == "__main__":
    print(table(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)))
