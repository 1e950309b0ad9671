"""Folders of images by class: what is read, what is passed over, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from extremal.data import DataError, image_folder, load_folder, load_split
from extremal.data.user_files import read_image


@pytest.fixture
def images(tmp_path):
    """Two classes in Caltech256's layout, plain colours, and things that are no images."""
    for name, colours in {"001.ak47": [(255, 0, 0), (0, 255, 0)], "002.bat": [(0, 0, 51)]}.items():
        (tmp_path / name).mkdir()
        for k, colour in enumerate(colours):
            Image.new("RGB", (7, 5), colour).save(tmp_path / name / f"{name[:3]}_{k:04}.PNG")
    (tmp_path / "001.ak47" / "notes.txt").write_text("no image")
    (tmp_path / "001.ak47" / ".hidden.png").write_text("no image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "readme.md").write_text("no folder")
    return tmp_path


def test_classes_are_the_folders_in_order(images):
    found = image_folder(images)
    assert found.classes == ("001.ak47", "002.bat")
    assert [path.name for path in found.files] == ["001_0000.PNG", "001_0001.PNG", "002_0000.PNG"]
    assert found.y.tolist() == [0, 0, 1]
    assert tuple(found.pixels(range(1, 3), 4).shape) == (2, 3, 4, 4)


def test_points_are_planes_in_the_box(images):
    told = []
    data = load_folder(images, size=4, progress=lambda *said: told.append(said))
    assert (tuple(data.x.shape), data.box) == ((3, 48), (0.0, 1.0))
    planes = data.x.reshape(3, 3, 16)
    assert torch.equal(planes[0], torch.tensor([[1.0], [0.0], [0.0]]).expand(3, 16))
    assert torch.equal(planes[2, 2], torch.full((16,), 0.2))
    assert told[-1] == ("images", 3, 3)


@pytest.mark.parametrize("turned", [False, True])
def test_the_middle_is_taken(tmp_path, turned):
    """A bar of two colours, twice as long as it is wide: each keeps half of the middle."""
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[:, 8:] = 255
    picture = Image.fromarray(pixels.transpose(1, 0, 2) if turned else pixels)
    picture.save(tmp_path / "bar.png")
    seen = read_image(tmp_path / "bar.png", 8)
    seen = seen.transpose(1, 2) if turned else seen
    assert torch.equal(seen[:, :, :4], torch.zeros(3, 8, 4))
    assert torch.equal(seen[:, :, 4:], torch.ones(3, 8, 4))


@pytest.mark.parametrize(
    ("name", "support", "weight"),
    [
        ("bilinear", 1.0, lambda t: 1 - abs(t)),
        # Keys' cubic with a = -1/2.
        (
            "bicubic",
            2.0,
            lambda t: (
                1.5 * abs(t) ** 3 - 2.5 * t**2 + 1
                if abs(t) < 1
                else -0.5 * abs(t) ** 3 + 2.5 * t**2 - 4 * abs(t) + 2
            ),
        ),
    ],
)
def test_the_interpolation_is_the_one_asked_for(name, support, weight, tmp_path):
    """An image of one row's pattern at half its size: the mean of pixels with the filter's weights.

    Output k has its middle at 2 k + 1 of the input, whose pixels have theirs at i + 1/2; the filter
    is spread by the same factor 2.
    """
    row = np.random.default_rng(0).integers(60, 196, 16)
    Image.fromarray(np.repeat(row[None, :, None], 16, 0).repeat(3, 2).astype(np.uint8)).save(
        tmp_path / "rows.png"
    )
    expected = []
    for k in range(8):
        shifts = (np.arange(16) + 0.5 - (2 * k + 1)) / 2
        weights = np.array([weight(t) if abs(t) < support else 0.0 for t in shifts])
        expected.append(weights @ row / weights.sum() / 255)
    seen = read_image(tmp_path / "rows.png", 8, name)[1, 4].double()
    torch.testing.assert_close(seen, torch.tensor(expected), rtol=0, atol=1.5 / 255)


def test_folders_are_read_with_the_interpolation(images):
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    path = images / "002.bat" / "002_0000.PNG"
    Image.fromarray(noise).save(path)
    seen = {}
    for name in ("bicubic", "bilinear"):
        seen[name] = read_image(path, 4, name)
        assert torch.equal(
            image_folder(images, interpolation=name).pixels(range(2, 3), 4)[0], seen[name]
        )
        assert torch.equal(
            load_folder(images, size=4, interpolation=name).x[2], seen[name].flatten()
        )
    assert not torch.equal(seen["bicubic"], seen["bilinear"])
    assert torch.equal(load_folder(images, size=4).x[2], seen["bicubic"].flatten())
    assert torch.equal(image_folder(images).pixels(range(2, 3), 4)[0], seen["bicubic"])


def test_other_kinds_of_pictures_become_colours(tmp_path):
    Image.new("L", (5, 5), 102).save(tmp_path / "grey.png")
    Image.new("RGBA", (5, 5), (51, 51, 51, 9)).save(tmp_path / "clear.png")
    Image.new("P", (5, 5)).save(tmp_path / "palette.gif")
    assert torch.equal(read_image(tmp_path / "grey.png", 3), torch.full((3, 3, 3), 0.4))
    assert torch.equal(read_image(tmp_path / "clear.png", 3), torch.full((3, 3, 3), 0.2))
    assert torch.equal(read_image(tmp_path / "palette.gif", 3), torch.zeros(3, 3, 3))


def test_classes_of_a_split_are_matched_by_name(tmp_path):
    for part, classes in (("train", "abc"), ("test", "ac")):
        for name in classes:
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (4, 4), (ord(name), 0, 0)).save(tmp_path / part / name / "0.png")
    learn, test = load_split(tmp_path, size=2)
    assert (learn.y.tolist(), test.y.tolist()) == ([0, 1, 2], [0, 2])
    assert torch.equal(test.x, learn.x[[0, 2]])
    (tmp_path / "train" / "c").rename(tmp_path / "c")
    with pytest.raises(ValueError, match=r"have each class of test in train, got \['c'\]"):
        load_split(tmp_path, size=2)
    with pytest.raises(ValueError, match="path must hold the folders train and test"):
        load_split(tmp_path / "test")


def test_refusals(images):
    with pytest.raises(ValueError, match="path must be a folder of folders, got"):
        load_folder(images / "none")
    with pytest.raises(ValueError, match="hold a folder for each of >= 2 classes"):
        load_folder(images / "001.ak47")
    with pytest.raises(ValueError, match="size must be"):
        load_folder(images, size=0)
    for read in (image_folder, load_folder):
        with pytest.raises(ValueError, match="interpolation must be one of 'bicubic', 'bilinear'"):
            read(images, interpolation="nearest")
    (images / "003.cup").mkdir()
    with pytest.raises(ValueError, match=r"hold images .* in every class, got none in 003.cup"):
        load_folder(images)
    (images / "003.cup" / "a.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    with pytest.raises(DataError, match=r"cannot read the image .*a\.jpg: "):
        load_folder(images)
