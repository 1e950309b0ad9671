"""Theorem 2.2: zero robust training error on N separated points takes O~(N d) parameters."""

from extremal.experiments import Claim, Experiment, Line, Setting

_UPPER = "Theorem 2.2: O~(N d) parameters are enough; the construction and its constant are ours"
_EXACT = "the construction's proof"
_RATIO = "Lemma on f*: 1/eps-Lipschitz, and robust at eps"
_BEYOND = "ours: above radius + gap / d corners leave a point's own indicator"


def _line(title: str, y: tuple[str, ...], ylabel: str, log: str, **labels: str) -> Line:
    return Line(title, "count", y, "points N", ylabel, by="dim", log=log, labels=labels)  # type: ignore[arg-type]


def _claim(text: str, value: str, published: float, rule: str, source: str, **where: int) -> Claim:
    return Claim(text, value, published, 0.0, source, where, rule)  # type: ignore[arg-type]


def _plain(text: str, value: str, rule: str) -> list[Claim]:
    """Of the network with its matrices, which small N d have: for all N in the plane, all d."""
    return [
        _claim(f"{of}: {text}", value, 0.0, rule, _EXACT, **where)
        for of, where in (("d = 2", {"dim": 2}), ("N = 10", {"count": 10}))
    ]


def _exponent(letter: str, against: str, **where: int) -> Claim:
    return Claim(
        f"exponent of non-zero weights in {letter}",
        "counted",
        1.0,
        0.1,
        _UPPER,
        where,
        interval="power",
        against=against,
    )


def _corners(text: str, value: str, published: float, rule: str, source: str) -> list[Claim]:
    return [_claim(f"d = {d}: {text}", value, published, rule, source, dim=d) for d in (2, 5)]


experiment = Experiment(
    name="li-2022/memorisation",
    title="How large must a network be to have no robust training error?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, Theorems 2.2 and 2.3, lemma on f*",
    study="extremal.experiments.studies.memorisation:memorisation",
    settings={
        "count": Setting([10, 30, 100, 300], "O", "N"),
        "dim": Setting([2, 5, 20, 50], "O", "d"),
        "separation": Setting(0.02, "O", "at least, in l-inf, of random points in the cube"),
        "share": Setting(0.9, "O", "of eps, half the measured separation, that is the radius"),
        "attacked_points": Setting(50, "O", "at most, evenly spaced; all are certified"),
        "attack_steps": Setting(20, "O", "of each attack"),
        "slopes": Setting(2000, "O", "random pairs that slopes of f* are measured on"),
        "seeds": Setting(3, "O"),
    },
    quick={"count": [10, 30, 100], "dim": [2, 5, 20], "seeds": 1},
    smoke={
        "count": [6, 10],
        "dim": [2, 3],
        "attacked_points": 4,
        "attack_steps": 3,
        "slopes": 100,
        "seeds": 1,
    },
    axes=("count", "dim"),
    panels=(
        _line("Parameters of the memoriser", ("parameters",), "parameters", "xy"),
        _line(
            "Bounds without constants",
            ("upper", "lower"),
            "order of parameters",
            "xy",
            upper="N d",
            lower="√(N d)",
        ),
        _line(
            "What the strongest attack breaks",
            ("robust_error", "beyond"),
            "share of training points",
            "x",
            robust_error="at its radius",
            beyond="5 % above its limit",
        ),
    ),
    claims=(
        _claim("robust training error under attack", "robust_error", 0.0, "below", _EXACT),
        _claim("points whose radius is not proven", "unproven", 0.0, "below", _EXACT),
        _claim("d = 2: error by enumeration", "enumerated_error", 0.0, "below", _EXACT, dim=2),
        *_corners("error at corners", "corner_error", 0.0, "below", _EXACT),
        *_plain("points that intervals do not prove", "plain_unproven", "below"),
        *_plain("non-zero weights minus 6 N d + 2 N", "formula_gap", "near"),
        _exponent("N, d = 2", "count", dim=2),
        _exponent("d, N = 10", "dim", count=10),
        *_corners("broken at corners just beyond", "corners_beyond", 1.0, "above", _BEYOND),
        _claim("broken just beyond its limit", "beyond", 1.0, "above", _BEYOND),
        _claim("f*: largest slope times eps", "ratio_slope", 1.0, "below", _RATIO),
        _claim("f*: broken just below eps", "ratio_error", 0.0, "below", _RATIO),
        _claim("f*: points not proven at eps", "ratio_unproven", 0.0, "below", _RATIO),
    ),
    version=2,
    notes=(
        "Random points of the unit cube with random labels. The memoriser is exact, a soft "
        "indicator of each point's ball in two hidden layers, with 6 N d + 2 N parameters: the "
        "upper bound's shape with no logarithm in l-inf. Up to N d = 600 its matrices are written "
        "out, their non-zero weights counted and their interval bounds taken. Its limit is "
        "radius + gap / d, where corners of a ball leave the indicator of its middle. No source "
        "has constants, so that the lower bound can only be compared in shape: between the two "
        "lies a factor of √(N d)."
    ),
)
