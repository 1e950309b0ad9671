"""PReLUClassifier() against scikit-learn's MLPClassifier: accuracy, and how robust it is.

Robustness is the area under robust accuracy against the l2 radius under our strongest attack, which
is the mean over test points of the smallest radius that breaks them, 0 for a misclassified one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from bench._common import markdown_table
from extremal import attack, models
from extremal.sklearn import PReLUClassifier

SETTINGS: dict[str, Any] = {
    "data": ["digits", "breast_cancer", "wine", "iris"],
    "splits": 3,
    "first split": 10,
    "test share": 0.2,
    "ours": "PReLUClassifier(), on raw features",
    "rivals": {
        "default": "MLPClassifier()",
        "wide": "MLPClassifier((500,)), as many neurons as ours",
        "p = 1": "PReLUClassifier(p=1): ours with ReLUs",
    },
    "inputs of the rivals": "StandardScaler on tables; pixels / 16 on digits, where it is the more "
    "robust choice: the figures 'digits, standardised' show the other one",
    "units of the radii": "standard deviations of the training data on tables, so that no "
    "feature's unit decides; pixels from 0 to 1 on digits, which share a unit already",
    "threads": 1,
}
WIDTHS = {"default": 100, "wide": 500}
RIVALS = (*WIDTHS, "p = 1")
FIRST = SETTINGS["first split"]  # defaults were chosen on splits 0 and 1
LEVELS = 16.0  # the largest pixel


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test part, and the units in which radii are told: z = (x - center) / unit."""

    x: NDArray[Any]
    y: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    center: NDArray[Any]
    unit: NDArray[Any]

    def points(self) -> tuple[Tensor, Tensor]:
        """The test part in these units."""
        z = (self.x_test - self.center) / self.unit
        return torch.tensor(z), torch.tensor(self.y_test)


def measure() -> dict[str, Any]:
    """Every data set and split."""
    torch.set_num_threads(SETTINGS["threads"])
    figures: dict[str, Any] = {}
    with threadpool_limits(SETTINGS["threads"]):
        for name in SETTINGS["data"]:
            for seed in range(SETTINGS["splits"]):
                figures[f"{name}, split {seed}"] = compared(name, FIRST + seed, RIVALS)
        rows = list(figures.values())
        figures["digits, standardised"] = _standardised()
    figures["losses"] = losses(figures)
    ratios = {}
    for rival in RIVALS:
        ratios[f"our accuracy minus that of {rival}, mean"] = _mean(rows, "accuracy", rival)
        ratios[f"our area minus that of {rival}, mean"] = _mean(rows, "area", rival)
        for name in SETTINGS["data"]:
            found = [figures[f"{name}, split {k}"] for k in range(SETTINGS["splits"])]
            ours, theirs = (sum(f[who]["area"] for f in found) for who in ("ours", rival))
            ratios[f"our area over that of {rival}, {name}"] = ours / theirs
    return {"bench": "estimator", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def compared(name: str, seed: int, rivals: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Accuracy and area of ours and of each rival on one split of one data set."""
    split = _split(name, seed)
    found = {"ours": _judged(_ours(split, 3.0, seed), split)}
    for rival in rivals:
        relu = rival not in WIDTHS
        found[rival] = _judged(
            _ours(split, 1.0, seed)
            if relu
            else _mlp(split, WIDTHS[rival], seed, split.center, split.unit),
            split,
        )
    return found


def _ours(split: Split, p: float, seed: int) -> models.PReLUNet:
    """Our classifier with all other settings at their defaults, in the split's units."""
    fitted = PReLUClassifier(p=p, random_state=seed).fit(split.x, split.y)
    return _rescaled(fitted.net_, split.center, split.unit)


def losses(figures: dict[str, Any]) -> list[str]:
    """Every split, rival and measure where ours has less."""
    return [
        f"{where}, {measure} against {rival}: {found['ours'][measure]:.4f} < {value[measure]:.4f}"
        for where, found in figures.items()
        if ", split " in where
        for rival, value in found.items()
        for measure in ("accuracy", "area")
        if found["ours"][measure] < value[measure]
    ]


def _mean(rows: list[dict[str, Any]], measure: str, rival: str) -> float:
    return float(np.mean([found["ours"][measure] - found[rival][measure] for found in rows]))


def _standardised() -> dict[str, float]:
    """The default rival on standardised pixels, radii in pixels all the same."""
    split = _split("digits", FIRST)
    scaler = StandardScaler().fit(split.x)
    return _judged(_mlp(split, WIDTHS["default"], FIRST, scaler.mean_, scaler.scale_), split)


def _split(name: str, seed: int) -> Split:
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        x, y, test_size=SETTINGS["test share"], stratify=y, random_state=seed
    )
    if name == "digits":
        center, unit = np.zeros(x.shape[1]), np.full(x.shape[1], LEVELS)
    else:
        scaler = StandardScaler().fit(x)
        center, unit = scaler.mean_, scaler.scale_
    return Split(x, y, x_test, y_test, center, unit)


def _judged(net: models.PReLUNet, split: Split) -> dict[str, float]:
    """The accuracy, and the mean of the smallest radii that break each point."""
    z, y = split.points()
    with torch.no_grad():
        right = net(z).argmax(1) == y
    found = attack.minimal(net, z[right], y[right], generator=torch.Generator())
    return {
        "accuracy": float(right.double().mean()),
        "area": float(found.radius.sum()) / len(y),
    }


def _mlp(
    split: Split, width: int, seed: int, center: NDArray[Any], spread: NDArray[Any]
) -> models.PReLUNet:
    """An MLPClassifier on (x - center) / spread, as a network of the split's units.

    Its one logistic output for two classes, f, is read as the two outputs -f/2 and +f/2.
    """
    model = MLPClassifier((width,), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((split.x - center) / spread, split.y)
    first, last = (torch.tensor(part.T) for part in model.coefs_)
    before, after = (torch.tensor(part) for part in model.intercepts_)
    if len(last) == 1:
        last, after = torch.cat([-last, last]) / 2, torch.cat([-after, after]) / 2
    # z of the split's units is read as x = center' + unit' z, and then as (x - center) / spread.
    before = before + first @ torch.tensor((split.center - center) / spread)
    first = first * torch.tensor(split.unit / spread)
    layers = nn.Linear(*first.T.shape).double(), nn.Linear(*last.T.shape).double()
    with torch.no_grad():
        for layer, weight, bias in zip(layers, (first, last), (before, after), strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return models.from_torch(nn.Sequential(layers[0], nn.ReLU(), layers[1]))


def _rescaled(net: models.PReLUNet, center: NDArray[Any], unit: NDArray[Any]) -> models.PReLUNet:
    """The same classifier of z = (x - center) / unit: <w, x - c> = <unit w, z - (c - center)/unit>.

    ||w||^(p-1) becomes ||unit w||^(p-1), and the votes make up for it. A network that normalises
    its inputs is scaled before, by one unit for all.
    """
    normalize, scale = net.preparation.normalize, 1.0
    if normalize > 0:
        assert (unit == unit[0]).all()
        scale = net.preparation.scale * float(unit[0])
    with torch.no_grad():
        moved = net.neurons * (1.0 if normalize > 0 else torch.tensor(unit))
        longer = moved.norm(dim=1) / net.neurons.norm(dim=1).clamp(min=1e-300)
        assert net.preparation.center is not None
        middle = (net.preparation.center - torch.tensor(center)) / torch.tensor(unit)
        votes = net.votes * longer ** (net.p - 1.0)
    return models.PReLUNet(
        net.dim,
        net.width,
        net.p,
        net.outputs,
        bias=True,
        preparation=models.Preparation(scale, middle, normalize),
        init=models.Explicit(moved, votes, None, net.bias),
        dtype=torch.float64,
        generator=torch.Generator(),
    )


def table(result: dict[str, Any]) -> str:
    """One row for each data set: means over its splits, ours and each rival."""
    figures, settings = result["figures"], result["settings"]
    kinds = ("ours", *settings["rivals"])
    rows = []
    for name in settings["data"]:
        found = [figures[f"{name}, split {k}"] for k in range(settings["splits"])]
        cells = [
            f"{sum(of[kind][measure] for of in found) / len(found):.3f}"
            for measure in ("accuracy", "area")
            for kind in kinds
        ]
        rows.append([name.replace("_", " "), *cells])
    head = [f"{measure}, {kind}" for measure in ("accuracy", "area") for kind in kinds]
    return markdown_table(["", *head], rows)


def losses_table(result: dict[str, Any]) -> str:
    """Every split in which ours is less accurate, or less robust, than a rival."""
    rows = [lost.rsplit(": ", 1) for lost in result["figures"]["losses"]]
    return markdown_table(["ours loses in", "ours < theirs"], rows)
