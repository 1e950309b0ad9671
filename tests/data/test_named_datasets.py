"""Data sets by name: what is read from their files, and the real ones."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from extremal.data import DataError, Dataset, image_formats, load, named_datasets, published_split
from extremal.data.image_formats import (
    CIFAR_BATCHES,
    cifar_from_png,
    read_cifar,
    read_idx,
    read_mnist,
)
from extremal.data.named_datasets import DATASETS, NamedDataset
from tests.data.helpers_sources import CONTENTS, FILES, Fake, fill, idx


@pytest.fixture(autouse=True)
def _toy(request, monkeypatch):
    """One more row in the table, and nobody's folders but the test's."""
    if "fetch" in request.keywords:
        return
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    row = NamedDataset("toy", FILES, (Fake(CONTENTS),), read_mnist)
    monkeypatch.setattr(named_datasets, "DATASETS", DATASETS | {"toy": row})


def test_pixels_become_points_in_the_box(tmp_path):
    train, test = load("toy", cache=tmp_path)
    assert torch.equal(train.x[0], torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]))
    assert torch.equal(train.x[1], torch.full((6,), 7 / 255))
    assert torch.equal(test.x, torch.tensor([[1.0, 0, 0, 0, 0, 1 / 255]]))
    assert train.y.tolist() == [3, 9]
    assert test.y.tolist() == [5]
    for part in (train, test):
        assert (part.x.dtype, part.y.dtype, part.box) == (torch.float32, torch.int64, (0.0, 1.0))


def test_the_users_folder_is_read(tmp_path, monkeypatch):
    fill(tmp_path / "mine" / "toy", CONTENTS, packed=True)
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path / "mine"))
    monkeypatch.setitem(named_datasets.DATASETS, "toy", NamedDataset("toy", FILES, (), read_mnist))
    assert load("toy", cache=tmp_path / "none")[0].y.tolist() == [3, 9]


def test_unknown_names():
    known = r"name must be one of 'digits', 'mnist', .*'toy', got 'minst'"
    with pytest.raises(ValueError, match=known):
        load("minst")
    with pytest.raises(ValueError, match="name must be one of"):
        load(["mnist"])


def test_idx_axes_are_last_fastest():
    content = idx(2, 3, values=bytes(range(6)))
    assert read_idx(content).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_published_split_is_in_256ths():
    x = (torch.arange(60_000) % 256).float().div(255.0).unsqueeze(1)
    whole = Dataset(x, torch.arange(60_000) % 10, box=(0.0, 1.0))
    train, test = published_split(whole)
    assert (len(train), len(test)) == (50_000, 10_000)
    joined = torch.cat([train.x, test.x]).squeeze(1)
    assert torch.equal(joined * 256, (torch.arange(60_000) % 256).float())
    assert torch.equal(torch.cat([train.y, test.y]), whole.y)
    assert torch.equal(whole.x, x)
    assert train.box == test.box == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"train must be MNIST's training set .* got 10000 points"):
        published_split(test)
    with pytest.raises(ValueError, match="train must be a Dataset, got Tensor"):
        published_split(x)


def test_digits_are_there_without_a_download(tmp_path):
    train, test = load("digits", cache=tmp_path)
    assert (tuple(train.x.shape), tuple(test.x.shape)) == ((1437, 64), (360, 64))
    assert (float(train.x.min()), float(train.x.max())) == (0.0, 1.0)
    assert torch.equal((train.x * 16).round(), train.x * 16)
    assert torch.bincount(torch.cat([train.y, test.y])).tolist() == DIGITS
    assert torch.equal(load("digits")[1].x, test.x)
    assert not list(tmp_path.iterdir())


DIGITS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as the UCI repository counts them


def test_cifar_from_pictures_has_planes_one_after_the_other(monkeypatch):
    monkeypatch.setattr(image_formats, "_CIFAR_BATCH_IMAGES", 2)
    contents, pixels = pictures()
    train, test = read_cifar(cifar_from_png(contents))
    assert (len(train), len(test)) == (10, 2)
    assert train.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert test.y.tolist() == [3, 8]
    first = torch.from_numpy(pixels["data_batch_1"][0]).float() / 255  # (1024, 3)
    assert torch.equal(train.x[0], first.T.flatten())
    last = torch.from_numpy(pixels["test_batch"][1]).float() / 255
    assert torch.equal(test.x[1].reshape(3, 32, 32)[2], last[:, 2].reshape(32, 32))


def pictures() -> tuple[dict[str, bytes], dict[str, np.ndarray]]:
    """Two images a batch in the form of the registry's package."""
    random = np.random.default_rng(0)
    pixels = {name: random.integers(0, 256, (2, 1024, 3), dtype=np.uint8) for name in CIFAR_BATCHES}
    contents = {
        "train_lables.json": json.dumps(list(range(10))).encode(),
        "test_lables.json": b"[3, 8]",
    }
    for name, values in pixels.items():
        out = io.BytesIO()
        Image.fromarray(values).save(out, "PNG")
        contents[f"{name}.png"] = out.getvalue()
    return contents, pixels


def fetched(name: str) -> tuple[Dataset, Dataset]:
    try:
        return load(name)
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.fetch
def test_mnist_itself():
    train, test = fetched("mnist")
    assert (tuple(train.x.shape), tuple(test.x.shape)) == ((60_000, 784), (10_000, 784))
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(train.y).tolist() == counts
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert torch.bincount(test.y).tolist() == counts
    assert float(train.x.double().mean()) == pytest.approx(0.1306604774, abs=1e-8)
    assert float(test.x.double().mean()) == pytest.approx(0.1325146070, abs=1e-8)
    assert train.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert float(train.x.max()) == 1.0


@pytest.mark.fetch
def test_fashion_mnist_itself():
    train, test = fetched("fashion-mnist")
    assert torch.bincount(train.y).tolist() == [6000] * 10
    assert torch.bincount(test.y).tolist() == [1000] * 10
    assert float(train.x.double().mean()) == pytest.approx(0.2860405969, abs=1e-8)


@pytest.mark.fetch
def test_cifar_itself():
    train, test = fetched("cifar10")
    assert torch.bincount(train.y).tolist() == [5000] * 10
    assert torch.bincount(test.y).tolist() == [1000] * 10
    means = train.x.reshape(-1, 3, 1024).mean((0, 2), dtype=torch.float64)
    assert means.tolist() == pytest.approx([0.4913997, 0.4821584, 0.4465310], abs=1e-6)
