"""`extremal separation` as a person meets it."""

import json

import torch
from PIL import Image
from safetensors.torch import save_file


def test_digits(extremal, folder):
    arguments = ("separation", "digits", "--points", "100")
    code, out, err = extremal(*arguments)
    assert (code, err) == (0, "")
    assert "train-train, linf: minimum 0." in out
    assert "test-train, linf: minimum 0." in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = extremal(*arguments, "--json", "--norm", "l2", "--out", "found")
    told = json.loads(out)
    assert code == 0
    assert told["train-train"]["points"] == told["test-train"]["reference"] == 100
    assert set(told["train-train"]["by_class"]) == set("0123456789")
    assert (folder / "found" / "train-train.png").read_bytes()[:4] == b"\x89PNG"
    kept = json.loads((folder / "found" / "separation.json").read_text())
    assert kept["test-train"] == told["test-train"]


def test_a_file_with_equal_points(extremal, folder):
    x = torch.tensor([[0.0, 0.1, 0.5], [0.3, 0.3, 0.3], [0.3, 0.3, 0.3], [0.0, 0.1, 0.5]])
    save_file({"x": x, "y": torch.tensor([0, 0, 1, 0])}, folder / "equal.safetensors")
    code, out, _ = extremal("separation", "equal.safetensors", "--norm", "l1")
    assert code == 0
    assert "test-train" not in out
    assert "minimum 0, mean" in out
    assert "equal points of one class: 0-3" in out
    assert "equal points of different classes: 1-2" in out


def test_a_folder_of_images(extremal, folder):
    for part in ("train", "test"):
        for label, shade in (("a", 0), ("b", 51)):
            place = folder / "images" / part / label
            place.mkdir(parents=True)
            Image.new("RGB", (4, 4), (shade, 0, 0)).save(place / "x.png")
    code, out, _ = extremal("separation", "images", "--size", "4", "--json")
    assert code == 0
    assert json.loads(out)["train-train"]["minimum"] == 0.2


def test_a_class_that_test_lacks_shifts_no_label(extremal, folder):
    for part, classes in (("train", "abc"), ("test", "bc")):
        for label in classes:
            place = folder / "images" / part / label
            place.mkdir(parents=True)
            shade = {"a": 0, "b": 51, "c": 255}[label]
            Image.new("RGB", (4, 4), (shade, 0, 0)).save(place / "x.png")
    code, out, _ = extremal("separation", "images", "--size", "4", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["test-train"]["conflicts"] == []
    assert told["test-train"]["by_class"]["1"]["minimum"] == 0.2
    (folder / "images" / "train" / "a").rename(folder / "images" / "test" / "a")
    code, _, err = extremal("separation", "images", "--size", "4")
    assert code == 2
    assert "have each class of test in train, got ['a']" in err


def test_mistakes_are_one_line(extremal, folder):
    (folder / "empty").mkdir()
    for arguments, message in (
        (("nothing",), "DATA must be one of digits"),
        (("digits", "--norm", "l3"), "--norm must be one of"),
        (("digits", "--points", "1"), "--points must be an integer >= 2"),
        (("digits", "--size", "0"), "--size must be an integer >= 1"),
        (("empty",), "DATA must hold the folders train and test"),
        (("half.safetensors",), "DATA must"),
    ):
        code, out, err = extremal("separation", *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
