"""The talk's table of separations: how far apart classes of images are, beside radii in use."""

from typing import Any

from extremal.experiments import Claim, Experiment, Heat, Line, Setting

_TABLE = "the talk's table, measured by Yang et al. 2020; to the printed digits"
_EXACT = "ours: a plain loop over all pairs of some points, and of the closest ones"
_BOUNDED = "ours: the data and a few tiles; the peak of the process, data and imports included"
_ABOVE = "Key observation of the talk: data are farther apart than twice the radius"
_NAMES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "digits",
}
_RADII = {"mnist": 0.1, "cifar10": 0.031, "fashion-mnist": 0.1, "digits": 0.1}
PUBLISHED = {"mnist": (0.737, 0.812), "cifar10": (0.212, 0.220)}
_KINDS = (("train", "train-train"), ("test", "test-train"))


def cases(*problems: str) -> list[dict[str, Any]]:
    """Data sets with the radius that attacks on them use."""
    return [{"panel": name, "problem": name, "radius": _RADII[name]} for name in problems]


def published(problem: str, values: tuple[float, float]) -> list[Claim]:
    """The two published distances of a data set, which agree where they round to the same."""
    return [
        Claim(
            f"{_NAMES.get(problem, problem)}: {text}",
            kind,
            value,
            5e-4,
            _TABLE,
            {"panel": problem},
            scales=("paper",),
        )
        for (kind, text), value in zip(_KINDS, values, strict=True)
    ]


def _pictures(problem: str) -> list[Heat]:
    where = {"panel": problem}
    return [
        Heat(f"{_NAMES[problem]}: closest pair, {text}", f"{kind}_pair", "", "", None, where, 0.0)
        for kind, text in _KINDS
    ]


def _curves(kind: str, text: str) -> Line:
    return Line(
        f"Nearest point of another class, {text}",
        "level",
        (f"{kind}_quantiles",),
        "share of points",
        "l-inf distance",
        by="panel",
        labels=_NAMES,
    )


experiment = Experiment(
    name="li-2022/separation",
    title="How far apart are classes of images?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, the talk's table of separations",
    study="extremal.experiments.studies.separation:separation",
    settings={
        "case": Setting(
            cases("mnist", "cifar10", "fashion-mnist", "digits"),
            "S",
            "MNIST and CIFAR-10 with their radii; the other two and their radius are ours",
        ),
        "norm": Setting("linf", "S"),
        "points": Setting(0, "S", "all training and test images"),
        "checked_points": Setting(20, "O", "points of each search that brute force looks at, too"),
        "seeds": Setting(1, "O", "nothing is random"),
    },
    quick={"points": 4000},
    smoke={
        "case": [case | {"problem": "digits"} for case in cases("mnist", "cifar10", "digits")],
        "points": 300,
        "checked_points": 5,
    },
    axes=("case",),
    columns=2,
    panels=(
        *(_curves(kind, text) for kind, text in _KINDS),
        *_pictures("mnist"),
        *_pictures("cifar10"),
    ),
    claims=(
        *published("mnist", PUBLISHED["mnist"]),
        *published("cifar10", PUBLISHED["cifar10"]),
        *(
            Claim(
                f"{name}: half the distance over the radius",
                "ratio",
                1.0,
                0.0,
                _ABOVE,
                {"panel": problem},
                "above",
            )
            for problem, name in _NAMES.items()
        ),
        Claim("all: largest difference to brute force", "brute_force_gap", 0, 1e-7, _EXACT),
        Claim("all: peak memory, GB", "peak_memory", 2.0, 0.0, _BOUNDED, rule="below"),
    ),
    version=2,
    notes=(
        "Exact nearest points of other classes. SVHN and restricted ImageNet, .094 / .110 and "
        ".180 / .224 in the talk, are in `separation-folders`, for a user's own images. A ratio "
        "above 1 says that f* has no robust error on these points at the radius in use. Images "
        "are whole multiples of 1/255 and are compared as such."
    ),
)
