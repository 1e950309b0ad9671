# %% [markdown]
# # Certify a network of your own
#
# A two-layer ReLU network, trained by plain PyTorch, read by `from_torch` and judged from both
# sides: the true robust accuracy lies between the certified and the attacked one. A PGD of twenty
# steps beside them shows what one would have believed with that attack alone.
#
# Run it as a script, `python examples/own_network.py`, or cell by cell.

# %%
from argparse import ArgumentParser

import torch
from torch import nn

import extremal as ex

options = ArgumentParser()
options.add_argument("--points", type=int, default=100, help="test points to judge")
options.add_argument("--steps", type=int, default=300, help="training steps")
options.add_argument("--save", default="own_network.safetensors", help="where to put the network")
settings, _ = options.parse_known_args()  # a notebook has arguments of its own
torch.set_num_threads(1)

# %% [markdown]
# ## Yours: any `Linear, ReLU, Linear`

# %%
torch.manual_seed(0)
train, test = ex.data.load("digits")
module = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
for _ in range(settings.steps):
    optimiser.zero_grad()
    nn.functional.cross_entropy(module(train.x), train.y).backward()
    optimiser.step()

# %% [markdown]
# ## Ours: attack and certificate

# %%
g = torch.Generator().manual_seed(0)
net = ex.models.from_torch(module)
print(f"same outputs: {torch.allclose(net(test.x), module(test.x), atol=1e-4)}")
print(f"clean accuracy: {ex.measure.accuracy(net, test):.3f}")
some = test.subset(settings.points, generator=g)
for norm, radius in (("l2", 0.3), ("linf", 0.05)):
    result = ex.evaluate(net, some, norm=norm, generator=g)
    curve = result.curve([radius])
    ball = ex.attack.Ball(norm, radius, some.box)
    weak = ex.attack.pgd(net, some.x, some.y, ball=ball, steps=20, step=radius / 4)
    print(f"{norm} {radius}: certified {float(curve.certified):.3f}, ", end="")
    print(f"attacked {float(curve.attacked):.3f}, PGD of 20 steps {weak.accuracy:.3f}")
net.save(settings.save)
print(f"saved: {settings.save}; extremal evaluate {settings.save} --data digits")
