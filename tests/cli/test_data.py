"""`extremal data` as a person meets it; digits need no download."""

from __future__ import annotations

import json

import pytest

from extremal.data import named_datasets
from extremal.data.image_formats import read_mnist
from extremal.data.named_datasets import DATASETS, NamedDataset
from tests.data.helpers_sources import CONTENTS, FILES, Fake, fill


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A data set of the test's own in the table, and an empty cache."""
    row = NamedDataset("two images and one", FILES, (Fake(CONTENTS),), read_mnist)
    monkeypatch.setitem(DATASETS, "toy", row)
    assert named_datasets.DATASETS is DATASETS
    monkeypatch.setenv("EXTREMAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    return tmp_path / "cache" / "toy"


def test_list_tells_what_is_here(extremal, toy):
    code, out, err = extremal("data", "list")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    known = {row["name"]: row for row in json.loads(extremal("data", "list", "--json")[1])}
    assert {"digits", "mnist", "fashion-mnist", "cifar10", "toy"} == set(known)
    assert (known["digits"]["here"], known["toy"]["here"]) == (True, False)
    extremal("data", "fetch", "toy")
    assert {row["name"]: row["here"] for row in _listed(extremal)}["toy"] is True
    (toy / FILES[0].name).write_bytes(b"cut")
    assert {row["name"]: row["here"] for row in _listed(extremal)}["toy"] is False


def _listed(extremal):
    return json.loads(extremal("data", "list", "--json")[1])


def test_fetch_counts_labels_and_mends_what_is_spoilt(extremal, toy):
    code, out, err = extremal("data", "fetch", "toy")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "toy, train: 2 points of 6 values",
        "  labels 0 to 9: 0 0 0 1 0 0 0 0 0 1",
    ]
    assert out.splitlines()[-1] == str(toy)
    file = toy / FILES[2].name
    spoilt = bytearray(file.read_bytes())
    spoilt[-1] ^= 1
    file.write_bytes(spoilt)
    told = json.loads(extremal("data", "fetch", "toy", "--json")[1])
    assert told["test"] == {"points": 1, "dim": 6, "labels": [0, 0, 0, 0, 0, 1]}
    assert file.read_bytes() == CONTENTS[FILES[2].name]


def test_path_names_the_folder_once_it_is_filled(extremal, toy):
    code, out, err = extremal("data", "path", "toy")
    assert (code, out) == (2, "")
    assert err == "error: name must be fetched first: extremal data fetch toy, got toy\n"
    extremal("data", "fetch", "toy")
    assert extremal("data", "path", "toy")[1] == f"{toy}\n"


@pytest.mark.parametrize("packed", [False, True])
def test_the_users_folder_is_known_too(extremal, toy, tmp_path, monkeypatch, packed):
    mine = fill(tmp_path / "mine" / "toy", CONTENTS, packed=packed)
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path / "mine"))
    assert {row["name"]: row["here"] for row in _listed(extremal)}["toy"] is True
    assert extremal("data", "path", "toy")[1] == f"{mine}\n"
    assert extremal("data", "fetch", "toy")[1].splitlines()[-1] == str(mine)
    assert not toy.exists()


def test_what_the_users_folder_lacks_is_in_the_cache(extremal, toy, tmp_path, monkeypatch):
    mine = fill(tmp_path / "mine" / "toy", CONTENTS)
    (mine / FILES[1].name).unlink()
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path / "mine"))
    assert extremal("data", "path", "toy")[0] == 2
    extremal("data", "fetch", "toy")
    assert [path.name for path in toy.iterdir()] == [FILES[1].name]
    assert extremal("data", "path", "toy")[1] == f"{mine}\n{toy}\n"
    assert {row["name"]: row["here"] for row in _listed(extremal)}["toy"] is True


def test_digits_have_no_files(extremal):
    code, out, _ = extremal("data", "fetch", "digits")
    assert code == 0
    assert out.splitlines()[-1] == "part of scikit-learn: no files of its own"
    code, _, err = extremal("data", "path", "digits")
    assert code == 2
    assert err == "error: name must be a data set that has files, got digits\n"


def test_no_source_is_one_line(extremal, toy, monkeypatch):
    monkeypatch.setitem(
        DATASETS, "toy", NamedDataset("gone", FILES, (Fake({}, "closed"),), read_mnist)
    )
    code, out, err = extremal("data", "fetch", "toy")
    assert (code, out) == (2, "")
    assert err.startswith("error: cannot load toy: EXTREMAL_DATA is not set; cache ")
    assert err.endswith("fake: closed\n")
    assert err.count("\n") == 1
    assert extremal("data", "fetch", "minst")[0] == 2
