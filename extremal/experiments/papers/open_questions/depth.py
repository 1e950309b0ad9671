"""Does pReLU help deeper networks: dense ones on the mixture and digits, convolutional on CIFAR."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Scale, Setting

_FASHION = "fashion-mnist"
_LEARNED = {"mixture": 0.99, "mnist": 0.9, _FASHION: 0.75, "cifar10": 0.3}
_DEEP = {"mixture": "dense", "mnist": "dense", _FASHION: "dense", "cifar10": "conv"}
_FITTED = "ours: a network that has not learned says nothing; ten classes of CIFAR-10 are hard here"
_LONGER = "ours: attacks of 30 steps, checked by longer ones on a few points"
_SOURCE = "open question 2 and next check 2 of the summary: do the gains carry over?"


def _label(
    network: str, layers: int, p: float, residual: bool, normalize: bool, small: bool
) -> str:
    kind = "ReLU" if p == 1.0 else f"p = {p:g}"
    words = (
        " norm" if p == 1.0 and normalize else "",
        " shallow" if network == "shallow" else f", {layers}",
        " conv" if network == "conv" else "",
        " res" if residual else "",
        " small" if small else "",
    )
    return kind + "".join(words)


def _net(
    network: str,
    layers: int,
    p: float,
    *,
    residual: bool = False,
    normalize: bool | None = None,
    small: bool = False,
) -> dict[str, Any]:
    """A network; layers of p > 1 are normalised unless it says otherwise."""
    divided = p > 1.0 if normalize is None else normalize
    return {
        "label": _label(network, layers, p, residual, divided, small),
        "network": network,
        "layers": layers,
        "p": p,
        "residual": residual,
        "normalize": divided,
        "init": _SMALL_START if small else "default",
    }


def _cases(
    problem: str, nets: list[dict[str, Any]], radii: list[float], panel: str = "", **given: Any
) -> list[dict[str, Any]]:
    """Networks on a problem, drawn in a panel of that name unless another is given."""
    case = {"problem": problem, "radii": radii, "panel": panel or problem, **given}
    return [case | net for net in nets]


_SMALL_START = 1e-2  # the variance of 1e-4 of Min & Vidal 2025
_TWINS = [_net("dense", layers, p) for layers in (1, 2, 3, 4) for p in (1.0, 3.0)]
_RESIDUAL = _net("dense", 3, 3.0, residual=True)
_DIVIDED = [_net("dense", layers, 1.0, normalize=True) for layers in (2, 3)]
_CONTROLS = [_net("shallow", 1, p, small=True) for p in (1.0, 3.0)]
_CONTROLS += [_net("dense", layers, 3.0, small=True) for layers in (2, 3)]
_CONV = [_net("conv", 3, p) for p in (1.0, 3.0)]
_UNIT = [round(0.1 * i, 2) for i in range(11)]
_PIXELS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
_FEW = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
_SHORT = [0.0, 0.05, 0.1, 0.2, 0.4]
_POINTS: dict[str, Any] = {"train_points": 2000, "batch": 100}
_TRAINS_HERE: dict[str, Any] = {"width": 16, "train_points": 5000, "epochs": 6}


def _panel(title: str, panel: str) -> Line:
    return Line(
        title,
        "radius",
        ("robust_accuracy",),
        "l2 radius",
        "accuracy under attack",
        by="label",
        where={"panel": panel},
    )


def _over(
    problem: str,
    ours: dict[str, Any],
    other: dict[str, Any],
    scales: tuple[Scale, ...] = ("paper",),
) -> Claim:
    """One network is more robust than another in every seed, by the area under the curve."""
    return Claim(
        f"{problem}: {ours['label']} over {other['label']}",
        "area",
        {"problem": problem, "label": other["label"]},
        0.0,
        _SOURCE,
        {"problem": problem, "label": ours["label"]},
        rule="over",
        scales=scales,
    )


def _twins(problem: str, layers: int) -> Claim:
    return _over(problem, _TWINS[2 * layers - 1], _TWINS[2 * layers - 2])


def _at_least(text: str, value: str, least: float, source: str, problem: str) -> Claim:
    where = {"problem": problem}
    return Claim(f"{problem}: {text}", value, least, 0.0, source, where, "above", ("paper",))


experiment = Experiment(
    name="open-questions/depth",
    title="Does pReLU make deeper networks robust?",
    source="open question: summary of Min & Vidal 2024, open question 2, next check 2",
    study="extremal.experiments.studies.depth:depth",
    settings={
        "case": Setting(
            [
                *_cases("mixture", [*_TWINS, _RESIDUAL], _UNIT, **_POINTS),
                *_cases("mixture", [*_DIVIDED, *_CONTROLS], _UNIT, "controls", **_POINTS),
                *_cases("mnist", [*_TWINS[:6], _DIVIDED[0]], _PIXELS),
                *_cases(_FASHION, _TWINS[:4], _PIXELS),
                *_cases("cifar10", _CONV, _SHORT, **_TRAINS_HERE),
            ],
            "O",
            "problem, network and the radii to attack at",
        ),
        "dim": Setting(200, "O", "of the mixture"),
        "positive": Setting(6, "O", "of the mixture, as in Min & Vidal 2024"),
        "negative": Setting(4, "O", "of the mixture"),
        "spread": Setting(0.1, "O", "of the mixture"),
        "train_points": Setting(10_000, "O", "a random subset, so that it trains here"),
        "test_points": Setting(2000, "O", "a random subset"),
        "attacked_points": Setting(40, "O", "the first of them"),
        "width": Setting(200, "O", "of a hidden layer; channels of the first convolution"),
        "lr": Setting(1e-3, "O", "Adam, as on MNIST in Min & Vidal 2024"),
        "batch": Setting(200, "O"),
        "epochs": Setting(20, "O"),
        "effort": Setting("fast", "O", "30 steps of each attack"),
        "longer_points": Setting(6, "O", "that meet 100 steps of each attack as well"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "case": [
            *_cases("mixture", [_net("dense", 2, p) for p in (1.0, 3.0)], _UNIT[::2], batch=50),
            *_cases("mixture", _CONTROLS[:2], _UNIT[::2], "controls", batch=50),
            *_cases("digits", [_net("dense", 2, p) for p in (1.0, 3.0)], _FEW, "mnist"),
            *_cases("digits", [_net("dense", 3, p) for p in (1.0, 3.0)], _FEW, _FASHION),
            *_cases("digits", [_net("conv", 2, p) for p in (1.0, 3.0)], _FEW, "cifar10", width=8),
        ],
        "dim": 100,
        "train_points": 1000,
        "test_points": 300,
        "attacked_points": 30,
        "width": 100,
        "batch": 100,
        "epochs": 15,
        "longer_points": 4,
        "seeds": 1,
    },
    smoke={
        "case": [
            *_cases("mixture", [_net("dense", 2, 3.0)], [0.0, 0.5]),
            *_cases("mixture", [_CONTROLS[1]], [0.0, 0.5], "controls"),
            *_cases("digits", [_net("dense", 1, 3.0)], [0.0, 1.0], "mnist"),
            *_cases("digits", [_net("dense", 2, 1.0)], [0.0, 1.0], _FASHION),
            *_cases("digits", [_net("conv", 2, 3.0)], [0.0, 1.0], "cifar10", width=2),
        ],
        "dim": 10,
        "positive": 2,
        "negative": 2,
        "train_points": 60,
        "test_points": 20,
        "attacked_points": 4,
        "width": 8,
        "batch": 20,
        "epochs": 2,
        "longer_points": 2,
        "seeds": 1,
    },
    axes=("case",),
    columns=2,
    panels=(
        _panel("The mixture", "mixture"),
        _panel("The mixture: controls", "controls"),
        _panel("MNIST (quick: digits)", "mnist"),
        _panel("Fashion-MNIST (quick: digits)", _FASHION),
        _panel("CIFAR-10, convolutional (quick: digits)", "cifar10"),
    ),
    claims=(
        *(_twins("mixture", layers) for layers in (1, 2, 3, 4)),
        *(_twins("mnist", layers) for layers in (1, 2, 3)),
        *(_twins(_FASHION, layers) for layers in (1, 2)),
        _over("cifar10", _CONV[1], _CONV[0]),
        *(_over("mixture", _TWINS[2 * layers - 1], _DIVIDED[layers - 2]) for layers in (2, 3)),
        _over("mnist", _TWINS[3], _DIVIDED[0]),
        _over("mixture", _CONTROLS[1], _CONTROLS[0], ("quick", "paper")),
        *(_over("mixture", small, _CONTROLS[0]) for small in _CONTROLS[2:]),
        *(
            _at_least("clean accuracy", "clean_accuracy", least, _FITTED, problem)
            for problem, least in _LEARNED.items()
        ),
        *(
            Claim(
                f"{problem}: radii left by attacks of 100 steps, {side}",
                "longer_share",
                0.9,
                0.0,
                _LONGER,
                {"problem": problem, "p": p, "network": kind},
                "above",
                ("paper",),
            )
            for problem, kind in _DEEP.items()
            for p, side in ((1.0, "ReLU"), (3.0, "p = 3"))
        ),
    ),
    version=2,
    notes=(
        "Networks are trained by Adam, and start as PyTorch does but where it says 'small': from "
        "Gaussian weights of 0.01. Layers of p = 3 are divided by their norms, those of ReLU "
        "networks where it says 'norm'. 'Shallow' is the papers' own network, from a small start: "
        "the control, whose attacks know its structure. For all others attacks are those for any "
        "network, 30 steps of each, without a certificate beside them; a few points meet 100 "
        "steps, and the share of the radii that is left is a row of its own. A row 'over' holds "
        "in every seed: one that differs is a case in which pReLU does not help, or not always. "
        "At quick scale scikit-learn's digits stand in for all images."
    ),
)
