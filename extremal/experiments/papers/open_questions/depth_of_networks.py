"""Does pReLU help deeper networks: dense ones on the mixture and digits, convolutional on CIFAR."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Scale, Setting, VerticalLine
from extremal.experiments.papers.shared.claim_rows import CRITICAL_RADII, claims

_FASHION_MNIST = "fashion-mnist"
_LEARNED_ACCURACY = {"mixture": 0.99, "mnist": 0.9, _FASHION_MNIST: 0.75, "cifar10": 0.3}
_DEEP_NETWORKS = {"mixture": "dense", "mnist": "dense", _FASHION_MNIST: "dense", "cifar10": "conv"}
_FITTED_SOURCE = (
    "ours: a network that has not learned says nothing; ten classes of CIFAR-10 are hard here"
)
_LONGER_SOURCE = "ours: attacks of 30 steps, checked by longer ones on a few points"
_QUESTION_SOURCE = "open question 2 and next check 2 of the summary: do the gains carry over?"
_BOTH: tuple[Scale, ...] = ("quick", "paper")
_DIVISION_WORDS = {"input": "", "output": " by own norm", "none": " undivided"}
_SMALL_START = 1e-2  # the variance of 1e-4 of Min & Vidal 2025


def _net(
    network: str, layers: int, p: float, normalize: str = "input", residual: bool = False
) -> dict[str, Any]:
    """A network, and what it is called: the power, then what the colour of its curve stands for."""
    kind, plural = "ReLU" if p == 1.0 else f"p = {p:g}", "s" if layers > 1 else ""
    what = f"{layers} {'convolution' if network == 'conv' else 'layer'}{plural}"
    what += _DIVISION_WORDS[normalize] + (" residual" if residual else "")
    return {
        "label": f"{kind}, {'shallow, small start' if network == 'shallow' else what}",
        "network": network,
        "layers": layers,
        "p": p,
        "residual": residual,
        "normalize": normalize,
        "init": _SMALL_START if network == "shallow" else "default",
    }


def _pair(
    network: str, layers: int, normalize: str = "input", residual: bool = False
) -> list[dict[str, Any]]:
    """A ReLU network and its twin with p = 3."""
    return [_net(network, layers, p, normalize, residual) for p in (1.0, 3.0)]


def _cases(
    problem: str,
    pairs: list[list[dict[str, Any]]],
    radii: list[float],
    panel: str = "",
    **given: Any,
) -> list[dict[str, Any]]:
    """Twins on a problem, drawn in a panel of that name unless another is given."""
    case = {"problem": problem, "radii": radii, "panel": panel or problem, **given}
    return [case | net for pair in pairs for net in pair]


_DENSE_TWINS = [_pair("dense", layers) for layers in (1, 2, 3, 4)]
_OWN_NORM = [_pair("dense", layers, "output") for layers in (1, 2)]
_RESIDUAL_TWINS = _pair("dense", 3, residual=True)
_UNDIVIDED_RESIDUAL = [_net("dense", 3, 3.0, "none", residual=True)]  # p = 1 has nothing to divide
_SHALLOW_TWINS, _CONVOLUTIONAL_TWINS = _pair("shallow", 1, "none"), _pair("conv", 3)
_CONTROL_TWINS = [_SHALLOW_TWINS, *_OWN_NORM, _RESIDUAL_TWINS, _UNDIVIDED_RESIDUAL]
_MIXTURE_RADII = [round(0.05 * i, 2) for i in range(19)]
_PIXEL_RADII = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
_DIGITS_RADII = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
_CIFAR_RADII = [0.0, 0.05, 0.1, 0.2, 0.4]
_MIXTURE_TRAINING: dict[str, Any] = {
    "train_points": 2000,
    "batch": 100,
    "epochs": 60,
    "attacked_points": 60,
}
_TRAINS_HERE: dict[str, Any] = {"width": 16, "train_points": 5000, "batch": 50, "epochs": 10}


def _panel(title: str, panel: str, pairs: list[list[dict[str, Any]]], *marks: VerticalLine) -> Line:
    return Line(
        title,
        "radius",
        ("robust_accuracy",),
        "l2 radius",
        "accuracy under attack",
        by="label",
        where={"panel": panel},
        styles={net["label"]: "dashed" for pair in pairs for net in pair if net["p"] == 1.0},
        vertical_lines=marks,
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
        _QUESTION_SOURCE,
        {"problem": problem, "label": ours["label"]},
        rule="over",
        scales=scales,
        against="question",
    )


def _twins(problem: str, layers: int) -> Claim:
    """At quick scale the mixture has two layers alone."""
    relu, prelu = _DENSE_TWINS[layers - 1]
    return _over(problem, prelu, relu, _BOTH if (problem, layers) == ("mixture", 2) else ("paper",))


depth = Experiment(
    name="open-questions/depth",
    title="Does pReLU make deeper networks robust?",
    source="open question: summary of Min & Vidal 2024, open question 2, next check 2",
    study="extremal.experiments.studies.depth:depth",
    settings={
        "case": Setting(
            [
                *_cases("mixture", _DENSE_TWINS, _MIXTURE_RADII, **_MIXTURE_TRAINING),
                *_cases("mixture", _CONTROL_TWINS, _MIXTURE_RADII, "controls", **_MIXTURE_TRAINING),
                *_cases("mnist", [*_DENSE_TWINS[:3], _OWN_NORM[1]], _PIXEL_RADII),
                *_cases(_FASHION_MNIST, _DENSE_TWINS[:2], _PIXEL_RADII),
                *_cases("cifar10", [_CONVOLUTIONAL_TWINS], _CIFAR_RADII, **_TRAINS_HERE),
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
            *_cases("mixture", [_DENSE_TWINS[1]], _MIXTURE_RADII, batch=50, epochs=30),
            *_cases("mixture", [_SHALLOW_TWINS], _MIXTURE_RADII, "controls", batch=50),
            *_cases("digits", [_DENSE_TWINS[1]], _DIGITS_RADII, "mnist"),
            *_cases("digits", [_DENSE_TWINS[2]], _DIGITS_RADII, _FASHION_MNIST),
            *_cases("digits", [_pair("conv", 2)], _DIGITS_RADII, "cifar10", width=8),
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
            *_cases("mixture", [_DENSE_TWINS[1]], [0.0, 0.5]),
            *_cases("mixture", [_SHALLOW_TWINS], [0.0, 0.5], "controls"),
            *_cases("digits", [_DENSE_TWINS[0][:1]], [0.0, 1.0], "mnist"),
            *_cases("digits", [_OWN_NORM[1]], [0.0, 1.0], _FASHION_MNIST),
            *_cases("digits", [_pair("conv", 2)], [0.0, 1.0], "cifar10", width=2, longer_points=1),
        ],
        "dim": 10,
        "positive": 2,
        "negative": 2,
        "train_points": 60,
        "test_points": 20,
        "attacked_points": 2,
        "width": 8,
        "batch": 20,
        "epochs": 2,
        "longer_points": 0,
        "seeds": 1,
    },
    axes=("case",),
    columns=2,
    panels=(
        _panel("The mixture", "mixture", _DENSE_TWINS, *CRITICAL_RADII),
        _panel("The mixture: controls", "controls", _CONTROL_TWINS, *CRITICAL_RADII),
        _panel("MNIST (quick: digits)", "mnist", [*_DENSE_TWINS, _OWN_NORM[1]]),
        _panel("Fashion-MNIST (quick: digits)", _FASHION_MNIST, [*_DENSE_TWINS, _OWN_NORM[1]]),
        _panel("CIFAR-10 (quick: digits)", "cifar10", [_CONVOLUTIONAL_TWINS, _pair("conv", 2)]),
    ),
    claims=(
        *(_twins("mixture", layers) for layers in (1, 2, 3, 4)),
        *(_twins("mnist", layers) for layers in (1, 2, 3)),
        *(_twins(_FASHION_MNIST, layers) for layers in (1, 2)),
        _over("cifar10", _CONVOLUTIONAL_TWINS[1], _CONVOLUTIONAL_TWINS[0]),
        *(_over("mixture", _DENSE_TWINS[0][1], deeper[1]) for deeper in _DENSE_TWINS[1:]),
        *(_over("mnist", _DENSE_TWINS[0][1], deeper[1]) for deeper in _DENSE_TWINS[1:3]),
        *(_over("mixture", _DENSE_TWINS[k][1], _OWN_NORM[k][1]) for k in (0, 1)),
        _over("mnist", _DENSE_TWINS[1][1], _OWN_NORM[1][1]),
        *(
            _over("mixture", _DENSE_TWINS[2][1], added[-1])
            for added in (_RESIDUAL_TWINS, _UNDIVIDED_RESIDUAL)
        ),
        _over("mixture", _SHALLOW_TWINS[1], _SHALLOW_TWINS[0], _BOTH),
        *(
            claim
            for problem, least in _LEARNED_ACCURACY.items()
            for claim in claims(
                _FITTED_SOURCE,
                {"problem": problem},
                (f"{problem}: clean accuracy", "clean_accuracy", least, 0.0),
                rule="above",
                scales=("paper",),
                against="question",
            )
        ),
        *(
            claim
            for problem, kind in _DEEP_NETWORKS.items()
            for p, side in ((1.0, "ReLU"), (3.0, "p = 3"))
            for claim in claims(
                _LONGER_SOURCE,
                {"problem": problem, "p": p, "network": kind},
                (
                    f"{problem}: radii left by attacks of 100 steps, {side}",
                    "longer_share",
                    0.9,
                    0.0,
                ),
                rule="above",
                scales=("paper",),
                against="question",
            )
        ),
    ),
    version=3,
    notes=(
        "Networks are trained by Adam, and start as PyTorch does. A layer of p = 3 raises the size "
        "of its input to the third power; here it is divided by the square of that size, as in the "
        "code of Min & Vidal 2024 for images, so that all networks are homogeneous of degree 1, as "
        "ReLU networks are. 'By own norm': each layer's output is divided by its norm instead; "
        "'undivided': by nothing. 'Shallow' is the papers' own network, from Gaussian weights of "
        "0.01: the control, whose attacks know its structure. For all others attacks are those for "
        "any network, 30 steps of each, without a certificate beside them; a few points meet 100 "
        "steps, and the share of the radii that is left is a row of its own. A row 'over' holds "
        "in every seed: one that differs is a case in which it is not so, or not always. At quick "
        "scale scikit-learn's digits stand in for all images."
    ),
)
