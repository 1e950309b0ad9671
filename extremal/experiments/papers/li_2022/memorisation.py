"""Theorem 2.2: zero robust training error on N separated points takes O~(N d) parameters."""

from extremal.experiments import Claim, Experiment, Line, Setting

_UPPER = "Theorem 2.2: O~(N d) parameters are enough; the construction and its constant are ours"
_EXACT = "the construction's proof"
_RATIO = "Lemma on f*: 1/eps-Lipschitz, and robust at eps"
_CAN_FAIL = "ours: an attack that never breaks anything would say nothing"


def _line(title: str, y: tuple[str, ...], ylabel: str, log: str, **labels: str) -> Line:
    return Line(title, "count", y, "points N", ylabel, by="dim", log=log, labels=labels)  # type: ignore[arg-type]


def _claim(text: str, value: str, published: float, rule: str, source: str, **where: int) -> Claim:
    return Claim(text, value, published, 0.0, source, where, rule)  # type: ignore[arg-type]


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
            beyond="at twice the separation",
        ),
    ),
    claims=(
        _claim("robust training error under attack", "robust_error", 0.0, "below", _EXACT),
        _claim("points whose radius is not proven", "unproven", 0.0, "below", _EXACT),
        _claim("d = 2: error by enumeration", "enumerated_error", 0.0, "below", _EXACT, dim=2),
        _claim("parameters minus 6 N d + 2 N", "formula_gap", 0.0, "near", _EXACT),
        _claim("parameters over N d", "per_upper", 7.0, "below", _UPPER),
        _claim("broken at twice the separation", "beyond", 0.5, "above", _CAN_FAIL),
        _claim("f*: largest slope times eps", "ratio_slope", 1.0, "below", _RATIO),
        _claim("f*: broken just below eps", "ratio_error", 0.0, "below", _RATIO),
        _claim("f*: points not proven at eps", "ratio_unproven", 0.0, "below", _RATIO),
    ),
    notes=(
        "Random points of the unit cube with random labels. The memoriser is exact, a soft "
        "indicator of each point's ball in two hidden layers, with 6 N d + 2 N parameters: the "
        "upper bound's shape with no logarithm in l-inf. No source has constants, so that the "
        "lower bound can only be compared in shape: between the two lies a factor of √(N d)."
    ),
)
