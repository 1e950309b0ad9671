"""Theorems 4.3 and 5.5: widths that robust generalisation takes, over d, k and the ambient d."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting

_LINEAR = "Theorem 4.3: exp(Omega(d)) for robust, O(d) for clean; the limit is ours"
_MANIFOLD = "Theorems 5.5 and 5.8: exp(k); the limit is ours"
_AMBIENT = "Theorem 5.5: k counts and not d; the limit is ours"
_COVER = "cover networks have d exp(k) parameters: 2^k cells, each with a cover of its own"


def _case(problem: str, sizes: list[int], radius: float, reach: float, scale: float) -> Any:
    return {
        "problem": problem,
        "sizes": sizes,
        "radius": radius,
        "reach": reach,
        "scale": scale,
    }


def _cases(sizes: int) -> list[Any]:
    return [
        _case("lattice", list(range(2, 2 + sizes)), 0.1, 0.04, 4.0),
        _case("manifold", list(range(2, 2 + sizes)), 0.3, 0.3, 1.0),
        _case("ambient", [6, 12, 24, 48][: max(3, sizes - 1)], 0.3, 0.3, 1.0),
    ]


def _panel(title: str, problem: str, xlabel: str) -> Line:
    return Line(
        title,
        "size",
        ("robust_width", "clean_width"),
        xlabel,
        "smallest width",
        where={"problem": problem},
        labels={"robust_width": "robust, by adversarial training", "clean_width": "clean"},
        log="y",
    )


def _claim(text: str, value: str, published: float, rule: Any, source: str, problem: str) -> Claim:
    return Claim(text, value, published, 0.0, source, {"problem": problem}, rule)


experiment = Experiment(
    name="li-2022/generalisation",
    title="Which widths does robust generalisation take?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, Theorems 4.3, 5.5 and 5.8",
    study="extremal.experiments.studies.smallest_width:smallest_width",
    settings={
        "case": Setting(
            _cases(5), "O", "lattice: axes, l-inf; manifold: k; ambient: d at k = 3, both l2"
        ),
        "noise": Setting(0.1, "O", "half width of a lattice cell; the separation is 0.3"),
        "offset": Setting(0.02, "O", "of the coordinate that separates linearly"),
        "gap": Setting(0.1, "O", "of the torus; the separation is 1.18"),
        "dim": Setting(12, "O", "of the torus whose k grows"),
        "intrinsic": Setting(3, "O", "k of the torus whose d grows"),
        "widths": Setting([1, 2, 4, 8, 16, 32, 64, 128], "O", "tried, in this order"),
        "starts": Setting(1, "O", "trainings of a width"),
        "target": Setting(0.1, "O", "error on fresh points that has to be reached"),
        "train_each": Setting(16, "O", "training points of each cell"),
        "test_each": Setting(10, "O", "test points of each cell"),
        "lr": Setting(0.03, "O", "Adam, all points at once"),
        "steps": Setting(200, "O"),
        "inner_steps": Setting(4, "O", "of the attack trained with"),
        "seeds": Setting(5, "O"),
    },
    quick={"case": _cases(3), "seeds": 2},
    smoke={
        "case": _cases(3),
        "widths": [1, 4],
        "steps": 5,
        "train_each": 4,
        "test_each": 2,
        "seeds": 1,
    },
    axes=("case",),
    panels=(
        _panel("Linearly separable lattice", "lattice", "axes of the lattice, d - 1"),
        _panel("Torus in 12 dimensions", "manifold", "dimension k of the torus"),
        _panel("Torus of dimension 3", "ambient", "ambient dimension d"),
    ),
    claims=(
        _claim(
            "lattice: doublings of the robust width an axis",
            "robust_slope",
            0.5,
            "above",
            _LINEAR,
            "lattice",
        ),
        _claim("lattice: largest clean width", "clean_largest", 2.0, "below", _LINEAR, "lattice"),
        _claim("lattice: a plane's clean error", "plane_clean", 0.0, "below", _LINEAR, "lattice"),
        _claim("lattice: its robust error", "plane_robust", 1.0, "above", _LINEAR, "lattice"),
        _claim(
            "torus: doublings of the robust width a dimension k",
            "robust_slope",
            0.5,
            "above",
            _MANIFOLD,
            "manifold",
        ),
        _claim(
            "torus: doublings of the robust width an ambient dimension",
            "robust_slope",
            0.05,
            "below",
            _AMBIENT,
            "ambient",
        ),
        _claim(
            "torus: doublings of the cover a dimension k",
            "cover_slope",
            1.0,
            "above",
            _COVER,
            "manifold",
        ),
        _claim("lattice: sizes not reached", "unreached", 0.0, "below", _LINEAR, "lattice"),
        _claim("torus: sizes not reached", "unreached", 0.0, "below", _MANIFOLD, "manifold"),
    ),
    version=2,
    notes=(
        "Cells with random labels: 2^(d-1) on a lattice whose last coordinate tells the label by "
        "an offset that the attack hides, 2^k on a torus. A slope of s means that the width grows "
        "by 2^s with each dimension; each trial has its 95 % interval (robust_slope_low, _high), "
        "and rows show the range over seeds. A theorem about the worst distribution says nothing "
        "of what training finds on this one: these are smallest widths that Adam reached, an upper "
        "bound of the smallest that there are."
    ),
)
