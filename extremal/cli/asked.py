"""What `evaluate` and `certify` are asked: their common options, checked and read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import batches
from extremal.attack import BATCH_POINTS, NORMS
from extremal.certify import EFFORTS
from extremal.cli.points import Points, read_points
from extremal.data import DATASETS, Dataset
from extremal.evaluate import box_to_json
from extremal.models import float64_copy, load, output_margins

ModelArgument = Annotated[
    Path,
    typer.Argument(help="A model file, net.save('net.safetensors'), or a name such as mnist-p3."),
]
DataOption = Annotated[
    str,
    typer.Option(
        "--data", "-d", help=f"{', '.join(DATASETS)}, or a .safetensors or .npz file with x and y."
    ),
]
NormOption = Annotated[str, typer.Option(help="l1, l2 or linf.")]
RadiusOption = Annotated[
    list[float] | None, typer.Option("--radius", "-r", help="A radius; may be given several times.")
]
EffortOption = Annotated[str, typer.Option(help="tight, or fast.")]
PointsOption = Annotated[int, typer.Option(help="How many points at most.")]
ShuffleOption = Annotated[
    bool, typer.Option("--shuffle/--first", help="Take random points, or the first ones.")
]
SplitOption = Annotated[str, typer.Option(help="test or train, of a data set with both.")]
BoxOption = Annotated[
    str | None, typer.Option(help="low,high or none; a data set or file may have its own.")
]
SeedOption = Annotated[int, typer.Option(help="Of everything that is random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Asked:
    """The options that the two commands share, as they were given."""

    model: Path
    data: str
    norm: str
    radius: list[float] | None
    effort: str
    points: int
    shuffle: bool
    split: str
    box: str | None
    seed: int

    def read(self) -> tuple[nn.Module, Points]:
        """The network and the points, once every option is known to be good."""
        _check.choice("--norm", self.norm, NORMS)
        _check.choice("--effort", self.effort, EFFORTS)
        for value in self.radius or []:
            _check.number("--radius", value, minimum=0.0)
        _check.integer("--seed", self.seed, minimum=0)
        net = load(self.model)
        chosen = read_points(
            self.data,
            split=self.split,
            box=self.box,
            points=self.points,
            shuffle=self.shuffle,
            seed=self.seed,
            progress=sys.stderr.isatty(),
        )
        correct(net, chosen.data.take(slice(1)))  # dimensions and labels that do not fit say so
        return net, chosen

    def settings(self, chosen: Points) -> dict[str, Any]:
        """What was asked, for JSON."""
        return {
            "model": str(self.model),
            "data": self.data,
            "split": chosen.split,
            "shuffle": self.shuffle,
            "sampled": chosen.sampled,
            "points": len(chosen.data),
            "norm": self.norm,
            "box": box_to_json(chosen.data.box),
            "effort": self.effort,
            "seed": self.seed,
        }


def correct(net: nn.Module, test: Dataset) -> Tensor:
    """Which points are classified correctly, (n,) bool."""
    twin = float64_copy(net)
    with torch.no_grad():
        parts = [
            output_margins(twin(test.x[at].double()), test.y[at]) > 0
            for at in batches(len(test), BATCH_POINTS)
        ]
    return torch.cat(parts)


def say(*lines: str) -> None:
    """Print lines as they are, broken at 80 columns where nobody looks at a terminal."""
    console = Console(width=None if Console().is_terminal else 80)
    for line in lines:
        console.print(line, markup=False, highlight=False)
