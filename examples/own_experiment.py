# %% [markdown]
# # An experiment of your own
#
# How does the radius of the two classifiers of Min & Vidal 2024 fall with the number of clusters?
# A *study* computes one trial, a *record* says what to vary, what to draw and what to hold against
# the results. Trials are stored one by one: run it again and nothing is computed twice.
#
# Run it as a script, `python examples/own_experiment.py --out runs`, or by its record,
# `extremal run examples/own_experiment.py`.

# %%
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

import torch

import extremal as ex
from extremal.experiments import Claim, Experiment, Line, Outcome, Setting


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """The median attacked l2 radius of F and of F^(3) on points around `clusters` centres."""
    half = params["clusters"] // 2
    mix = ex.data.OrthonormalMixture(params["dim"], half, half, spread=0.05)
    test = mix.sample(params["points"], generator=generator)
    nets = {"F": ex.models.average_classifier(mix), "F3": ex.models.subclass_classifier(mix, 3.0)}
    found = {
        name: ex.attack.minimal(net.float(), test.x, test.y, generator=generator).radius
        for name, net in nets.items()
    }
    return Outcome({name: float(radii.median()) for name, radii in found.items()})


record = Experiment(
    name="mine/clusters",
    title="Radius against the number of clusters",
    source="Min & Vidal 2024, Theorem 1",
    study="own_experiment:study",  # trials run in processes of their own, which import this file
    settings={
        "clusters": Setting([4, 10, 20, 40], "O"),
        "dim": Setting(400, "O"),
        "points": Setting(100, "O"),
    },
    smoke={"clusters": [4, 10], "dim": 60, "points": 10},
    axes=("clusters",),
    panels=(Line("Median radius", "clusters", ("F", "F3"), "clusters K", "l2 radius"),),
    claims=(
        Claim(
            "F, K = 10",
            "F",
            10**-0.5,
            0.02,
            "1/sqrt(K), Theorem 1",
            {"clusters": 10},
            against="theory",
        ),
        Claim(
            "F^(3), K = 10",
            "F3",
            2**-0.5,
            0.02,
            "sqrt(2)/2, Theorem 1",
            {"clusters": 10},
            against="theory",
        ),
    ),
)

if __name__ == "__main__":
    options = ArgumentParser()
    options.add_argument("--out", default="runs", help="the folder that holds the runs")
    options.add_argument("--scale", default="quick", help="smoke or quick")
    options.add_argument("--jobs", type=int, default=1, help="trials at a time")
    asked = options.parse_args()
    summary = ex.experiments.reproduce(record, asked.scale, asked.out, jobs=asked.jobs)
    print("{done} of {total} trials done, {failed} failed".format(**summary["trials"]))
    print(ex.report.rows_markdown(summary))
    print(f"{asked.out}/{record.name}/{asked.scale}/report.html")
