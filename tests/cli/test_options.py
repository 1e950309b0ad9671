"""The points that a command looks at: random ones by the seed, or the first."""

from __future__ import annotations

import torch

from extremal.cli import options
from extremal.data import Dataset
from tests.cli.helpers_network import POINTS, sample

GIVEN = {"split": "test", "box": None, "points": 5, "shuffle": True, "seed": 0, "progress": False}


def read(data="points.safetensors", **settings):
    return options.read_points(data, **{**GIVEN, **settings})


def test_random_points_or_the_first(folder):
    first, whole = read(shuffle=False).data, read(points=1000).data
    assert torch.equal(whole.x, sample().x)
    assert torch.equal(first.x, whole.x[:5])
    drawn, again, other = (read(seed=seed).data for seed in (1, 1, 2))
    assert torch.equal(drawn.x, again.x)
    assert torch.equal(drawn.y, again.y)
    assert not torch.equal(drawn.x, other.x)
    assert not torch.equal(drawn.x, first.x)
    assert len({tuple(row) for row in drawn.x.tolist()}) == 5


def test_every_point_is_drawn_as_often_as_any_other(folder):
    """Of 200 seeds each point is in 5/12: 83 times, with a standard deviation of 7."""
    rows = {tuple(row): k for k, row in enumerate(sample().x.tolist())}
    seen = torch.zeros(POINTS)
    for seed in range(200):
        for row in read(seed=seed).data.x.tolist():
            seen[rows[tuple(row)]] += 1
    assert float(seen.min()) > 83 - 4 * 7
    assert float(seen.max()) < 83 + 4 * 7


def test_random_points_and_all_points_speak_for_the_population(folder):
    chosen = [read(), read(shuffle=False), read(shuffle=False, points=12), read(points=12)]
    assert [some.sampled for some in chosen] == [True, False, True, True]
    assert [some.sentence.split(",")[0] for some in chosen] == [
        "5 of 12 points",
        "the first 5 of 12 points",
        "all 12 points",
        "all 12 points",
    ]
    assert {(some.total, some.split) for some in chosen} == {(POINTS, None)}


def test_a_file_may_hold_its_box(folder):
    low, high = read("boxed.safetensors").data.box
    assert torch.equal(low, sample().x.amin(0) - 0.1)
    assert torch.equal(high, sample().x.amax(0) + 0.1)
    assert read("numbers.npz").data.box == (-9.0, 9.0)
    assert read("boxed.safetensors", box="-5,5").data.box == (-5.0, 5.0)
    assert read("boxed.safetensors", box="none").data.box is None
    assert read().data.box is None


def test_a_known_data_set_has_its_own_box_and_splits(monkeypatch):
    x = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    train, test = (Dataset(x + k * 0.0, torch.arange(6) + k, box=(0.0, 1.0)) for k in (0, 1))
    monkeypatch.setattr(options, "load_data", lambda name, progress: (train, test))
    found = read("mnist", points=4, shuffle=False)
    assert found.split == "test"
    assert found.data.box == (0.0, 1.0)
    assert found.data.y.tolist() == [1, 2, 3, 4]
    other = read("mnist", points=4, shuffle=False, split="train", box="none")
    assert other.split == "train"
    assert other.data.box is None
    assert other.data.y.tolist() == [0, 1, 2, 3]
