"""Our training of the MNIST networks against the same recipe as a plain PyTorch loop, in one run.

Both start from the same weights and take the same batches in the same order, so that they find the
same network up to rounding. The plain loop indexes tensors by a permutation; the one with a
DataLoader, which most people would write, is timed beside it. They take turns, an epoch each, so
that a machine that is busy for a while is busy for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench._common import markdown_table
from extremal import data, models, train

SETTINGS: dict[str, Any] = {
    "data": "mnist, the first 50,000 images for training and the last 10,000 for accuracy",
    "powers": [1, 3],
    "width": 500,
    "lr": 1e-3,
    "batch": 1000,
    "epochs": 51,
    "epochs with a DataLoader": 10,
    "denormals": "flushed, for all",
    "threads": 1,
    "seconds": "of the thread, in turns of an epoch, so that other work counts little",
}

Batches = Iterable[tuple[Tensor, Tensor]]  # of one epoch
Turn = Callable[[], None]  # lets the others work, and comes back when it is their turn's end


def measure() -> dict[str, Any]:
    """Seconds and accuracies for each p."""
    torch.set_num_threads(SETTINGS["threads"])
    torch.set_flush_denormal(True)
    images, held = data.published_split(data.load("mnist")[0])
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for p in SETTINGS["powers"]:
        figures[f"p = {p}"] = found = _compared(float(p), images, held)
        epoch = {name: run["seconds of an epoch"] for name, run in found.items()}
        for name in ("plain", "loader"):
            ratios[f"{name} over ours, seconds, p = {p}"] = epoch[name] / epoch["ours"]
    return {"bench": "train", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _compared(p: float, images: data.Dataset, held: data.Dataset) -> dict[str, Any]:
    """Seconds of an epoch and final accuracies of each."""
    start = train.mnist_network(
        p, images, width=SETTINGS["width"], generator=torch.Generator().manual_seed(0)
    )
    module = {name: PlainNetwork(start, images.x.mean(0)) for name in ("plain", "loader")}
    epochs = {"ours": SETTINGS["epochs"], "plain": SETTINGS["epochs"]}
    epochs["loader"] = SETTINGS["epochs with a DataLoader"]
    kind = {"lr": SETTINGS["lr"], "batch": SETTINGS["batch"]}
    steps, order = -(-len(images) // SETTINGS["batch"]), torch.Generator().manual_seed(1)

    def ours(turn: Turn) -> None:
        def told(what: str, done: int, total: int) -> None:
            if done % steps == 0:
                turn()

        train.adam(start, images, epochs=epochs["ours"], **kind, progress=told, generator=order)

    seconds = in_turns(
        {
            "ours": ours,
            "plain": lambda turn: fit(module["plain"], shuffled(images), epochs["plain"], turn),
            "loader": lambda turn: fit(module["loader"], loaded(images), epochs["loader"], turn),
        }
    )
    nets: dict[str, nn.Module] = {"ours": start, **module}
    return {
        name: {
            "epochs": epochs[name],
            "seconds of an epoch": seconds[name] / epochs[name],
            "accuracy": _accuracy(net, held),
        }
        for name, net in nets.items()
    }


class PlainNetwork(nn.Module):
    """votes relu(<w, z>)^p / (||w|| ||z||)^(p-1) + bias, z = x - center, left to autograd."""

    center: Tensor

    def __init__(self, start: models.PReLUNet, center: Tensor) -> None:
        super().__init__()
        self.p = start.p
        self.neurons = nn.Parameter(start.neurons.detach().clone())
        self.readout = nn.Linear(start.width, start.outputs)
        self.readout.load_state_dict({"weight": start.votes, "bias": start.bias})
        self.register_buffer("center", center)

    def forward(self, x: Tensor) -> Tensor:
        """f(x), (n, outputs)."""
        z = x - self.center
        hidden = torch.relu(nn.functional.linear(z, self.neurons))
        if self.p != 1.0:
            size = z.norm(dim=1, keepdim=True) * self.neurons.norm(dim=1)  # (n, width)
            hidden = hidden**self.p / size ** (self.p - 1.0)
        out: Tensor = self.readout(hidden)
        return out


def fit(module: nn.Module, batches: Callable[[], Batches], epochs: int, turn: Turn) -> None:
    """The plain loop."""
    optimiser = torch.optim.Adam(module.parameters(), lr=SETTINGS["lr"])
    for _ in range(epochs):
        for x, y in batches():
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        turn()


def shuffled(images: data.Dataset) -> Callable[[], Batches]:
    """Batches by a permutation of the tensors, in the order that ours takes them."""
    generator = torch.Generator().manual_seed(1)

    def epoch() -> Batches:
        order = torch.randperm(len(images), generator=generator)
        return ((images.x[rows], images.y[rows]) for rows in order.split(SETTINGS["batch"]))

    return epoch


def loaded(images: data.Dataset) -> Callable[[], Batches]:
    """Batches from PyTorch's DataLoader."""
    loader: Batches = DataLoader(
        TensorDataset(images.x, images.y),
        batch_size=SETTINGS["batch"],
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    return lambda: loader


def _accuracy(net: nn.Module, held: data.Dataset) -> float:
    with torch.no_grad():
        return float((net(held.x).argmax(1) == held.y).double().mean())


def in_turns(runs: Mapping[str, Callable[[Turn], None]]) -> dict[str, float]:
    """The seconds that each run's thread computes, one of them at a time; the first one begins."""
    queue, moved = [*runs], threading.Condition()

    def come(name: str) -> None:
        moved.wait_for(lambda: queue[0] == name)

    def work(name: str) -> float:
        def turn() -> None:
            with moved:
                queue.append(queue.pop(0))
                moved.notify_all()
                come(name)

        torch.set_flush_denormal(True)  # of this thread
        with moved:
            come(name)
        begun = time.thread_time()
        try:
            runs[name](turn)
            return time.thread_time() - begun
        finally:
            with moved:
                queue.remove(name)
                moved.notify_all()

    with ThreadPoolExecutor(len(runs)) as pool:
        return dict(zip(runs, pool.map(work, runs), strict=True))


def table(result: dict[str, Any]) -> str:
    """One row for each p: seconds of an epoch, how much faster, and accuracies."""
    rows = []
    for p in result["settings"]["powers"]:
        found = result["figures"][f"p = {p}"]
        ours, plain, loader = (found[kind] for kind in ("ours", "plain", "loader"))
        cells = [f"{run['seconds of an epoch']:.2f}" for run in (ours, plain, loader)]
        cells += [
            f"{result['ratios'][f'{kind} over ours, seconds, p = {p}']:.2f}"
            for kind in ("plain", "loader")
        ]
        cells += [f"{run['accuracy']:.4f}" for run in (ours, plain)]
        rows.append([f"p = {p}", *cells])
    head = ["seconds of an epoch", "ours", "plain loop", "with a DataLoader", "plain / ours"]
    return markdown_table([*head, "DataLoader / ours", "accuracy, ours", "accuracy, plain"], rows)
