"""Robust and non-robust features of images: pictures of them, who learns them, who they fool.

`li-li-2025/table-2`, `features` and `real-dynamics` share these trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, attack, data, measure, models, train
from extremal.data import Dataset
from extremal.experiments.papers.shared.image_training import IMAGE_SHAPES
from extremal.experiments.trial import Outcome

TRAINING_KINDS = ("standard", "adversarial")
GUIDE_TRAININGS = {
    "NRF": "standard",
    "RF": "adversarial",
}  # by the training of the network that guides
FEATURE_NAMES = {"NRF": "non_robust_features", "RF": "robust_features"}

Nets = dict[str, models.ConvPReLU]


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Two guides give pictures and attacks; two other networks learn, are read and attacked.

    Guides and the networks under study differ in their starts and batches, so that an attack led by
    a guide knows the data's features and not the network that it meets; those led by the network's
    own representation are given beside them.
    """
    learn, test, shape = _images(params, generator)
    guides = {
        kind: _trained(kind, learn, shape, params, generator, [], {})[0] for kind in TRAINING_KINDS
    }
    seen = _each(test, params["inverted_each"])
    pictures = {
        name: measure.invert(
            models.Representation(guides[kind]),
            seen.x,
            steps=params["inversion_steps"],
            lr=params["inversion_lr"],
            box=(0.0, 1.0),
            tolerance=params["inversion_tolerance"],
            generator=generator,
        )
        for name, kind in GUIDE_TRAININGS.items()
    }
    nets, curves = _learned(learn, test, seen, shape, pictures, params, generator)
    numbers = {
        **curves,
        **_convergence(pictures, seen),
        **_end(nets, test, params, generator),
        **_table(nets, guides, learn, test, params, generator),
    }
    return Outcome(numbers, _shown(seen, pictures, shape, params))


def _images(
    params: Mapping[str, Any], generator: torch.Generator
) -> tuple[Dataset, Dataset, tuple[int, int, int]]:
    """Random images of the chosen classes, with their means over small squares as pixels."""
    _check.choice("problem", params["problem"], ("digits", "cifar10"))
    channels, height, width = IMAGE_SHAPES[params["problem"]]
    side = params["pooled"]
    kept = torch.tensor(sorted(params["classes"].values()))

    def chosen(whole: Dataset, each: int) -> Dataset:
        order = torch.randperm(len(whole), generator=generator)
        y = whole.y[order]
        rows = torch.cat([torch.nonzero(y == k).squeeze(1)[:each] for k in kept])
        pixels = whole.x[order[rows]].reshape(-1, channels, height, width)
        small = nn.functional.avg_pool2d(pixels, side).flatten(1).clamp(0.0, 1.0)
        return Dataset(small, torch.searchsorted(kept, y[rows]), box=(0.0, 1.0))

    learn, test = data.load(params["problem"])
    parts = chosen(learn, params["train_each"]), chosen(test, params["test_each"])
    return *parts, (channels, height // side, width // side)


def _each(images: Dataset, count: int) -> Dataset:
    """The first images of each class."""
    rows = [torch.nonzero(images.y == k).squeeze(1)[:count] for k in images.y.unique()]
    return images.take(torch.cat(rows))


def _trained(
    kind: str,
    learn: Dataset,
    shape: tuple[int, int, int],
    params: Mapping[str, Any],
    generator: torch.Generator,
    at: list[int],
    looks: Mapping[str, Any],
    watch: train.RobustValidation | None = None,
) -> tuple[models.ConvPReLU, train.Trajectory]:
    """A convolutional ReLU network after training by Adam, which radius 0 makes standard."""
    net = models.ConvPReLU(
        shape,
        params["channels"],
        1.0,
        1 + int(learn.y.max()),
        center=learn.x.mean(0),
        generator=generator,
    )
    path = train.adversarial(
        net,
        learn,
        inner=train.InnerAttack(
            "linf",
            params["radius"] if kind == "adversarial" else 0.0,
            params["inner_steps"],
            start="random",
            box=(0.0, 1.0),
        ),
        method="adam",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        watch=watch or train.RobustValidation(training=False),
        record=train.Record(at=at, watch=dict(looks)),
        generator=generator,
    )
    return net, path


def _learned(
    learn: Dataset,
    test: Dataset,
    seen: Dataset,
    shape: tuple[int, int, int],
    pictures: Mapping[str, measure.Inversion],
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> tuple[Nets, dict[str, Any]]:
    """The networks under study, and how well they read test images and pictures along the way."""
    every = params["recorded_every"]
    at = list(range(every, params["epochs"], every))
    read = {name: Dataset(found.x, seen.y) for name, found in pictures.items()}
    looks = {
        FEATURE_NAMES[name]: (lambda net, part=part: measure.accuracy(net, part))
        for name, part in read.items()
    }
    watch = train.RobustValidation(
        params["watched_points"], params["watched_steps"], params["radius"], test, training=False
    )
    nets: Nets = {}
    numbers: dict[str, Any] = {}
    names = {"clean": "validation_accuracy", "robust": "validation_robust"}
    names |= {kept: kept for kept in FEATURE_NAMES.values()}
    for kind in TRAINING_KINDS:
        nets[kind], path = _trained(kind, learn, shape, params, generator, at, looks, watch)
        numbers["epoch"] = [round(time) for time in path.times.tolist()]
        for name, key in names.items():
            numbers[f"{kind}_{name}"] = path.values[key].tolist()
    last = {name: values[-1] for name, values in numbers.items() if name != "epoch"}
    return nets, numbers | {
        "adversarial: robust over non-robust": last["adversarial_robust_features"]
        - last["adversarial_non_robust_features"],
        "non-robust: standard over adversarial": last["standard_non_robust_features"]
        - last["adversarial_non_robust_features"],
        "robust: adversarial over standard": last["adversarial_robust_features"]
        - last["standard_robust_features"],
    }


def _convergence(pictures: Mapping[str, measure.Inversion], seen: Dataset) -> dict[str, Any]:
    """How far inversion came, and how much of an image is in the pictures of its features."""
    numbers: dict[str, Any] = {}
    likeness = {}
    for name, found in pictures.items():
        own = seen.x - seen.x.mean(0)
        cosines = nn.functional.cosine_similarity(found.x - seen.x.mean(0), own)
        likeness[name] = float(cosines.double().mean())
        numbers |= {
            f"{FEATURE_NAMES[name]} converged": float(found.converged.double().mean()),
            f"{FEATURE_NAMES[name]} gap": float(found.gap.median()),
            f"{FEATURE_NAMES[name]} likeness": likeness[name],
            f"{FEATURE_NAMES[name]} gaps": found.path.median(1).values.tolist(),
            "inversion_step": found.steps.tolist(),
        }
    return numbers | {"likeness_gain": likeness["RF"] - likeness["NRF"]}


def _end(
    nets: Nets, test: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Clean accuracy, and what all attacks leave, of the networks under study."""
    few = test.evenly_spaced(params["attacked_points"])
    numbers: dict[str, Any] = {}
    for kind, net in nets.items():
        left = attack.run(
            net,
            few.x,
            few.y,
            norm="linf",
            radius=params["radius"],
            box=(0.0, 1.0),
            steps=params["attack_steps"],
            generator=generator,
        ).accuracy
        numbers |= {f"{kind} clean": measure.accuracy(net, test), f"{kind} attacked": left}
    return numbers


def _table(
    nets: Nets,
    guides: Nets,
    learn: Dataset,
    test: Dataset,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Targeted success: the share, of images that a network has right, that it then takes for t.

    NaN where it has none right.

    "standard NRF cat→dog" is that of the standard network under NRF-PGD, "own" is the attack that
    the network's own representation leads. `gains` are those of the attack through the features
    that the network should have learned, over the other one.
    """
    order = [name for name, _ in sorted(params["classes"].items(), key=lambda item: item[1])]
    pairs = [f"{start}→{end}" for start, end in params["pairs"]]
    columns: dict[str, list[float]] = {}
    for start, end in params["pairs"]:
        own, other = order.index(start), order.index(end)
        x = test.x[test.y == own]
        pool = learn.x[learn.y == other]
        wanted = pool[torch.randint(len(pool), (len(x),), generator=generator)]
        moved = {
            name: _led(guides[kind], x, wanted, params) for name, kind in GUIDE_TRAININGS.items()
        }
        for kind, net in nets.items():
            found = {**moved, "own": _led(net, x, wanted, params)}
            right = measure.correct(net, Dataset(x, torch.full((len(x),), own)))
            for name, points in found.items():
                hit = measure.correct(net, Dataset(points, torch.full((len(x),), other)))
                share = float(hit[right].double().mean())
                columns.setdefault(f"{kind} {name}", []).append(share)
    numbers: dict[str, Any] = {"pair": pairs, **columns}
    for kind, best, rest in (("standard", "NRF", "RF"), ("adversarial", "RF", "NRF")):
        both = zip(columns[f"{kind} {best}"], columns[f"{kind} {rest}"], strict=True)
        gains = [first - second for first, second in both]
        numbers[f"{kind} gain"] = sum(gains) / len(gains)
        numbers |= {f"{kind} gain {pair}": gain for pair, gain in zip(pairs, gains, strict=True)}
    for name, column in columns.items():
        numbers |= {f"{name} {pair}": share for pair, share in zip(pairs, column, strict=True)}
    return numbers


def _led(net: models.ConvPReLU, x: Tensor, wanted: Tensor, params: Mapping[str, Any]) -> Tensor:
    """Points that the network's representation leads toward `wanted`."""
    ball = attack.Ball("linf", params["radius"], (0.0, 1.0))
    guide = models.Representation(net)
    return attack.guided(guide, x, wanted, ball=ball, steps=params["guided_steps"]).x_adv


def _shown(
    seen: Dataset,
    pictures: Mapping[str, measure.Inversion],
    shape: tuple[int, int, int],
    params: Mapping[str, Any],
) -> dict[str, Tensor]:
    """A few images of each class and both pictures of each, (n, height, width, channels)."""
    count = params["shown_each"]
    rows = torch.cat([torch.nonzero(seen.y == k).squeeze(1)[:count] for k in seen.y.unique()])
    found = {"original": seen.x, **{FEATURE_NAMES[name]: part.x for name, part in pictures.items()}}
    return {
        name: x[rows].reshape(-1, *shape).permute(0, 2, 3, 1).contiguous()
        for name, x in found.items()
    }
