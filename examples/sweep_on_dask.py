# %% [markdown]
# # A sweep on a Dask cluster
#
# A grid over a function of your own: which radius does SGD leave, by p and by the width of the
# network? Without an address the workers are processes of this machine. The source of this file
# travels with the trials, so that workers need not have it. Finished trials are stored one by one:
# run it again and nothing is computed twice.
#
# Run it as a script, `python examples/sweep_on_dask.py --cluster tcp://host:8786`.

# %%
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from distributed import LocalCluster

import extremal as ex
from extremal.experiments import Experiment, Outcome, Setting


def radius(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """The median attacked l2 radius of a network that SGD has trained on the mixture."""
    mix = ex.data.OrthonormalMixture(params["dim"], positive=3, negative=2, spread=0.1)
    train, test = mix.sample(500, generator=generator), mix.sample(20, generator=generator)
    net = ex.models.PReLUNet(
        *(params["dim"], params["width"]),
        p=params["p"],
        init=ex.models.Gaussian(1e-4),
        generator=generator,
    )
    how = {"loss": "exp", "lr": 0.2, "batch": 100, "steps": params["steps"]}
    ex.train.sgd(net, train, **how, generator=generator)
    found = ex.attack.minimal(net, test.x, test.y, generator=generator)
    return Outcome({"radius": float(found.radius.median())})


def grid(steps: int) -> Experiment:
    """The sweep: what is fixed, and what varies."""
    settings = {"p": [1.0, 2.0, 3.0], "width": [20, 100], "dim": 100, "steps": steps, "seeds": 2}
    return Experiment(
        name="sweeps/width",
        title="Radius by p and width",
        source="an example",
        study="sweep_on_dask:radius",
        settings={name: Setting(value, "O") for name, value in settings.items()},
        axes=("p", "width"),
        panels=(),  # each number is drawn against the axis with the most values
    )


if __name__ == "__main__":
    options = ArgumentParser()
    options.add_argument("--cluster", help="a scheduler's address; workers of this machine if none")
    options.add_argument("--out", default="runs", help="the folder that holds the runs")
    options.add_argument("--steps", type=int, default=3000, help="of SGD, in each trial")
    asked = options.parse_args()
    # An address is all that is needed: of dask-jobqueue's SLURMCluster it is the same attribute.
    with ExitStack() as stack:
        address = asked.cluster
        if address is None:
            own = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(own).scheduler_address
        summary, rows = ex.experiments.run_sweep(grid(asked.steps), asked.out, cluster=address)
    for row in (each for each in rows if each["status"] == "done"):
        print("p = {p}, width {width}, seed {seed}: radius {radius:.3f}".format(**row))
    print("{done} of {total} trials done, {failed} failed".format(**summary["trials"]))
    print(f"{asked.out}/sweeps/width/report.html")
