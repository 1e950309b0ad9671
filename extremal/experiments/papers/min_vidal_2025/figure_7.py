"""Figure 7: small and large initialisation, for pReLU and for the cubic ReLU that is not divided.

Published: the cubic ReLU collapses at 0.1 to 0.2 from both, pReLU from a large start decays from
about 0.4 on.
"""

from typing import Any, Literal

from extremal import theory
from extremal.experiments import Claim, Experiment, Line, Mark, Scale, Setting
from extremal.experiments.papers.min_vidal_2025 import figure_2_network_comparison as figure_2

_CUBIC = "0.1 to 0.2, read off the full paper's figure"
_FROM = "decays from about 0.4 on, read off the full paper's figure"
_FOLLOW = "0.68 to 0.71 as in Figure 2, read off"
_STARTS = {1e-4: "std 1e-4", 1e-2: "std 0.01", 0.25: "std 0.25", 0.5: "std 0.5"}


def _run(network: str, init_std: float, steps: int = 3000, **given: float) -> dict[str, Any]:
    kind = {"prelu": "pReLU", "power": "cubic"}[network]
    run = f"{kind}, {_STARTS[init_std]}"
    return {"run": run, "network": network, "init_std": init_std, "steps": steps, **given}


_RUNS = [
    *(_run("prelu", std) for std in _STARTS),
    _run("power", 1e-2, 7000),
    _run("power", 0.25, lr=0.2),
    _run("power", 0.5, 7000, lr=0.005),
    {"run": "Bayes", "network": "bayes"},
]
_KEPT = {
    name: setting
    for name, setting in figure_2.experiment.settings.items()
    if name not in ("networks", "spread", "steps", "init_std")
}


def _claim(
    run: str,
    value: str,
    middle: float,
    tolerance: float,
    source: str,
    rule: Literal["near", "above"] = "near",
) -> Claim:
    text = {"half_radius": "median radius", "first_fall": "radius of the first losses"}[value]
    scales: tuple[Scale, ...] = ("paper",) if "0.25" in run else ("quick", "paper")
    where = {"run": run}
    return Claim(f"{run}: {text}", value, middle, tolerance, source, where, rule, scales)


experiment = Experiment(
    name="min-vidal-2025/figure-7",
    title="Small and large initialisation, and a ReLU cubed without division",
    source="Min & Vidal 2025, Figure 7, from the full paper",
    study="extremal.experiments.studies.comparison:comparison",
    settings={
        **_KEPT,
        "spread": Setting([0.1], "O", "alpha is not published: Figure 2 shows two others"),
        "runs": Setting(
            _RUNS, "O", "N(0, 1e-4) and N(0, 0.25), read as variances and as deviations"
        ),
    },
    quick={
        **{name: value for name, value in figure_2.experiment.quick.items() if name != "networks"},
        "runs": [_RUNS[i] for i in (0, 1, 3, 4, 6, 7)],
    },
    smoke={
        **{
            name: value
            for name, value in figure_2.experiment.smoke.items()
            if name not in ("networks", "init_std")
        },
        "runs": [run | {"steps": 30} for run in _RUNS],
    },
    axes=("spread", "runs"),
    columns=1,
    panels=(
        Line(
            "Robust accuracy, α = 0.1",
            "radius",
            ("robust_accuracy",),
            "l2 radius",
            "accuracy under the strongest attack",
            by="run",
            labels={run["run"]: run["run"] for run in _RUNS},
            styles={"Bayes": "dashed"},
            marks=(
                Mark(lambda s: theory.average_radius(s["positive"], s["negative"]), "1/√K"),
                Mark(theory.OPTIMAL_RADIUS, "√2/2"),
            ),
        ),
    ),
    claims=(
        _claim("pReLU, std 1e-4", "half_radius", 0.695, 0.015, _FOLLOW),
        _claim("pReLU, std 0.01", "half_radius", 0.695, 0.015, _FOLLOW),
        *(
            _claim(f"pReLU, {_STARTS[std]}", "first_fall", 0.68, 0.03, _FOLLOW, "above")
            for std in (1e-4, 1e-2)
        ),
        _claim("pReLU, std 0.25", "first_fall", 0.4, 0.05, _FROM),
        _claim("pReLU, std 0.5", "first_fall", 0.4, 0.05, _FROM),
        _claim("cubic, std 0.01", "half_radius", 0.15, 0.05, _CUBIC),
        _claim("cubic, std 0.25", "half_radius", 0.15, 0.05, _CUBIC),
        _claim("cubic, std 0.5", "half_radius", 0.15, 0.05, _CUBIC),
    ),
    notes=(
        "The two starts are given as N(0, 1e-4) and N(0, 0.25): as variances these are standard "
        "deviations of 0.01 and 0.5, and both readings are run. From 0.01 neurons of 2000 "
        "coordinates have norms of 0.45, and with some seeds some take two centres each, with "
        "steps of 0.2 as with those of 2. A cubic ReLU from 1e-4 does not move in any time that we "
        "have, and from large starts it diverges with steps of 2, and has smaller ones. The radius "
        "of the first losses is where a hundredth of the points has been broken. Data and attacks "
        "are those of Figure 2."
    ),
)
