"""A set-up of the playground as Python: the lines that compute what the page shows."""

from __future__ import annotations

from extremal.web.playground_settings import Setup
from extremal.web.playground_training import END, FRAMES, LOSS, START, TEST, TRAIN

_LINES = """\
g = torch.Generator().manual_seed({seed})
mix = ex.data.OrthonormalMixture(dim={dim}, positive={positive}, negative={negative}, \
spread={spread!r})
train, test = mix.sample({train}, generator=g), mix.sample({test}, generator=g)
net = ex.models.PReLUNet({dim}, {width}, p={p}, init=ex.models.Gaussian(1e{init}), generator=g)
record = ex.train.Record.log_spaced({start!r}, {end:.0f}, {frames}, snapshots=True, phases=True)
run = ex.train.gradient_flow(net, train, loss="{loss}", \
until=ex.train.Until({end:.0f}, {goal!r}), record=record)
attacked = ex.attack.minimal(net, test.x, test.y, generator=g).radius
certified = ex.certify.radius(net, test.x, test.y, effort="fast")
print(f"p = {{net.p:g}}: half break by {{attacked.median():.4f}}, half hold to \
{{certified.median():.4f}}")
"""


def recipe(setup: Setup) -> str:
    """Ten lines; eleven where two values of p are compared, which is a loop around them."""
    values = {
        **{name: getattr(setup, name) for name in ("seed", "dim", "positive", "negative")},
        **{name: getattr(setup, name) for name in ("spread", "width", "init", "loss")},
        **{"train": TRAIN, "test": TEST, "start": START, "end": END, "frames": FRAMES},
        "goal": LOSS,
    }
    top = "import torch, extremal as ex\n"
    if setup.beside is None:
        return top + _LINES.format(p=setup.p, **values)
    lines = _LINES.format(p="p", **values).splitlines(keepends=True)
    return top + f"for p in {(setup.p, setup.beside)}:\n" + "".join("    " + one for one in lines)
