"""The pictures of the theory pages and of docs/architecture.md, made from closed forms alone.

    python tools/pictures.py             # writes docs/pictures/*.png

Nothing is random, and nothing is trained: the same versions give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

import extremal as ex
from extremal.certify.parabolas import opening_above, opening_below
from extremal.models import relu_power, relu_power_with_slope
from extremal.report.style import CYCLE, GREY, INK, RC

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
_POSITIVE, _NEGATIVE = 6, 4
_SIDES = ListedColormap(["#f6d5bd", "#cfe3f0"])  # read as -1, as +1
_ARROW = {"arrowstyle": "->", "color": INK, "shrinkA": 0, "shrinkB": 0}


def cuts() -> Figure:
    """What F and F^(3) say in the plane through a centre, with the largest ball that they hold."""
    mix = ex.data.OrthonormalMixture(_POSITIVE + _NEGATIVE, _POSITIVE, _NEGATIVE, 0.0)
    own, other = mix.centers[0], mix.centers[_POSITIVE]
    across = (other - own) / 2**0.5
    away = -ex.attack.average_direction(mix)
    along = float(away @ across)
    up = (away - along * across) / (1.0 - along**2) ** 0.5
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    radius = ex.theory.average_radius(_POSITIVE, _NEGATIVE)
    half = ex.theory.subclass_radius(_NEGATIVE, 3.0)
    panels = (
        ("F: neurons at the averages", ex.models.average_classifier(mix), radius, "1/√K"),
        ("F^(3): neurons at the centres", ex.models.subclass_classifier(mix, p=3.0), half, "√2/2"),
    )
    ticks = torch.linspace(-1.2, 1.2, 481, dtype=torch.float64)
    x, y = torch.meshgrid(ticks, ticks, indexing="xy")
    plane = own + x.unsqueeze(-1) * across + y.unsqueeze(-1) * up
    for k, (title, net, size, name) in enumerate(panels):
        axes = figure.add_subplot(1, 2, k + 1)
        with torch.no_grad():
            out = net(plane.reshape(-1, mix.dim)).reshape(x.shape)
        side = (out > 0).double().numpy()
        axes.pcolormesh(ticks.numpy(), ticks.numpy(), side, cmap=_SIDES, rasterized=True)
        axes.add_patch(Circle((0, 0), size, fill=False, color=INK, linewidth=1.2))
        axes.plot(0, 0, "o", color=INK)
        axes.text(0.03, -0.14, "μ₁", color=INK)
        axes.text(-size * 0.72, -size * 0.72, f"{name}  ", color=INK, ha="right", va="top")
        for end, text in (
            ((2**-0.5, 0.0), "half way\nto μ₇"),
            ((along * radius, (1.0 - along**2) ** 0.5 * radius), "−d₀/√K"),
        ):
            axes.annotate("", end, (0, 0), arrowprops=_ARROW)
            axes.text(end[0] + 0.04, end[1] + 0.05, text, fontsize=8.0)
        axes.set(title=title, aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.grid(False)
    return figure


def radii() -> Figure:
    """The radius at which a centre breaks: against p, and against the number of clusters."""
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    powers = torch.linspace(1.0, 4.0, 121).tolist()
    for colour, opposing in zip(CYCLE, (2, 5, 20), strict=False):
        found = [ex.theory.subclass_radius(opposing, p) for p in powers]
        left.plot(powers, found, color=colour, label=f"{opposing} opposing centres")
    left.set(xlabel="p", ylabel="radius", title="F^(p), one centre", ylim=(0.0, 0.8))
    left.legend(loc="lower right")
    counts = range(2, 41, 2)
    averages = [ex.theory.average_radius(k // 2, k // 2) for k in counts]
    right.plot(counts, averages, color=CYCLE[1], marker="o", label="F: 1/√K")
    for colour, p in ((CYCLE[2], 1.5), (CYCLE[0], 3.0)):
        found = [ex.theory.subclass_radius(k // 2, p) for k in counts]
        right.plot(counts, found, color=colour, marker="o", label=f"F^({p:g})")
    right.set(xlabel="clusters K, half of them of each class", title="both", ylim=(0.0, 0.8))
    right.legend(loc="center right", bbox_to_anchor=(1.0, 0.44))
    for axes in (left, right):
        axes.axhline(ex.theory.OPTIMAL_RADIUS, color=GREY, linestyle="--", linewidth=1.0)
        axes.text(axes.get_xlim()[0], 0.715, "  √2/2, the best possible", fontsize=7.5)
    return figure


def parabolas() -> Figure:
    """relu^p on an interval, between the two parabolas that touch it at an anchor."""
    figure = Figure(figsize=(7.0, 2.8), layout="constrained")
    settings = ((1.0, 0.3, 0.8, 0.55), (3.0, 0.3, 0.8, 0.55))
    for k, (p, middle, size, anchor) in enumerate(settings):
        axes = figure.add_subplot(1, 2, k + 1)
        low, high, x = (_tensor(value) for value in (middle - size, middle + size, anchor))
        t = torch.linspace(float(low), float(high), 201, dtype=torch.float64)
        value, slope = relu_power_with_slope(x, p)
        for colour, name, opening in (
            (CYCLE[1], "above", opening_above(x, low, high, p)),
            (CYCLE[0], "below", opening_below(x, low, high, p)),
        ):
            bound = value + slope * (t - x) + opening * (t - x) ** 2
            axes.plot(t, bound, color=colour, label=f"{name}, opening {float(opening):.2f}")
        axes.plot(t, relu_power(t, p), color=INK, linewidth=2.0, label="relu(s)" + _power(p))
        axes.plot(anchor, float(value), "o", color=INK)
        axes.axvline(middle, color=GREY, linestyle=":", linewidth=1.0)
        axes.set(title=f"p = {p:g}", xlabel="s_j + e, from s_j − r to s_j + r (dotted: s_j)")
        axes.set_ylim(top=2.5 * float(relu_power(high, p)) - 0.6)
        axes.legend(loc="upper left")
    return figure


def _tensor(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _power(p: float) -> str:
    return "" if p == 1.0 else f"^{p:g}"


PICTURES: dict[str, Callable[[], Figure]] = {
    each.__name__: each for each in (cuts, radii, parabolas)
}


def write(folder: Path) -> None:
    """Draw every picture into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(RC):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    write(FOLDER)
