# %% [markdown]
# # Neurons turn before they grow
#
# Min & Vidal 2024, Section 4: from a small start every neuron first turns to an extremal direction
# of the data, then grows. With p = 1 those are the class averages, with p = 3 the subclass centres.
#
# Run it as a script, `python examples/alignment.py --picture alignment.png`, or cell by cell.

# %%
from argparse import ArgumentParser

import torch
from matplotlib.figure import Figure

import extremal as ex

options = ArgumentParser()
options.add_argument("--picture", default="alignment.png", help="where to put the picture")
options.add_argument("--dim", type=int, default=100, help="dimensions of the data")
options.add_argument("--until", type=float, default=300.0, help="flow time")
settings, _ = options.parse_known_args()  # a notebook has arguments of its own
torch.set_num_threads(1)

# %%
g = torch.Generator().manual_seed(0)
mix = ex.data.OrthonormalMixture(dim=settings.dim, positive=3, negative=2, spread=0.1)
train = mix.sample(1000, generator=g)
averages = torch.stack([mix.average(1), mix.average(-1)])
figure = Figure(figsize=(8.0, 3.2), layout="constrained")

for column, (p, targets, name) in enumerate(
    ((1.0, averages, "class averages"), (3.0, mix.centers, "subclass centres"))
):
    net = ex.models.PReLUNet(mix.dim, 60, p, init=ex.models.Gaussian(1e-5), generator=g)
    watch = {
        "cosine": lambda net, to=targets: ex.measure.cosines(net.neurons, to).amax(1),
        "norm": lambda net: net.neurons.norm(dim=1),
    }
    record = ex.train.Record.log_spaced(0.1, settings.until, 40, watch=watch)
    run = ex.train.gradient_flow(net, train, until=settings.until, record=record)
    found = ex.measure.following(net, targets)
    heavy = found.neurons[: len(targets)]
    print(f"p = {p:g}: {len(targets) - len(found.unfollowed)} of {len(targets)} {name} followed")
    print(f"  lowest cosine of the dominant neurons {found.lowest:.3f}")
    axes = figure.add_subplot(1, 2, column + 1)
    axes.plot(run.times, run.values["cosine"][:, heavy], color="#0072b2")
    axes.plot(run.times, run.values["norm"][:, heavy], color="#d55e00", linestyle="--")
    axes.set(xscale="symlog", xlabel="flow time", ylim=(0.0, 1.5))
    axes.set_title(f"p = {p:g}: cosines with {name} (solid), norms (dashed)", fontsize=8.5)

figure.savefig(settings.picture, dpi=120)
print(f"picture: {settings.picture}")
