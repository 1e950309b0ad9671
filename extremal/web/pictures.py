"""Real images: the worst image near one, what each network says of it, and which neurons decide."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image
from torch import Tensor

from extremal import _check, attack, certify, models
from extremal.attack import NORMS
from extremal.data import DATASETS, DataError, Dataset, fetch, read_mnist_part
from extremal.models import PReLUNet
from extremal.report.style import DIVERGING
from extremal.web.pool import Busy, Deadline
from extremal.web.setup import finite, read_query, whole

DATA = ("mnist", "fashion-mnist")
POWERS = (1, 2, 3, 4)
SIDE = 28
COUNT = 300  # images that can be chosen
LARGEST = {"l2": 6.0, "linf": 0.5, "l1": 60.0}  # radii
USUAL = {"l2": 1.5, "linf": 0.1, "l1": 10.0}
FILE = 16_000_000  # bytes of a model file of one's own
WIDEST = 2000  # neurons of one's own network: at most 8 s of computing for an image, measured
KEPT = 8  # networks of one's own that are kept
READ = 2  # files that are read at a time
NEURONS = 6  # that are drawn
NAMES = {
    "mnist": tuple(map(str, range(10))),
    "fashion-mnist": (
        "T-shirt",
        "trousers",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "boot",
    ),
}


@dataclass(frozen=True)
class Shot:
    """Which image, and how far an attack may go."""

    data: str = "mnist"
    index: int = 0
    norm: str = "l2"
    radius: float = 1.5

    def __post_init__(self) -> None:
        _check.choice("data", self.data, DATA)
        object.__setattr__(self, "index", whole("index", self.index, 0, COUNT - 1))
        _check.choice("norm", self.norm, NORMS)
        most = LARGEST[self.norm]
        radius = _check.number("radius", finite("radius", self.radius), minimum=0.0, maximum=most)
        object.__setattr__(self, "radius", radius)


_NAMES = tuple(field.name for field in fields(Shot))


def read_shot(values: Mapping[str, Any]) -> Shot:
    """A shot from what a browser sent; a norm without a radius takes the usual one."""
    _check.instance("settings", values, Mapping, "be a mapping")
    known = {name: values[name] for name in _NAMES if name in values}
    norm = known.get("norm", "l2")
    if "radius" not in known and isinstance(norm, str) and norm in USUAL:
        known["radius"] = USUAL[norm]
    return Shot(**known)


def read_shot_link(search: str | None) -> Shot:
    """What a link's query says."""
    return read_shot(read_query(search, set(_NAMES)))


@dataclass(frozen=True, eq=False)
class Seen:
    """What one network makes of an image and of the worst image near it."""

    name: str
    p: float
    said: int  # class of the image
    margin: float  # own output minus the best other one
    x_adv: Tensor  # (784,)
    said_adv: int
    margin_adv: float
    broken: bool  # at the radius asked for
    worst: bool  # whether x_adv is the worst found at that radius, or else the smallest attack
    smallest: float  # radius of the smallest attack found; inf where none
    certified: float
    neurons: Tensor  # (NEURONS, 784) those that give most to the class that was said
    votes: tuple[float, ...]  # what they give


def load_images(name: str) -> Dataset:
    """The first test images of a data set that is on this machine; nothing is fetched."""
    files = [file for file in DATASETS[name].files if file.name.startswith("t10k")]
    try:
        contents = fetch(name, files, ())
    except DataError as error:
        raise ValueError(
            f"the images of {name} are not on this machine, and the explorer fetches nothing; "
            f"run: extremal data fetch {name}"
        ) from error
    test = read_mnist_part("t10k", contents)
    return Dataset(test.x[:COUNT].clone(), test.y[:COUNT].clone(), box=(0.0, 1.0))


def look_at(name: str, net: PReLUNet, images: Dataset, shot: Shot, deadline: Deadline) -> Seen:
    """Attack the image at the radius, find the smallest attack, certify, rank the neurons.

    The certificate is "tight" in l2, and the linear one in the other norms, within the box.
    """
    x, y = images.x[shot.index : shot.index + 1], images.y[shot.index : shot.index + 1]
    settings: dict[str, Any] = {
        **{"norm": shot.norm, "box": images.box},
        "progress": deadline.check,
    }
    generator = torch.Generator().manual_seed(0)
    struck = attack.run(net, x, y, radius=shot.radius, generator=generator, **settings)
    deadline.check()
    least = attack.minimal(net, x, y, generator=generator, **settings)
    deadline.check()
    effort = "tight" if shot.norm == "l2" else "fast"
    certified = float(certify.radius(net, x, y, effort=effort, **settings))  # type: ignore[arg-type]
    smallest = float(least.radius)
    x_adv, broken = struck.x_adv, bool(struck.success)
    worst = broken or smallest > shot.radius
    if not worst:
        x_adv, broken = least.x_adv, True
    with torch.no_grad():
        said, said_adv = (int(net(one).argmax()) for one in (x, x_adv))
        given = net.votes[said] * net.hidden(x)[0]  # (width,)
        order = given.argsort(descending=True)[:NEURONS]
        margins = [float(models.margin(net, one, y)) for one in (x, x_adv)]
    return Seen(
        name,
        net.p,
        said,
        margins[0],
        x_adv[0],
        said_adv,
        margins[1],
        broken,
        worst,
        smallest if math.isfinite(smallest) else math.inf,
        certified,
        net.neurons.detach()[order],
        tuple(given[order].tolist()),
    )


class Own:
    """Networks of the users' own, by the digest of their file; the last few are kept."""

    def __init__(self) -> None:
        self._lock, self._reading = threading.Lock(), threading.Semaphore(READ)
        self._kept: OrderedDict[str, PReLUNet] = OrderedDict()

    def add(self, contents: object) -> str:
        """Read a model file as a browser sends it; returns its key."""
        if not self._reading.acquire(blocking=False):
            raise Busy("the server is busy reading other people's files; try again in a moment")
        try:
            return self._add(contents)
        finally:
            self._reading.release()

    def _add(self, contents: object) -> str:
        _check.instance("file", contents, str, "be the content of a model file")
        assert isinstance(contents, str)
        head, _, text = contents.partition("base64,")
        good = head.startswith("data:") and len(text) <= FILE * 4 // 3 + 4
        rule = f"be a model file of at most {FILE // 1_000_000} MB"
        _check.require(good, "file", rule, f"{len(contents)} characters")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"file must {rule}, got what is no file at all") from error
        net = _read(data)
        key = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._kept[key] = net
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return key

    def get(self, key: object) -> PReLUNet:
        """A network by its key; ValueError where it is not kept any more."""
        with self._lock:
            net = self._kept.get(str(key))
        _check.require(net is not None, "file", "be chosen again: it is not kept any more", "none")
        assert net is not None
        return net


def _read(data: bytes) -> PReLUNet:
    """The network in a file's bytes, if it is one for images of this page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "yours.safetensors"
        path.write_bytes(data)
        try:
            net = models.load(path)
        except ValueError as error:
            why = str(error).replace(str(path), "it")
            raise ValueError(f"file must be a model file that extremal wrote ({why})") from error
    rule = f"hold a PReLUNet of {SIDE * SIDE} inputs, 10 outputs and at most {WIDEST} neurons"
    _check.require(isinstance(net, PReLUNet), "file", rule, type(net).__name__)
    assert isinstance(net, PReLUNet)
    fits = net.dim == SIDE * SIDE and net.outputs == 10 and net.width <= WIDEST
    _check.require(fits, "file", rule, net.extra_repr())
    return net.float()


def grey_png(pixels: Tensor) -> str:
    """An image in [0, 1], (784,), as the address of a PNG: white on black."""
    levels = (255.0 * pixels.double().clamp(0, 1)).round().reshape(SIDE, SIDE)
    return _png(np.asarray(levels.numpy(), dtype=np.uint8))


def signed_png(values: Tensor) -> str:
    """Numbers of both signs, (784,), as the address of a PNG: blue above zero, vermilion below."""
    square = values.double().reshape(SIDE, SIDE).numpy()
    reach = max(float(np.abs(square).max()), 1e-12)
    shades = LinearSegmentedColormap.from_list("signs", DIVERGING)
    return _png((255 * shades(0.5 + 0.5 * square / reach)[:, :, :3]).astype(np.uint8))


def _png(levels: Any) -> str:
    out = io.BytesIO()
    Image.fromarray(levels).save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
