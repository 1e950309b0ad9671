"""Alignment: directions first, then norms; and what a nudge toward the centres changes."""

from typing import Literal

from extremal import theory
from extremal.experiments import Claim, Experiment, Line, Mark, Setting, Settings

_KINDS = ("none", "direction", "literal")
_PHASES = "poster, 'Crucial role of implicit bias': direction first, then norm"
_RUN = "about 600 iterations, read off the full paper's figure"
_LEARNED = "poster: for p > 2 neurons learn cluster centres"
_THEORY = "log(1/||w||) K / step at a centre, to leading order: theory.onset_time"
_STATED = Mark(lambda s: s["steps"], "end of GD")
_RECORDED = [*range(20, 600, 20), *range(600, 2000, 50), *range(2000, 8001, 200)]


def _growth(settings: Settings) -> float:
    """Iterations that an aligned neuron of the initial norm takes to norm 1."""
    counts = (settings["positive"], settings["negative"])
    rate = theory.growth_rate(max(counts), sum(counts), settings["p"], "center", "exp")
    length = settings["init_std"] * settings["dim"] ** 0.5
    return theory.onset_time(length, rate) / settings["lr"]


def _line(title: str, y: str, ylabel: str, log: Literal["x", "xy"] = "x") -> Line:
    labels = {
        "none": "no nudge",
        "direction": "nudge of the direction",
        "literal": "nudge of w itself",
    }
    axes = ("iteration", (y,), "iteration", ylabel)
    return Line(title, *axes, by="nudge", labels=labels, marks=(_STATED,), log=log)


def _claims(kind: str) -> tuple[Claim, ...]:
    """For the literal nudge, which starts aligned, nothing is said of what comes first."""
    at, name = {"nudge": kind}, f"{kind}: "
    order = Claim(name + "share that aligns, then grows", "aligned_first", 1.0, 0.01, _PHASES, at)
    return (
        *((order,) if kind != "literal" else ()),
        Claim(name + "loss after GD", "loss_descent", 0.0, 0.1, _RUN, at),
        Claim(name + "centres missed in the end", "missed", 0.0, 0.0, _LEARNED, at),
    )


experiment = Experiment(
    name="min-vidal-2025/alignment",
    title="Two phases: directions first, then norms",
    source="Min & Vidal 2025, poster; the run's numbers are from the full paper",
    study="extremal.experiments.studies.phases:phases",
    settings={
        "dim": Setting(1000, "O", "D, from the full paper"),
        "positive": Setting(5, "O", "K1, from the full paper"),
        "negative": Setting(5, "O", "K2, from the full paper"),
        "spread": Setting(0.1, "O", "alpha, from the full paper"),
        "p": Setting(3.0, "O", "from the full paper"),
        "init_std": Setting(1e-7, "O", "from the full paper, read as a standard deviation"),
        "lr": Setting(0.2, "O", "GD's step, from the full paper"),
        "steps": Setting(600, "O", "iterations of GD, from the full paper"),
        "train_points": Setting(5000, "O", "n, from the full paper"),
        "nudge": Setting(list(_KINDS), "O", "the paper's can be read in two ways: see the notes"),
        "nudge_size": Setting(0.05, "O", "from the full paper"),
        "width": Setting(200, "O", "not known for this run; the poster's networks have 200"),
        "loss": Setting("exp", "S", "exponential or logistic, poster; here its mean"),
        "recorded": Setting(_RECORDED, "O", "iterations; after GD's last the flow goes on"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "dim": 200,
        "train_points": 1000,
        "width": 100,
        "recorded": [*range(50, 600, 50), *range(600, 6001, 200)],
        "seeds": 1,
    },
    smoke={
        "dim": 30,
        "positive": 2,
        "negative": 2,
        "init_std": 1e-4,
        "steps": 40,
        "train_points": 100,
        "width": 20,
        "recorded": [*range(10, 40, 10), *range(40, 1001, 40)],
        "seeds": 1,
    },
    axes=("nudge",),
    version=2,
    columns=3,
    panels=(
        _line("Directions", "mean_cosine", "mean cosine of what ends dominant"),
        _line("Norms", "largest_norm", "largest ‖w‖", "xy"),
        _line("Loss", "losses", "training loss"),
    ),
    claims=(
        *(claim for kind in _KINDS for claim in _claims(kind)),
        Claim(
            "none: norm at alignment, as a share of the last",
            "norm_when_aligned",
            0.0,
            0.01,
            _PHASES,
            {"nudge": "none"},
        ),
        Claim(
            "none: iterations from alignment to growth",
            "growth_iterations",
            _growth,
            130.0,
            _THEORY,
            {"nudge": "none"},
            scales=("paper",),
        ),
    ),
    notes=(
        "The nudge w += 0.05 (mu - w) toward a random centre is read in two ways: of w itself, "
        "which at a scale of 1e-7 leaves ||w|| = 0.05 and cosines of 1, so that nothing is left to "
        "align; and of the direction w/||w|| with the norm kept, so that the start stays small and "
        "only a little less random. With the mean loss 600 iterations are a flow time of 120. A "
        "neuron that is aligned from the start takes 633 to grow from 3e-6 to 1, and alignment "
        "from random directions comes before that: only the first reading is fitted by then. A "
        "summed loss makes steps 5000 times as long: it jumps to zero loss in 6 of them, with 6 of "
        "10 centres missed. Mean cosines are with the centre that each neuron ends at, weighted by "
        "what it contributes in the end; neurons have aligned at 0.9, and have grown at half their "
        "last norm. After the iterations of GD, times of its flow are given in steps."
    ),
)
