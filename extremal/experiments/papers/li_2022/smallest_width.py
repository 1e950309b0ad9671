"""Theorems 4.3 and 5.5: widths that robust generalisation takes, over d, k and the ambient d."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting

_LINEAR_SOURCE = "Theorem 4.3: exp(Omega(d)) for robust, O(d) for clean; the limit is ours"
_MANIFOLD_SOURCE = "Theorems 5.5 and 5.8: exp(k); the limit is ours"
_AMBIENT_SOURCE = "Theorem 5.5: k counts and not d; the limit is ours"
_COVER_SOURCE = "Theorem 5.5: exp(k); our construction, the memoriser of a cover, has d exp(k)"
_LAW_SOURCE = "ours: below 1 the points are nearer to exponential growth than to a power law"
_TRIED_WIDTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]


def _case(
    problem: str, sizes: list[int], cover_sizes: list[int], radius: float, scale: float
) -> Any:
    return {
        "problem": problem,
        "sizes": sizes,
        "cover_sizes": cover_sizes,
        "radius": radius,
        "scale": scale,
    }


def _cases(sizes: int) -> list[Any]:
    """So many sizes of the first two problems, and one less, but three, of the others."""
    fewer = max(3, sizes - 1)
    ambient = [6, 12, 24, 48][:fewer]
    return [
        _case("lattice", list(range(1, 1 + sizes)), [], 0.1, 4.0),
        _case("manifold", list(range(2, 2 + sizes)), [1, 2, 3, 4][:fewer], 0.3, 1.0),
        _case("ambient", ambient, ambient, 0.3, 1.0),
    ]


def _panel(title: str, problem: str, xlabel: str) -> Line:
    return Line(
        title,
        "size",
        {"robust_width": "robust, by adversarial training", "clean_width": "clean"},
        xlabel,
        "smallest width",
        where={"problem": problem},
        log="y",
    )


def _cover_panel(title: str, problem: str, xlabel: str, log: Any) -> Line:
    return Line(
        title,
        "cover_size",
        {"cover_parameters": "parameters", "cover": "points of the cover"},
        xlabel,
        "parameters, points",
        where={"problem": problem},
        log=log,
    )


def _claim(text: str, value: str, published: float, rule: Any, source: str, problem: str) -> Claim:
    return Claim(text, value, published, 0.0, source, {"problem": problem}, rule, against="theory")


def _growth(text: str, value: str, limit: float, rule: Any, source: str, problem: str) -> Claim:
    """Doublings for each step of the size, judged by the end of their 95 % interval."""
    abscissa = "cover_size" if value.startswith("cover") else "size"
    where = {"problem": problem}
    return Claim(
        text,
        value,
        limit,
        0.0,
        source,
        where,
        rule,
        interval="exponential",
        abscissa=abscissa,
        against="theory",
    )


def _law(text: str, value: str, problem: str) -> Claim:
    abscissa = "cover_size" if value.startswith("cover") else "size"
    text = f"{text}: residual of exponential growth over a power law's"
    where = {"problem": problem}
    return Claim(
        text,
        value,
        1.0,
        0.0,
        _LAW_SOURCE,
        where,
        "below",
        interval="lead",
        abscissa=abscissa,
        against="question",
    )


generalisation = Experiment(
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
        "widths": Setting(_TRIED_WIDTHS, "O", "tried, in this order"),
        "starts": Setting(1, "O", "trainings of a width"),
        "target": Setting(0.1, "O", "error on fresh points that has to be reached"),
        "train_each": Setting(16, "O", "training points of each cell"),
        "test_each": Setting(10, "O", "test points of each cell"),
        "lr": Setting(0.03, "O", "Adam, all points at once"),
        "steps": Setting(200, "O"),
        "inner_steps": Setting(4, "O", "of the attack trained with"),
        "coverage": Setting(0.95, "O", "of fresh points that a cover has to reach"),
        "cover_reach": Setting(0.3, "O", "of the classes' l1 distance, a cover's balls"),
        "cover_radius": Setting(0.1, "O", "of the classes' l1 distance, the attack's"),
        "cover_batch": Setting(1000, "O", "points drawn at a time"),
        "seeds": Setting(5, "O"),
    },
    quick={"case": _cases(3), "seeds": 2},
    smoke={
        "case": [case | {"cover_sizes": case["cover_sizes"][:2]} for case in _cases(3)],
        "widths": [1, 4],
        "steps": 5,
        "train_each": 4,
        "test_each": 2,
        "cover_batch": 200,
        "seeds": 1,
    },
    axes=("case",),
    panels=(
        _panel("Linearly separable lattice", "lattice", "axes of the lattice, d - 1"),
        _panel("Torus in 12 dimensions", "manifold", "dimension k of the torus"),
        _panel("Torus of dimension 3", "ambient", "ambient dimension d"),
        _cover_panel("Cover network, 12 dimensions", "manifold", "dimension k of the torus", "y"),
        _cover_panel("Cover network, torus of dimension 3", "ambient", "ambient dimension d", "xy"),
    ),
    claims=(
        _growth(
            "lattice: doublings of the robust width an axis",
            "robust_width",
            0.5,
            "above",
            _LINEAR_SOURCE,
            "lattice",
        ),
        _law("lattice", "robust_width", "lattice"),
        _claim(
            "lattice: largest clean width", "clean_largest", 2.0, "below", _LINEAR_SOURCE, "lattice"
        ),
        _growth(
            "torus: doublings of the robust width a dimension k",
            "robust_width",
            0.5,
            "above",
            _MANIFOLD_SOURCE,
            "manifold",
        ),
        _law("torus", "robust_width", "manifold"),
        _growth(
            "torus: doublings of the robust width an ambient dimension",
            "robust_width",
            0.05,
            "below",
            _AMBIENT_SOURCE,
            "ambient",
        ),
        _growth(
            "cover: doublings of its network's parameters a dimension k",
            "cover_parameters",
            1.0,
            "above",
            _COVER_SOURCE,
            "manifold",
        ),
        _law("cover", "cover_parameters", "manifold"),
        Claim(
            "cover: exponent of its network's parameters in d",
            "cover_parameters",
            1.0,
            0.3,
            _COVER_SOURCE,
            {"problem": "ambient"},
            interval="power",
            abscissa="cover_size",
            against="theory",
        ),
        *(
            _claim(f"cover, {of}: {text}", value, limit, rule, _COVER_SOURCE, problem)
            for of, problem in (("over k", "manifold"), ("over d", "ambient"))
            for text, value, limit, rule in (
                ("least share of fresh points covered", "least_coverage", 0.95, "above"),
                ("largest certified robust error", "largest_cover_error", 0.05, "below"),
            )
        ),
        _claim("lattice: sizes not reached", "unreached", 0.0, "below", _LINEAR_SOURCE, "lattice"),
        _claim(
            "torus over k: sizes not reached",
            "unreached",
            0.0,
            "below",
            _MANIFOLD_SOURCE,
            "manifold",
        ),
        _claim(
            "torus over d: sizes not reached", "unreached", 0.0, "below", _AMBIENT_SOURCE, "ambient"
        ),
    ),
    version=3,
    notes=(
        "Cells with random labels: 2^(d-1) on a lattice whose last coordinate tells the label by "
        "an offset that the attack hides, 2^k on a torus. A slope of s means that the width grows "
        "by 2^s with each dimension. It is one fit to all seeds and sizes, with its 95 % interval, "
        "whose end is judged; sizes that no width reached are left out of it and counted. A "
        "theorem about the worst distribution says nothing of what training finds on this one: "
        "these are smallest widths that Adam reached, an upper bound of the smallest that there "
        "are. A cover is drawn until it reaches 95 % of fresh points; the network on it, in l1, is "
        "built and not trained, and its error on fresh points is certified. That the attack hides "
        "the plane's offset is so by construction, and has no rows."
    ),
)
