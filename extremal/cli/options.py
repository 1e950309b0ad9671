"""Options that several commands share, and what is read by them: a network, and points of data."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from extremal import _check
from extremal.attack import NORMS
from extremal.certify import EFFORTS
from extremal.data import DATASETS, FEATURE_SUFFIXES, Dataset, load_features
from extremal.data import load as load_data
from extremal.evaluate import box_to_json
from extremal.experiments.running.run_trials import check_run_options
from extremal.models import load, margin_range

OutOption = Annotated[Path, typer.Option("--out", "-o", help="The folder that holds the runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SeedOption = Annotated[int, typer.Option(help="Of everything that is random.")]

# Options of `run` and `sweep`.
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Trials at a time; one for each core unless said."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(help="A Dask scheduler, tcp://host:8786: trials run on its workers."),
]
ThreadsOption = Annotated[
    int, typer.Option(help="Torch threads of each trial; more may change last digits.")
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say how many trials are left and what they cost.")
]

# Options of `evaluate` and `certify`.
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

# The parts of a data set in the order in which `data.load` returns them.
DATA_SPLITS = ("train", "test")


def trials_at_a_time(jobs: int | None, cluster: str | None, threads: int) -> int | None:
    """How many trials run together, None for a cluster, which knows; ValueError for bad options.

    It is asked before anything is begun, so that a run refuses its options at once.
    """
    if cluster is not None and jobs is not None:
        raise ValueError(
            f"--jobs must be left out with --cluster, whose workers are counted there, got {jobs}"
        )
    check_run_options(1 if jobs is None else jobs, cluster, threads)
    if cluster is not None:
        return None
    return jobs or os.cpu_count() or 1


@dataclass(frozen=True)
class EvaluationOptions:
    """The options that `evaluate` and `certify` share, as they were given."""

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

    def read(self) -> tuple[nn.Module, ChosenPoints]:
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
        # Dimensions and labels that do not fit the network say so at the first point.
        correctly_classified(net, chosen.data.take(slice(1)))
        return net, chosen

    def settings(self, chosen: ChosenPoints) -> dict[str, Any]:
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


def correctly_classified(net: nn.Module, test: Dataset) -> Tensor:
    """Which points are certain to be classified correctly, (n,) bool."""
    return margin_range(net, test.x, test.y).right


@dataclass(frozen=True, eq=False)
class ChosenPoints:
    """Points that were chosen from a data set."""

    data: Dataset
    total: int  # how many there were to choose from
    shuffled: bool
    split: str | None  # None for a file, which has none

    @property
    def sampled(self) -> bool:
        """Whether they are a random sample, or all: then they speak for the population."""
        return self.shuffled or len(self.data) == self.total

    @property
    def sentence(self) -> str:
        """Which points these are, in words."""
        if len(self.data) == self.total:
            return f"all {self.total} points"
        if self.shuffled:
            return f"{len(self.data)} of {self.total} points, drawn at random"
        return (
            f"the first {len(self.data)} of {self.total} points, which are not drawn at random: "
            "no interval for the population"
        )


def read_points(
    data: str, *, split: str, box: str | None, points: int, shuffle: bool, seed: int, progress: bool
) -> ChosenPoints:
    """As many random points of a data set as asked for, by the seed, or its first ones.

    `data` is a name that `data.load` knows, or a safetensors or npz file with x (n, dim), y (n,)
    and perhaps a box: low and high, numbers or (dim,). `box` says another.
    """
    _check.choice("--split", split, DATA_SPLITS)
    _check.integer("--points", points, minimum=1)
    asked = None if box is None else _box(box)
    known = data in DATASETS
    found = (
        load_data(data, progress=progress)[DATA_SPLITS.index(split)]
        if known
        else read_data_file(data, "--data")
    )
    whole = Dataset(found.x, found.y, box=found.box if box is None else asked)
    rows = torch.arange(min(points, len(whole)))
    if shuffle:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        rows = order[:points].sort().values
    return ChosenPoints(whole.take(rows), len(whole), shuffle, split if known else None)


def read_data_file(data: str, option: str) -> Dataset:
    """The points of a file; what is wrong with it is said of the option that named it."""
    ends = " or ".join(FEATURE_SUFFIXES)
    known = f"be one of {', '.join(DATASETS)}, or a file that ends in {ends}"
    _check.require(Path(data).suffix in FEATURE_SUFFIXES, option, known, data)
    try:
        return load_features(data)
    except ValueError as error:
        told = str(error)
        own = told.startswith("path ")  # what is said of the file; else of its points
        raise ValueError(f"{option}{told.removeprefix('path')}" if own else told) from None


def _box(text: str) -> tuple[float, float] | None:
    if text == "none":
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise ValueError(f"--box must be none, or low,high such as 0,1, got {text}") from None
    return low, high
