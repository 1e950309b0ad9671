"""Train the networks that come with the package, and write their card from what is measured.

python tools/train_shipped_networks.py [--keep]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from extremal import attack, certify, data, measure, models, train

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "extremal" / "models" / "networks"
NUMBERS = ROOT / "bench" / "results" / "networks.json"
DATA = ("mnist", "fashion-mnist")
POWERS = (1.0, 2.0, 3.0, 4.0)
RADII = {"l2": 1.0, "linf": 0.05}
ATTACKED, CERTIFIED = 1000, 200
CARD = """# Networks that come with the package

`ex.models.load("mnist-p3")` and so on, for images of `ex.data.load("mnist")[1]` (pixels / 255); or
`extremal evaluate mnist-p3 --data mnist`.

Shallow pReLU networks of 500 neurons with output biases, inputs centred by the mean image and
each activation divided by ||x - c||^(p-1): the recipe of Min & Vidal 2024, Section 5.2.1, as
their code has it. Adam with step 1e-3 on the cross-entropy, batches of 1000, 51 passes through
the first 50,000 training images, seed 0. Nothing was trained adversarially. Weights are kept in
float16 and loaded in float32. They are for study: what attacks and certificates say of p. They
know no other images than those of their data set, and no larger network's accuracy.

Made and measured by `python tools/train_shipped_networks.py`, numbers in
`bench/results/networks.json`: clean accuracy on the whole official test set; accuracy under the
strongest attack in the box [0, 1] on {attacked} of its points, drawn at random; and the share of
the first {certified} of these whose l2 radius is certified, without the box.

| network | clean | l2 {l2:g}, attacked | l2 {l2:g}, certified | linf {linf:g}, attacked |
|---|---:|---:|---:|---:|
{rows}
"""


def main() -> None:
    keep = "--keep" in sys.argv[1:]  # networks that are there
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    FOLDER.mkdir(exist_ok=True)
    found: dict[str, Any] = {}
    for name in DATA:
        learn, test = data.load(name)
        for p in POWERS:
            key = f"{name}-p{p:g}"
            path = FOLDER / f"{key}.safetensors"
            if not (keep and path.exists()):
                in_255ths(trained(p, learn)).half().save(path)
            found[key] = measured(models.load(path).float(), test)
            print(key, found[key], flush=True)
    NUMBERS.write_text(json.dumps(found, indent=2) + "\n")
    FOLDER.joinpath("README.md").write_text(card(found))


def trained(p: float, learn: data.Dataset) -> models.PReLUNet:
    images, _ = data.published_split(learn)
    return train.mnist_recipe(p, images, generator=torch.Generator().manual_seed(0))


def in_255ths(net: models.PReLUNet) -> models.PReLUNet:
    """The network of images k/256 as one of images k/255: the same outputs."""
    preparation = net.preparation
    assert preparation.center is not None
    ratio = 255.0 / 256.0
    center = preparation.center / ratio
    net.preparation = models.Preparation(ratio, center, preparation.normalize)
    return net


def measured(net: torch.nn.Module, test: data.Dataset) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    some = test.subset(ATTACKED, generator=generator)
    few = some.take(slice(CERTIFIED))
    numbers = {"clean": measure.accuracy(net, test)}
    for norm, radius in RADII.items():
        result = attack.run(
            net, some.x, some.y, norm=norm, radius=radius, box=some.box, generator=generator
        )
        numbers[f"attacked {norm} {radius:g}"] = result.accuracy
    held = certify.radius(net, few.x, few.y) >= RADII["l2"]
    return numbers | {f"certified l2 {RADII['l2']:g}": float(held.double().mean())}


def card(found: dict[str, Any]) -> str:
    columns = ["clean", "attacked l2 1", "certified l2 1", "attacked linf 0.05"]
    rows = "\n".join(
        f"| `{name}` | " + " | ".join(f"{numbers[column]:.3f}" for column in columns) + " |"
        for name, numbers in found.items()
    )
    return CARD.format(attacked=ATTACKED, certified=CERTIFIED, rows=rows, **RADII)


if __name__ == "__main__":
    main()
