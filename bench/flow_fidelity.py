"""Whether the gradient flow is right at its default: held against finer flows and small SGD steps.

Each case of `bench/_fidelity_cases.py` is followed at the tolerance to judge, 1e-3 unless it says
so, and at that of its reference, from the same start. References at 1e-5 follow the weights
themselves in float64 (`flow/weight_flow.py`), which shares no stage, subspace, sample or dropped
neuron with the flow that is judged. Where that costs too much the reference is the staged flow at
1e-4, and in one case, where neurons slide along many kinks, gradient descent in small steps. Each
case says which one it has.

Compared are f on the data, the loss and the dominant directions, by the rule of
`gradient_flow(..., verify=True)`: the heaviest neurons that carry 99 % of all contributions each
have one with a cosine of .9 among those that carry 99.9 % in the other network. For p = 1, where
many neurons matter and spread over an arc, the rule asks for someone on every part of the arc, not
for the same neuron; it is not sharp there, and f says more.

A case fails where the reference has a direction that the flow misses, or where f differs by more
than 1 % of the largest |f|. For a failing case the flow is also followed once more at a tenth of
its tolerance, as `verify` does, to see whether that would have warned.

Some cases are followed by plain SGD as well, whose path is off the flow by the order of its step
and by the noise of its batches. It fails where it has a direction that the flow misses, or where f
differs by more than 5 %.

Every finished run is a file in runs/flow_fidelity, named by its settings and by the sources that
it rests on, and is not made again: a bench that was interrupted goes on where it was, and a change
of the stages leaves the references that do not use them. FLOW_FIDELITY_PROCESSES is how many cases
are followed at a time, 1 unless it is set. Seconds are those of the process, on one thread.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from bench._common import markdown_table, timed
from bench._fidelity_cases import CASES, Case
from extremal import models, train
from extremal.train.flow_verification import FlowVerification, compared

SETTINGS: dict[str, Any] = {
    "cases": len(CASES),
    "most output change": 0.01,
    "most output change of SGD": 0.05,
    "SGD": {"lr": 0.02, "batch": 100},
    "threads": 1,
}
_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "runs" / "flow_fidelity"
# Flows at tolerances below this follow the weights themselves.
_LEAST_STAGED_TOLERANCE = 1e-4
# More than the default: the weights' own flow at 1e-5 takes many steps over kinks.
_MOST_STEPS = 1_000_000
# What a case says of its reference and row alone does not change the runs that it needs.
_NOT_OF_THE_RUN = ("group", "tolerance", "against", "against_step", "sgd")
# Numbers that a flow in stages says of itself.
_SAID = ("missed", "change", "residual", "subspace", "neurons_left", "directions_left")


@dataclass(frozen=True, eq=False)
class Run:
    """A network at the end of a run, and what is to be known of the run."""

    net: models.PReLUNet
    info: dict[str, Any]


def measure() -> dict[str, Any]:
    """All cases, and how many of them fail."""
    return summarised(judged_cases(CASES, _FOLDER))


def judged_cases(cases: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """What each case shows, in order; runs that are in the folder are taken from there."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = int(os.environ.get("FLOW_FIDELITY_PROCESSES", "1"))
    work = partial(judged, folder=folder)
    if processes == 1:
        return [_told(case, work(case)) for case in cases]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.imap(work, cases)
        return [_told(case, each) for case, each in zip(cases, found, strict=True)]


def _told(case: Case, found: dict[str, Any]) -> dict[str, Any]:
    """The same, after a line on the standard error."""
    mark = "FAILS" if found["fails"] or found["SGD fails"] else "     "
    change = found["output_change"]
    print(f"{mark} {case.group}: {case.name}: f {change:.1e}", file=sys.stderr, flush=True)
    return found


def judged(case: Case, folder: Path) -> dict[str, Any]:
    """A case's flow beside its reference, and beside SGD where it is asked for."""
    torch.set_num_threads(SETTINGS["threads"])
    flow, reference = _flow(case, case.tolerance, folder), _reference(case, folder)
    found, _ = _compared(case, flow, reference, case.against)
    fails = _fails(found, SETTINGS["most output change"])
    runs = {"flow": flow, "reference": reference}
    result = asdict(found) | {"fails": fails, "SGD fails": False, "warned": None, "SGD": None}
    if fails:
        # Not the reference itself, to which a failing flow is always far.
        finer = (0.1 if case.against < 0.09 * case.tolerance else 0.01) * case.tolerance
        result["warned"] = _compared(case, flow, _flow(case, finer, folder), finer)[1]
    if case.sgd:
        runs["SGD"] = _sgd(case, folder)
        beside, _ = _compared(case, flow, runs["SGD"], math.nan)
        result["SGD fails"] = _fails(beside, SETTINGS["most output change of SGD"])
        result["SGD"] = {key: value for key, value in asdict(beside).items() if key != "tolerance"}
    shown = {name: run.info for name, run in runs.items()}
    return {"name": case.name, "group": case.group, **result, "runs": shown}


def _compared(case: Case, flow: Run, other: Run, tolerance: float) -> tuple[FlowVerification, bool]:
    """Two runs of a case, and whether the comparison warns."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = compared(flow.net, other.net, case.points(), train.Loss(case.loss), tolerance)
    return found, bool(seen)


def _fails(found: FlowVerification, most: float) -> bool:
    return found.lost_directions > 0 or not found.output_change <= most


def _flow(case: Case, tolerance: float, folder: Path) -> Run:
    """The flow of a case at a tolerance."""

    def run(net: models.PReLUNet) -> dict[str, Any]:
        points = case.points()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            info = train.gradient_flow(
                net,
                points,
                loss=case.loss,
                until=case.until,
                method="general",
                tolerance=tolerance,
                max_steps=_MOST_STEPS,
            ).info
        # What the few miss is not a number where all neurons were followed.
        known = {name: float(info[name]) for name in _SAID if name in info}
        said = {name: value for name, value in known.items() if not math.isnan(value)}
        sides = float(info["right_hand_sides"])
        told = [str(each.message) for each in seen]
        return {"engine": info["engine"], "right-hand sides": sides, **said, "warnings": told}

    staged = tolerance >= _LEAST_STAGED_TOLERANCE
    return _kept(case, f"flow at {tolerance:g}", _flow_sources(staged), run, folder)


def _reference(case: Case, folder: Path) -> Run:
    """What a case is held against."""
    return _descent(case, folder) if case.against_step else _flow(case, case.against, folder)


def _descent(case: Case, folder: Path) -> Run:
    """Gradient descent from the same start for the same flow time, in float64."""

    def run(net: models.PReLUNet) -> dict[str, Any]:
        steps = round(case.until / case.against_step)
        points = case.points().to(torch.float64)
        train.gd(net, points, loss=case.loss, lr=case.against_step, steps=steps)
        return {"engine": "descent", "steps": steps}

    how = f"descent in steps of {case.against_step:g}"
    return _kept(case, how, _hash(_ROOT / "extremal/train/gradient_descent.py"), run, folder)


def _sgd(case: Case, folder: Path) -> Run:
    """Plain SGD from the same start for the same flow time, in float64."""

    def run(net: models.PReLUNet) -> dict[str, Any]:
        points, given = case.points().to(torch.float64), SETTINGS["SGD"]
        steps = round(case.until / given["lr"])
        generator = torch.Generator().manual_seed(case.seed)
        train.sgd(net, points, loss=case.loss, steps=steps, generator=generator, **given)
        return {"engine": "SGD", "steps": steps}

    how = f"SGD {json.dumps(SETTINGS['SGD'], sort_keys=True)}"
    return _kept(case, how, _hash(_ROOT / "extremal/train/gradient_descent.py"), run, folder)


def _kept(case: Case, how: str, sources: str, run: Any, folder: Path) -> Run:
    """A run from its file, or made now and put there whole or not at all."""
    settings = {name: part for name, part in asdict(case).items() if name not in _NOT_OF_THE_RUN}
    named = json.dumps([settings, how, sources], sort_keys=True)
    path = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:20]}.pt"
    net = case.network()
    if path.exists():
        stored = torch.load(path, weights_only=True)
        net.load_state_dict(stored["net"])
        return Run(net, stored["info"])
    seconds, info = timed(lambda: run(net))
    info = {"how": how, "seconds": seconds, **info}
    whole = path.with_suffix(f".{os.getpid()}")
    torch.save({"net": net.state_dict(), "info": info}, whole)
    whole.replace(path)
    return Run(net, info)


@cache
def _flow_sources(staged: bool) -> str:
    """A hash of the sources of a flow: all of them, or those that follow the weights."""
    own = ("driver.py", "runge_kutta.py", "weight_flow.py")
    package = _ROOT / "extremal"
    shared = [package / "train/losses.py", package / "models/prelu_net.py"]
    folder = package / "train/flow"
    return _hash(*shared, *(folder.glob("*.py") if staged else (folder / name for name in own)))


def _hash(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def summarised(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The bench's result from what the cases show."""
    with_sgd = [each for each in found if each["SGD"] is not None]
    ratios = {
        "failing share": statistics.mean(each["fails"] for each in found),
        "largest output change": max(each["output_change"] for each in found),
        "median output change": statistics.median(each["output_change"] for each in found),
        "median cost of the reference over the flow": _median_cost(found),
    }
    if with_sgd:
        ratios["failing share beside SGD"] = statistics.mean(e["SGD fails"] for e in with_sgd)
        changes = [each["SGD"]["output_change"] for each in with_sgd]
        ratios["largest output change beside SGD"] = max(changes)
    failing = [each for each in found if each["fails"] or each["SGD fails"]]
    figures = {
        "failing": {f"{each['group']}: {each['name']}": _numbers(each) for each in failing},
        "seconds": {
            name: sum(each["runs"].get(name, {"seconds": 0.0})["seconds"] for each in found)
            for name in ("flow", "reference", "SGD")
        },
        "cases": found,
    }
    return {
        "bench": "flow_fidelity",
        "ratios": ratios,
        "figures": figures,
        "settings": SETTINGS | {"cases": len(found)},
    }


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """What a failing case is listed with."""
    names = ("output_change", "loss_change", "lost_directions", "new_directions", "warned", "SGD")
    return {name: found[name] for name in names} | {
        "reference": found["runs"]["reference"]["how"],
        "missed": found["runs"]["flow"].get("missed"),
    }


def _median_cost(found: Sequence[dict[str, Any]]) -> float:
    """The median of the reference's seconds over the flow's."""
    runs = [each["runs"] for each in found]
    return statistics.median(
        each["reference"]["seconds"] / max(each["flow"]["seconds"], 1e-9) for each in runs
    )


def table(result: dict[str, Any]) -> str:
    """One row for each group of cases, and one for SGD."""
    cases = result["figures"]["cases"]
    rows = []
    for group in dict.fromkeys(each["group"] for each in cases):
        mine = [each for each in cases if each["group"] == group]
        changes = [each["output_change"] for each in mine]
        lost = sum(each["lost_directions"] for each in mine)
        fails = sum(each["fails"] for each in mine)
        rows.append([group, *_cells(len(mine), fails, lost, changes), f"{_median_cost(mine):.1f}"])
    beside = [each for each in cases if each["SGD"] is not None]
    if beside:
        changes = [each["SGD"]["output_change"] for each in beside]
        lost = sum(each["SGD"]["lost_directions"] for each in beside)
        fails = sum(each["SGD fails"] for each in beside)
        costs = [e["runs"]["SGD"]["seconds"] / e["runs"]["flow"]["seconds"] for e in beside]
        cost = f"{statistics.median(costs):.1f}"
        rows.append(["beside SGD", *_cells(len(beside), fails, lost, changes), cost])
    head = ["", "runs", "failing", "directions missed", "largest change of f", "median"]
    return markdown_table([*head, "cost of the reference"], rows)


def _cells(runs: int, fails: int, lost: int, changes: Sequence[float]) -> list[str]:
    spread = [f"{max(changes):.1e}", f"{statistics.median(changes):.1e}"]
    return [str(runs), str(fails), str(lost), *spread]
