"""Our gradient flow against the authors' recipe, at the paper's size, in one run.

The recipe is plain PyTorch: SGD with batches of 100 and steps of 0.2, 80,200 of them. Some of its
steps are timed at moments all along training, with denormal numbers kept and flushed in turns, and
their mean is multiplied; the flow runs whole. Whether denormal numbers cost time depends on the
processor: `denormal numbers multiplied, kept over flushed` tells of this one.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench._common import markdown_table, mixture_problem, wall_seconds
from extremal import data, models, train
from extremal.measure import distance
from extremal.train.flow.staged_flow import StagedFlow

SETTINGS: dict[str, Any] = {
    "dim": 1000,
    "positive": 6,
    "negative": 4,
    "spread": 0.1,
    "width": 2000,
    "train_points": 20_000,
    "init": 1e-7,
    "batch": 100,
    "lr": 0.2,
    "recipe_steps": 80_200,
    "recipe_moments": [0.0, 50.0, 200.0, 1000.0, 16_040.0],
    "recipe_steps_timed": 10,
    "flow_repeats": {"mixture": 3, "general": 3},
    "threads": 1,
}


def measure_power(p: float) -> tuple[dict[str, float], dict[str, Any]]:
    """Ratios and figures for one p."""
    recipe = _recipe_seconds(p)
    name = f"p = {p:g}"
    figures: dict[str, Any] = {
        f"recipe step, ms, denormals {kind}, {name}": 1e3 * step for kind, step in recipe.items()
    }
    ratios: dict[str, float] = {}
    for method, data_kind in (("mixture", "known mixture"), ("general", "plain x and y")):
        flow, more = _flow_figures(method, p)
        figures |= {f"{key}, {data_kind}, {name}": value for key, value in more.items()}
        ratios |= {
            f"recipe over flow, denormals {kind}, {data_kind}, {name}": SETTINGS["recipe_steps"]
            * step
            / flow
            for kind, step in recipe.items()
        }
    return ratios, figures


def _flow_figures(method: str, p: float) -> tuple[float, dict[str, Any]]:
    """The median seconds of a whole flow, and what it found and where its time went."""
    times: list[float] = []
    for _ in range(SETTINGS["flow_repeats"][method]):
        given = mixture_problem(SETTINGS, p)
        mixture, points, net = given.mixture, given.points, given.net
        if method == "general":
            points = data.Dataset(points.x, points.y)
        until = SETTINGS["recipe_steps"] * SETTINGS["lr"]
        with _stages() as stages:
            times.append(
                wall_seconds(lambda: train.gradient_flow(net, points, until=until, method="auto"))  # noqa: B023
            )
    reference = (
        models.average_classifier(mixture) if p < 2 else models.subclass_classifier(mixture, p)
    )
    generator = torch.Generator().manual_seed(1)
    flow = statistics.median(times)
    return flow, {
        "flow, s": flow,
        "where the last flow's seconds went": {**stages, "all": times[-1]},
        "dist(f, F)": distance(net, reference, generator=generator).value,
        "loss at the end": train.total_loss(net, points, train.Loss("exp")),
    }


@contextmanager
def _stages() -> Iterator[dict[str, float]]:
    """Seconds by stage of the flows inside; what is in none of them is set-up."""
    found: dict[str, float] = {}
    step = StagedFlow.step

    def timed(flow: StagedFlow, limit: float) -> None:
        stage = flow.stage.name
        found[stage] = found.get(stage, 0.0) + wall_seconds(lambda: step(flow, limit))

    StagedFlow.step = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        StagedFlow.step = step  # type: ignore[method-assign]


def measure() -> dict[str, Any]:
    """Both p of the paper."""
    torch.set_num_threads(SETTINGS["threads"])
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {"denormal numbers multiplied, kept over flushed": _denormal_cost()}
    for p in (1.0, 3.0):
        more_ratios, more_figures = measure_power(p)
        ratios |= more_ratios
        figures |= more_figures
    with multiprocessing.get_context("spawn").Pool(1) as alone:
        figures["peak resident size of one flow on plain x and y, GB"] = alone.apply(_peak)
    return {"bench": "flow", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _peak() -> float:
    """The peak resident size in GB of a process that does nothing but one flow."""
    torch.set_num_threads(SETTINGS["threads"])
    given = mixture_problem(SETTINGS, 1.0)
    points, net = given.points, given.net
    until = SETTINGS["recipe_steps"] * SETTINGS["lr"]
    train.gradient_flow(net, data.Dataset(points.x, points.y), until=until)
    # Not getrusage: its maximum is carried over from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e6


def _recipe_seconds(p: float) -> dict[str, float]:
    """The time of a step of the recipe, the mean over moments of training of the median there."""
    given = mixture_problem(SETTINGS, p)
    points, net = given.points, given.net
    moments = SETTINGS["recipe_moments"]
    record = train.Record(at=moments[1:-1], snapshots=True)
    run = train.gradient_flow(net, points, until=moments[-1], record=record)
    found = []
    for index in range(len(run)):
        run.at(index, net)
        found.append(_step_seconds(net, points))
    return {kind: statistics.mean(times[kind] for times in found) for kind in found[0]}


def _step_seconds(net: models.PReLUNet, points: data.Dataset) -> dict[str, float]:
    """The median time of a step from a network on, denormals flushed and kept in turns."""
    steps = {"flushed": _recipe_step(net, points), "kept": _recipe_step(net, points)}
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(2))
    for rows in order.split(SETTINGS["batch"])[: SETTINGS["recipe_steps_timed"] + 2]:
        for kind, step in steps.items():
            torch.set_flush_denormal(kind == "flushed")
            times[kind].append(wall_seconds(partial(step, rows)))
    torch.set_flush_denormal(True)
    return {kind: statistics.median(values[2:]) for kind, values in times.items()}


def _recipe_step(net: models.PReLUNet, points: data.Dataset) -> Callable[[torch.Tensor], None]:
    """A step of the recipe on the samples `rows`, from a copy of a network on."""
    p, labels = net.p, points.y.float()
    w, v = (part.detach().clone().requires_grad_() for part in (net.neurons, net.votes))
    optimiser = torch.optim.SGD([w, v], lr=SETTINGS["lr"])

    def step(rows: torch.Tensor) -> None:
        hidden = torch.relu(points.x[rows] @ w.T) ** p / w.norm(dim=1) ** (p - 1)
        out = (hidden @ v.T).squeeze(1)
        optimiser.zero_grad()
        torch.exp(-labels[rows] * out).mean().backward()
        optimiser.step()

    return step


def _denormal_cost() -> float:
    """How much longer a product with denormal numbers takes where they are kept."""
    torch.set_flush_denormal(False)
    tiny = torch.full((1_000_000,), 1e-30) * 1e-10
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(SETTINGS["recipe_steps_timed"]):
        for flush, values in times.items():
            torch.set_flush_denormal(flush)
            values.append(wall_seconds(lambda: tiny * 0.5))
    torch.set_flush_denormal(True)
    return statistics.median(times[False]) / statistics.median(times[True])


def table(result: dict[str, Any]) -> str:
    """One row for each p and kind of data."""
    rows = []
    figures = result["figures"]
    for p in (1, 3):
        for kind in ("known mixture", "plain x and y"):
            where = f"{kind}, p = {p}"
            spent = figures[f"where the last flow's seconds went, {where}"]
            stages = [spent.get(stage, 0.0) for stage in ("alignment", "waking", "fitting")]
            ratio = result["ratios"][f"recipe over flow, denormals flushed, {where}"]
            cells = [f"{figures[f'flow, s, {where}']:.2f}", f"{ratio:.0f}"]
            cells += [f"{part:.2f}" for part in (*stages, spent["all"] - sum(stages))]
            rows.append([f"p = {p}, {kind}", *cells])
    head = ["", "seconds", "times faster than the recipe", "alignment", "waking", "fitting"]
    return markdown_table([*head, "set-up"], rows)
