# %% [markdown]
# # Features in, robust head out
#
# A classifier on top of features, trained as any other, that holds against small changes of them,
# with two numbers for how much: an attack from above, a certificate from below. The features here
# are the pixels of scikit-learn's digits, from 0 to 1, and could be those of any network.
#
# Run it as a script, `python examples/robust_head.py --picture head.png`, or cell by cell.

# %%
from argparse import ArgumentParser

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from torch import nn

import extremal as ex
from extremal.sklearn import PReLUClassifier

options = ArgumentParser()
options.add_argument("--picture", default="robust_head.png", help="where to put the picture")
options.add_argument("--points", type=int, default=100, help="test points to attack and certify")
options.add_argument("--epochs", type=int, default=30, help="times through the training data")
settings, _ = options.parse_known_args()  # a notebook has arguments of its own
torch.set_num_threads(1)

# %% [markdown]
# ## The data

# %%
pixels, digits = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(
    pixels / 16, digits, test_size=0.2, stratify=digits, random_state=0
)
x_test, y_test = x_test[: settings.points], y_test[: settings.points]

# %% [markdown]
# ## Two heads
#
# With p = 1 the head is an ordinary ReLU network. With p = 3 each neuron is a polynomial ReLU, and
# that is the whole difference. Nothing is scaled by hand: the classifier sees that pixels share a
# unit, and tells radii in that unit.

# %%
heads = {
    f"pReLU, p = {p}": PReLUClassifier(p=p, epochs=settings.epochs, random_state=0).fit(x, y)
    for p in (3, 1)
}
results = {name: head.robustness(x_test, y_test) for name, head in heads.items()}

# %% [markdown]
# ## A network from elsewhere, judged alike
#
# scikit-learn's own network has one hidden layer of ReLUs too. Its weights go into a
# `torch.nn.Sequential`, which `from_torch` reads, and then it is attacked and certified as ours.

# %%
mlp = MLPClassifier(random_state=0, max_iter=500).fit(x, y)  # until it has converged
layers = [nn.Linear(*weight.shape, dtype=torch.float64) for weight in mlp.coefs_]
with torch.no_grad():
    for layer, weight, bias in zip(layers, mlp.coefs_, mlp.intercepts_, strict=True):
        layer.weight.copy_(torch.tensor(weight.T))
        layer.bias.copy_(torch.tensor(bias))
net = ex.models.from_torch(nn.Sequential(layers[0], nn.ReLU(), layers[1]))
test = ex.data.Dataset(torch.tensor(x_test), torch.tensor(y_test))
results["MLPClassifier"] = ex.evaluate(net, test, generator=torch.Generator().manual_seed(0))

# %% [markdown]
# ## The numbers
#
# The true robust accuracy at a radius lies between the certified and the attacked one.

# %%
radius = 0.5
for name, result in results.items():
    curve = result.curve([0.0, radius])
    clean, attacked = curve.attacked.tolist()
    print(
        f"{name}: accuracy {clean:.3f}; at l2 radius {radius:g} "
        f"certified {float(curve.certified[1]):.3f}, attacked {attacked:.3f}"
    )
    print(f"  {result.headline(radius)}")

# %% [markdown]
# ## Accuracy against radius, from both sides

# %%
colours = dict(zip(results, ("#0072b2", "#d55e00", "#7a7a7a"), strict=True))
last = max(float(result.upper.quantile(0.99)) for result in results.values())
radii = torch.linspace(0.0, last, 400).tolist()
figure = Figure(figsize=(6.4, 4.0), layout="constrained")
axes = figure.add_subplot()
for name, result in results.items():
    curve = result.curve(radii)
    low, high = curve.certified.numpy(), curve.attacked.numpy()
    axes.fill_between(radii, low, high, color=colours[name], alpha=0.25, linewidth=0)
    axes.plot(radii, low, color=colours[name], label=f"{name}, certified")
    axes.plot(radii, high, color=colours[name], linestyle="--", label=f"{name}, attacked")
axes.set_xlim(0.0, last)
axes.set_ylim(0.0, 1.02)
axes.set_xlabel("l2 radius, in units of a pixel from 0 to 1")
axes.set_ylabel("accuracy")
axes.set_title(f"Robust accuracy on {len(y_test)} test digits lies between the lines", loc="left")
axes.grid(color="#e3e3e3", linewidth=0.6)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.savefig(settings.picture, dpi=150)
print(f"picture: {settings.picture}")
