"""Hand-written derivatives against autograd, and flushed denormals against none."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from extremal import data, models, train
from extremal.train.optimisers import fused_sgd_step

SETTINGS = {"dim": 1000, "width": 2000, "batch": 100, "p": [1.0, 3.0], "init": 1e-7, "repeats": 15}


def measure() -> dict[str, Any]:
    """Median times of alternating runs at the paper's size, one thread, as ratios."""
    torch.set_num_threads(1)
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    for p in (1.0, 3.0):
        times = _gradients(p)
        ratios[f"autograd over ours, p = {p:g}"] = times["autograd"] / times["ours"]
        figures[f"ours, ms, p = {p:g}"] = 1e3 * times["ours"]
        steps = _steps(p)
        ratios[f"a step of torch.optim.SGD over ours, p = {p:g}"] = steps["torch"] / steps["ours"]
        figures[f"our step, ms, p = {p:g}"] = 1e3 * steps["ours"]
        ratios[f"denormals kept over flushed, p = {p:g}"] = _denormals(p)
    return {"bench": "gradients", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _problem(p: float, init: float) -> tuple[models.PReLUNet, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mixture = data.OrthonormalMixture(SETTINGS["dim"], 6, 4, 0.1)
    batch = mixture.sample(SETTINGS["batch"], generator=generator)
    start = models.Gaussian(init)
    net = models.PReLUNet(SETTINGS["dim"], SETTINGS["width"], p, init=start, generator=generator)
    return net, batch.x, batch.y


def _gradients(p: float) -> dict[str, float]:
    net, x, y = _problem(p, SETTINGS["init"])
    loss = train.Loss("exp")
    return _alternate(
        autograd=lambda: _autograd(net, x, y, loss),
        ours=lambda: train.loss_and_gradient(net, x, y, loss),
    )


def _steps(p: float) -> dict[str, float]:
    """A step of SGD in plain PyTorch, with the authors' formula, and ours."""
    torch.set_flush_denormal(True)
    net, x, y = _problem(p, SETTINGS["init"])
    twin, _, _ = _problem(p, SETTINGS["init"])
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.2)
    loss = train.Loss("exp")

    def plain() -> None:
        w, v = twin.neurons, twin.votes
        hidden = torch.relu(x @ w.T) ** p / w.norm(dim=1) ** (p - 1)
        optimiser.zero_grad()
        torch.exp(-y * (hidden @ v.T).squeeze(1)).mean().backward()
        optimiser.step()

    return _alternate(torch=plain, ours=lambda: fused_sgd_step(net, x, y, loss, 0.2))


def _autograd(net: models.PReLUNet, x: torch.Tensor, y: torch.Tensor, loss: train.Loss) -> None:
    torch.autograd.grad(loss.value(net(x), y), list(net.parameters()))


def _denormals(p: float) -> float:
    """The authors' formula, relu(<x, w>)^p / ||w||^(p-1), with and without denormal numbers."""
    net, x, y = _problem(p, SETTINGS["init"])

    def step() -> None:
        w, v = net.neurons, net.votes
        hidden = torch.relu(x @ w.T) ** p / w.norm(dim=1) ** (p - 1)
        out = (hidden @ v.T).squeeze(1)
        torch.autograd.grad(torch.exp(-y * out).mean(), [w, v])

    def kept() -> None:
        torch.set_flush_denormal(False)
        step()

    def flushed() -> None:
        torch.set_flush_denormal(True)
        step()

    times = _alternate(kept=kept, flushed=flushed)
    torch.set_flush_denormal(True)
    return times["kept"] / times["flushed"]


def _alternate(**actions: Callable[[], object]) -> dict[str, float]:
    """The median time of each action, taken in turns so that a busy machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(SETTINGS["repeats"]):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[2:]) for name, values in times.items()}
