"""The study on frozen features: grouping, the split, the box, and where Caltech256 is found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from extremal.data import DataError, Dataset
from extremal.experiments import get
from extremal.experiments.papers.min_vidal_2024.figure_4_trial import (
    boxed,
    class_cosines,
    group_classes,
    split,
)
from extremal.experiments.papers.min_vidal_2024.figure_4_trial import (
    trial as features,
)
from extremal.experiments.papers.shared import frozen_features as feature_sources
from extremal.experiments.papers.shared.frozen_features import READY_FILE, caltech256, source
from extremal.models.image_features.frozen_networks import load_resnet
from tests.models.test_frozen_networks import BLOCKS, random_state

SIZE = 28  # images are read at 256/224 of it, 32


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The user's folder and the cache's, both empty."""
    given, cache = tmp_path / "given", tmp_path / "cache"
    monkeypatch.setenv("EXTREMAL_DATA", str(given))
    monkeypatch.setenv("EXTREMAL_CACHE", str(cache))
    return given / "caltech256", cache / "caltech256"


def smoke(**changes):
    return dict(get("min-vidal-2024/figure-4").trials("smoke")[0].params) | changes


def random_features(count, classes, g):
    return {
        "x": torch.randn(count, 5, generator=g),
        "y": torch.arange(count) % classes,
    }


def draw_folder(root, g, classes=("001.ak47", "002.flag", "010.beer", "257.clutter")):
    """Three noisy images a class, of different forms; returns their files by class."""
    for name in classes:
        (root / name).mkdir(parents=True)
        for k, form in enumerate([(40, 50, 3), (64, 32, 3), (33, 33, 3)]):
            pixels = torch.randint(0, 256, form, generator=g).to(torch.uint8).numpy()
            Image.fromarray(np.asarray(pixels)).save(root / name / f"{name[:3]}_{k}.png")
    return classes


def test_classes_are_grouped_by_their_index():
    data = Dataset(torch.zeros(7, 2), torch.tensor([0, 1, 2, 3, 4, 5, 6]))
    grouped = group_classes(data, 3)
    assert grouped.y.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert grouped.group.tolist() == data.y.tolist()


@pytest.mark.parametrize("groups", [1, 8])
def test_more_groups_than_classes_are_refused(groups):
    data = Dataset(torch.zeros(7, 2), torch.arange(7))
    with pytest.raises(ValueError, match="groups must be"):
        group_classes(data, groups)


def test_the_split_parts_all_points_and_follows_the_seed():
    data = Dataset(torch.arange(10.0).unsqueeze(1), torch.arange(10), torch.arange(10))
    first, again, other = (
        split(data, 0.8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    learn, test = first
    assert (len(learn), len(test)) == (8, 2)
    assert sorted([*learn.y.tolist(), *test.y.tolist()]) == list(range(10))
    assert torch.equal(learn.x.squeeze(1).long(), learn.group)
    assert torch.equal(learn.y, again[0].y)
    assert not torch.equal(learn.y, other[0].y)


@pytest.mark.parametrize("share", [0.0, 0.01, 1.0])
def test_a_split_with_an_empty_side_is_refused(share, generator):
    data = Dataset(torch.zeros(10, 1), torch.arange(10))
    with pytest.raises(ValueError, match="share must"):
        split(data, share, generator=generator)


def test_the_box_is_of_the_training_features_alone():
    learn = Dataset(torch.tensor([[-1.0, 0.0], [1.0, 3.0]]), torch.tensor([0, 1]))
    test = Dataset(torch.tensor([[-2.0, 1.0], [0.0, 4.0]]), torch.tensor([0, 1]))
    inner, outer, clipped = boxed(learn, test, box="training")
    assert inner.x.tolist() == [[0.0, 0.25], [0.5, 1.0]]
    assert outer.x.tolist() == [[0.0, 0.5], [0.25, 1.0]]
    assert inner.box == outer.box == (0.0, 1.0)
    assert clipped == 0.5


def test_the_box_of_all_features_clips_none():
    learn = Dataset(torch.tensor([[-1.0, 0.0], [1.0, 3.0]]), torch.tensor([0, 1]))
    test = Dataset(torch.tensor([[-2.0, 1.0], [0.0, 6.0]]), torch.tensor([0, 1]))
    inner, outer, clipped = boxed(learn, test, box="all")
    assert inner.x.tolist() == [[0.125, 0.25], [0.375, 0.625]]
    assert outer.x.tolist() == [[0.0, 0.375], [0.25, 1.0]]
    assert clipped == 0.0


def test_the_box_is_that_of_the_setting():
    with pytest.raises(ValueError, match="box must be one of 'training', 'all', got 'test'"):
        features(smoke(box="test"), torch.Generator().manual_seed(0))


def test_mean_cosines_are_those_of_all_pairs(generator):
    x = torch.randn(9, 4, dtype=torch.float64, generator=generator)
    y = torch.tensor([0, 0, 0, 2, 2, 1, 1, 1, 1])
    unit = x / x.norm(dim=1, keepdim=True)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    same = [float(unit[i] @ unit[j]) for i, j in pairs if y[i] == y[j]]
    others = [float(unit[i] @ unit[j]) for i, j in pairs if y[i] != y[j]]
    expected = sum(same) / len(same), sum(others) / len(others)
    assert class_cosines(x, y) == pytest.approx(expected)


def test_without_files_one_line_says_what_is_looked_for(places):
    given, cache = places
    with pytest.raises(DataError) as caught:
        features(smoke(source="caltech256"), torch.Generator().manual_seed(0))
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(given), str(cache), READY_FILE, "001.ak47", "resnet152*.pth"):
        assert part in message


def test_without_the_variable_it_is_said(places, monkeypatch):
    monkeypatch.delenv("EXTREMAL_DATA")
    with pytest.raises(DataError, match=r"in \S+cache/caltech256; EXTREMAL_DATA is not set"):
        caltech256(SIZE, list(BLOCKS), "bilinear")


def test_only_what_is_missing_is_named(places, generator):
    draw_folder(places[0], generator)
    with pytest.raises(DataError) as caught:
        caltech256(SIZE, list(BLOCKS), "bilinear")
    ours = str(caught.value).split("; ")[1]
    assert all(str(place) in ours for place in places)
    assert "resnet152*.pth" in ours
    assert "class folders" not in ours


def test_ready_features_are_taken(places, generator):
    made = random_features(144, 12, generator)
    places[1].mkdir(parents=True)
    save_file(made, places[1] / READY_FILE)
    found = source(smoke(source="caltech256"))
    assert torch.equal(found.x, made["x"])
    assert torch.equal(found.y, made["y"])
    numbers = features(smoke(source="caltech256", groups=10), generator).numbers
    assert (numbers["classes"], numbers["dim"], numbers["points"]) == (12, 5, 144)


@pytest.mark.parametrize("content", [b"no tensors", None])
def test_a_spoilt_file_of_features_is_named(content, places):
    places[0].mkdir(parents=True)
    if content is None:
        save_file({"x": torch.ones(2, 2)}, places[0] / READY_FILE)
    else:
        (places[0] / READY_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=READY_FILE):
        caltech256(SIZE, list(BLOCKS), "bilinear")


@pytest.mark.parametrize("inside", ["", "256_ObjectCategories"])
def test_images_go_through_the_network_once(inside, places, generator, monkeypatch):
    """As torchvision prepares images for its ResNets: bilinear to 256/224, then the middle."""
    root = places[0] / inside
    names = draw_folder(root, generator)
    weights = places[0] / "resnet152-test.safetensors"
    save_file(random_state(), weights)
    made = caltech256(SIZE, list(BLOCKS), "bilinear")
    assert made.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # clutter is left out
    net = load_resnet(weights, blocks=BLOCKS)
    for row, (name, k) in enumerate((name, k) for name in names[:3] for k in range(3)):
        picture = Image.open(root / name / f"{name[:3]}_{k}.png")
        wide, high = picture.size
        form = (round(32 * wide / min(wide, high)), round(32 * high / min(wide, high)))
        picture = picture.resize(form, Image.Resampling.BILINEAR)
        left, top = (form[0] - 32) // 2 + 2, (form[1] - 32) // 2 + 2
        picture = picture.crop((left, top, left + SIZE, top + SIZE))
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255
        torch.testing.assert_close(made.x[row], net(pixels.unsqueeze(0))[0])
    other = caltech256(SIZE, list(BLOCKS), "bicubic")
    assert not torch.allclose(other.x, made.x, rtol=1e-3)
    monkeypatch.setattr(feature_sources.models, "features", None)
    again = caltech256(SIZE, list(BLOCKS), "bilinear")
    assert torch.equal(again.x, made.x)
    assert torch.equal(again.y, made.y)


@pytest.mark.parametrize("harm", ["cut", "flip", "no digest", "empty"])
def test_kept_features_that_are_spoilt_are_made_again(harm, places, generator):
    draw_folder(places[0], generator)
    save_file(random_state(), places[0] / "resnet152-test.safetensors")
    made = caltech256(SIZE, list(BLOCKS), "bilinear")
    (kept,) = (places[1].parent / "features").glob("caltech256-*.safetensors")
    content = kept.read_bytes()
    if harm == "no digest":
        save_file({"x": -made.x, "y": made.y}, kept)
    else:
        flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
        kept.write_bytes({"cut": content[:-8], "flip": flipped, "empty": b""}[harm])
    again = caltech256(SIZE, list(BLOCKS), "bilinear")
    assert torch.equal(again.x, made.x)
    assert torch.equal(again.y, made.y)
    assert kept.read_bytes() == content


@pytest.mark.parametrize(("images", "weights"), [(0, 1), (1, 0), (1, 1)])
def test_images_and_weights_may_lie_apart(images, weights, places, generator):
    draw_folder(places[images], generator)
    places[weights].mkdir(parents=True, exist_ok=True)
    save_file(random_state(), places[weights] / "resnet152-test.safetensors")
    assert caltech256(SIZE, list(BLOCKS), "bilinear").y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_images_of_the_user_come_before_the_cache(places, generator):
    draw_folder(places[1], generator)
    draw_folder(places[0], generator, ("001.ak47", "002.flag"))
    save_file(random_state(), places[1] / "resnet152-test.safetensors")
    assert caltech256(SIZE, list(BLOCKS), "bilinear").y.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("other", [0, 1])
def test_two_files_of_weights_are_refused(other, places, generator):
    draw_folder(places[0], generator)
    files = [places[0] / "resnet152-a.pth", places[other] / "resnet152-b.safetensors"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"weights")
    with pytest.raises(DataError, match="needs one file of weights") as caught:
        caltech256(SIZE, list(BLOCKS), "bilinear")
    message = str(caught.value)
    assert "\n" not in message
    assert all(str(file) in message for file in files)


def test_one_folder_given_twice_is_searched_once(places, generator, monkeypatch):
    monkeypatch.setenv("EXTREMAL_CACHE", str(places[0].parent))
    draw_folder(places[0], generator)
    save_file(random_state(), places[0] / "resnet152-test.safetensors")
    assert len(caltech256(SIZE, list(BLOCKS), "bilinear")) == 9


def test_cifar10_is_no_figure_of_the_paper():
    """Its record shares the settings of the training alone, and claims nothing as published."""
    caltech, cifar = (get(f"min-vidal-2024/figure-4{name}") for name in ("", "-cifar10"))
    assert set(caltech.settings) - set(cifar.settings) == {"blocks", "interpolation"}
    assert set(cifar.settings) - set(caltech.settings) == {"images"}
    assert "caltech256" not in cifar.notes.lower()
    assert "cifar" not in caltech.notes.lower()
    assert all(claim.source.startswith("Section 5.2.2") for claim in caltech.claims)
    assert all(claim.source.startswith("ours, after Section 5.2.2") for claim in cifar.claims)
    assert {claim.against for claim in cifar.claims} == {"question"}
    plain = [
        [replace(claim, source="", against="question") for claim in each.claims]
        for each in (caltech, cifar)
    ]
    assert plain[0] == plain[1]


def test_only_what_section_5_2_2_says_is_marked_as_stated():
    settings = get("min-vidal-2024/figure-4").settings
    marked = {mark: {n for n, each in settings.items() if each.provenance == mark} for mark in "SA"}
    assert marked["S"] == {"source", "blocks", "groups", "width", "batch", "epochs"}
    assert marked["A"] == {"train_share", "radii"}


@pytest.mark.parametrize("normalize", ["power", "unit"])
def test_the_three_curves_are_in_order(normalize):
    params = smoke(normalize=normalize, p=3.0)
    outcome = features(params, torch.Generator().manual_seed(0))
    numbers = outcome.numbers
    curves = ("certified_accuracy", "robust_accuracy", "robust_accuracy_apgd")
    for low, worst, alone in zip(*(numbers[curve] for curve in curves), strict=True):
        assert low <= worst <= alone
    assert numbers["epoch"] == [0.0, 1.0, 4.0, 8.0]
    assert numbers["final_test_accuracy"] == numbers["test_accuracy"][-1] > 0.7
    assert numbers["contrast"] > 0.1
    cosines = outcome.arrays["cosines"]
    assert cosines.shape == (30, 30)
    torch.testing.assert_close(cosines.diagonal(), torch.ones(30))


def test_an_unknown_source_is_refused():
    with pytest.raises(ValueError, match="source must be one of"):
        source(smoke(source="caltech"))
