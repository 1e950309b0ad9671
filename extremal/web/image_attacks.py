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
from extremal.report.panel_style import DIVERGING_COLOURS
from extremal.web.answer_pool import Busy, Deadline
from extremal.web.playground_settings import finite, read_query, whole

# Data sets that networks are shipped for.
IMAGE_DATA_SETS = ("mnist", "fashion-mnist")
# Powers p of the networks that are shipped.
SHIPPED_POWERS = (1, 2, 3, 4)
# Pixels of a side of an image.
SIDE_PIXELS = 28
# Test images that can be chosen, from the first on.
CHOOSABLE_IMAGES = 300
# The largest radius that may be asked for, by the norm.
LARGEST_RADII = {"l2": 6.0, "linf": 0.5, "l1": 60.0}
# The radius that a norm begins with.
USUAL_RADII = {"l2": 1.5, "linf": 0.1, "l1": 10.0}
# Bytes of a model file that somebody uploads, at most.
FILE_BYTES = 16_000_000
# Neurons of an uploaded network: at most 8 s of computing for an image, measured.
MOST_NEURONS = 2000
# Uploaded networks that are kept.
KEPT_NETWORKS = 8
# Uploaded files that are read at a time, since reading costs memory.
FILES_READ_AT_A_TIME = 2
# Neurons that are drawn for each network.
DRAWN_NEURONS = 6
# Names of the classes of each data set.
CLASS_NAMES = {
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
class ImageQuestion:
    """Which image, and how far an attack may go."""

    data: str = "mnist"
    index: int = 0
    norm: str = "l2"
    radius: float = 1.5

    def __post_init__(self) -> None:
        _check.choice("data", self.data, IMAGE_DATA_SETS)
        object.__setattr__(self, "index", whole("index", self.index, 0, CHOOSABLE_IMAGES - 1))
        _check.choice("norm", self.norm, NORMS)
        most = LARGEST_RADII[self.norm]
        radius = _check.number("radius", finite("radius", self.radius), minimum=0.0, maximum=most)
        object.__setattr__(self, "radius", radius)


# Names that a link to the page may hold.
QUESTION_FIELDS = tuple(field.name for field in fields(ImageQuestion))


def read_question(values: Mapping[str, Any]) -> ImageQuestion:
    """A shot from what a browser sent; a norm without a radius takes the usual one."""
    _check.instance("settings", values, Mapping, "be a mapping")
    known = {name: values[name] for name in QUESTION_FIELDS if name in values}
    norm = known.get("norm", "l2")
    if "radius" not in known and isinstance(norm, str) and norm in USUAL_RADII:
        known["radius"] = USUAL_RADII[norm]
    return ImageQuestion(**known)


def read_question_link(search: str | None) -> ImageQuestion:
    """What a link's query says."""
    return read_question(read_query(search, set(QUESTION_FIELDS)))


def described(shot: ImageQuestion) -> str:
    """All settings in a line, as it stands beside what was computed with them."""
    return f"image {shot.index} of {shot.data} · {shot.norm} · radius {shot.radius:g}"


@dataclass(frozen=True, eq=False)
class NetworkAnswer:
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
    neurons: Tensor  # (DRAWN_NEURONS, 784) those that give most to the class that was said
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
    return Dataset(
        test.x[:CHOOSABLE_IMAGES].clone(), test.y[:CHOOSABLE_IMAGES].clone(), box=(0.0, 1.0)
    )


def network_answer(
    name: str, net: PReLUNet, images: Dataset, shot: ImageQuestion, deadline: Deadline
) -> NetworkAnswer:
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
        order = given.argsort(descending=True)[:DRAWN_NEURONS]
        margins = [float(models.margin(net, one, y)) for one in (x, x_adv)]
    return NetworkAnswer(
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


class UploadedNetworks:
    """Networks of the users' own, by the digest of their file; the last few are kept."""

    def __init__(self) -> None:
        self._lock, self._reading = threading.Lock(), threading.Semaphore(FILES_READ_AT_A_TIME)
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
        good = head.startswith("data:") and len(text) <= FILE_BYTES * 4 // 3 + 4
        rule = f"be a model file of at most {FILE_BYTES // 1_000_000} MB"
        _check.require(good, "file", rule, f"{len(contents)} characters")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"file must {rule}, got what is no file at all") from error
        net = _read_network(data)
        key = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._kept[key] = net
            while len(self._kept) > KEPT_NETWORKS:
                self._kept.popitem(last=False)
        return key

    def get(self, key: object) -> PReLUNet:
        """A network by its key; ValueError where it is not kept any more."""
        with self._lock:
            net = self._kept.get(str(key))
        _check.require(net is not None, "file", "be chosen again: it is not kept any more", "none")
        assert net is not None
        return net


def _read_network(data: bytes) -> PReLUNet:
    """The network in a file's bytes, if it is one for images of this page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "yours.safetensors"
        path.write_bytes(data)
        try:
            net = models.load(path)
        except ValueError as error:
            why = str(error).replace(str(path), "it")
            raise ValueError(f"file must be a model file that extremal can read ({why})") from error
    pixels = SIDE_PIXELS * SIDE_PIXELS
    rule = f"hold a PReLUNet of {pixels} inputs, 10 outputs and at most {MOST_NEURONS} neurons"
    _check.require(isinstance(net, PReLUNet), "file", rule, type(net).__name__)
    assert isinstance(net, PReLUNet)
    fits = net.dim == pixels and net.outputs == 10 and net.width <= MOST_NEURONS
    _check.require(fits, "file", rule, net.extra_repr())
    return net.float()


def grey_png(pixels: Tensor) -> str:
    """An image in [0, 1], (784,), as the address of a PNG: white on black."""
    levels = (255.0 * pixels.double().clamp(0, 1)).round().reshape(SIDE_PIXELS, SIDE_PIXELS)
    return _png(np.asarray(levels.numpy(), dtype=np.uint8))


def signed_png(values: Tensor) -> str:
    """Numbers of both signs, (784,), as the address of a PNG: blue above zero, vermilion below."""
    square = values.double().reshape(SIDE_PIXELS, SIDE_PIXELS).numpy()
    reach = max(float(np.abs(square).max()), 1e-12)
    shades = LinearSegmentedColormap.from_list("signs", DIVERGING_COLOURS)
    return _png((255 * shades(0.5 + 0.5 * square / reach)[:, :, :3]).astype(np.uint8))


def _png(levels: Any) -> str:
    out = io.BytesIO()
    Image.fromarray(levels).save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
