"""Does pReLU help deeper networks: dense ones on the mixture and digits, convolutional on CIFAR."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting

_FASHION = "fashion-mnist"
_SOURCE = "open question 2 and next check 2 of the summary: do the gains carry over?"


def _label(network: str, layers: int, p: float, residual: bool = False) -> str:
    kind = "ReLU" if p == 1.0 else f"p = {p:g}"
    return f"{kind}, {layers}{' conv' if network == 'conv' else ''}{' res' if residual else ''}"


def _net(network: str, layers: int, p: float, residual: bool = False) -> dict[str, Any]:
    label = _label(network, layers, p, residual)
    return {"network": network, "layers": layers, "p": p, "residual": residual, "label": label}


def _cases(
    problem: str, nets: list[dict[str, Any]], radii: list[float], panel: str = "", **given: Any
) -> list[dict[str, Any]]:
    """Networks on a problem, drawn in a panel of that name unless another is given."""
    case = {"problem": problem, "radii": radii, "panel": panel or problem, **given}
    return [case | net for net in nets]


_DENSE = [_net("dense", layers, p) for layers in (1, 2, 3, 4) for p in (1.0, 3.0)]
_DENSE += [_net("dense", 3, 3.0, residual=True)]
_CONV = [_net("conv", 3, p) for p in (1.0, 3.0)]
_UNIT = [round(0.1 * i, 2) for i in range(11)]
_PIXELS = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]
_FEW = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
_SMALL = [0.0, 0.05, 0.1, 0.2, 0.4]
_TRAINS_HERE: dict[str, Any] = {
    "width": 16,
    "train_points": 5000,
    "epochs": 6,
    "attacked_points": 30,
}


def _panel(title: str, panel: str) -> Line:
    return Line(
        title,
        "radius",
        ("robust_accuracy",),
        "l2 radius",
        "accuracy under the strongest attack",
        by="label",
        where={"panel": panel},
    )


def _above(problem: str, network: str, layers: int) -> Claim:
    """The pReLU network is more robust than its ReLU twin, by the area under the curve."""
    twin = {"problem": problem, "label": _label(network, layers, 1.0)}
    return Claim(
        f"{problem}: p = 3 above ReLU, {layers} {network}",
        "area",
        twin,
        0.0,
        _SOURCE,
        {"problem": problem, "label": _label(network, layers, 3.0)},
        rule="above",
        scales=("paper",),
    )


experiment = Experiment(
    name="open-questions/depth",
    title="Does pReLU make deeper networks robust?",
    source="open question: summary of Min & Vidal 2024, open question 2, next check 2",
    study="extremal.experiments.studies.depth:depth",
    settings={
        "case": Setting(
            [
                *_cases("mixture", _DENSE, _UNIT, train_points=2000, batch=100),
                *_cases("mnist", _DENSE, _PIXELS),
                *_cases(_FASHION, _DENSE[:6], _PIXELS),
                *_cases("cifar10", _CONV, _SMALL, **_TRAINS_HERE),
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
        "attacked_points": Setting(100, "O", "the first of them"),
        "width": Setting(200, "O", "of a hidden layer; channels of the first convolution"),
        "lr": Setting(1e-3, "O", "Adam, as on MNIST in Min & Vidal 2024"),
        "batch": Setting(200, "O"),
        "epochs": Setting(20, "O"),
        "effort": Setting("fast", "O", "30 steps of each attack"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "case": [
            *_cases("mixture", [_net("dense", 2, p) for p in (1.0, 3.0)], _UNIT[::2], batch=50),
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
        "seeds": 1,
    },
    smoke={
        "case": [
            *_cases("mixture", [_net("dense", 2, 3.0)], [0.0, 0.5]),
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
        "seeds": 1,
    },
    axes=("case",),
    columns=2,
    panels=(
        _panel("The mixture", "mixture"),
        _panel("MNIST (quick: digits)", "mnist"),
        _panel("Fashion-MNIST (quick: digits)", _FASHION),
        _panel("CIFAR-10, convolutional (quick: digits)", "cifar10"),
    ),
    claims=(
        *(_above("mixture", "dense", layers) for layers in (1, 2, 3, 4)),
        *(_above("mnist", "dense", layers) for layers in (1, 2, 3, 4)),
        *(_above(_FASHION, "dense", layers) for layers in (1, 2, 3)),
        _above("cifar10", "conv", 3),
    ),
    notes=(
        "Networks start from an ordinary initialisation and are trained by Adam: deep pReLU "
        "networks from a small one do not move. Their layers are normalised for p > 1. In each "
        "row the published column is the area under the ReLU twin's curve: a row that differs is "
        "a case in which pReLU does not help. Attacks are those for any network, and have no "
        "certificate beside them. At quick scale scikit-learn's digits stand in for all images."
    ),
)
