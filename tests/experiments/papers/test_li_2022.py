"""The studies of Li et al. 2022: what they compute, against what is known of it."""

import math

import pytest
import torch
from PIL import Image

from extremal import data, measure, models
from extremal.experiments import get
from extremal.experiments.papers.li_2022 import robust_overfitting as overfitting
from extremal.experiments.papers.li_2022 import separation_of_images as study
from extremal.experiments.papers.li_2022 import smallest_width_trial as smallest_width
from extremal.experiments.papers.li_2022.robust_memorisation import (
    cornered,
    interval_margins,
    steepest,
)
from extremal.experiments.papers.li_2022.robust_memorisation import (
    trial as memorisation,
)
from extremal.experiments.papers.li_2022.separation_of_images import trial as separation
from extremal.experiments.papers.li_2022.smallest_width_trial import covered


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def first(name, scale="smoke", **given):
    return dict(get(f"li-2022/{name}").trials(scale)[0].params) | given


def test_memorisation_meets_all_claims():
    numbers = memorisation(first("memorisation"), generator()).numbers
    errors = ("robust_error", "enumerated_error", "corner_error", "ratio_error")
    for name in (*errors, "unproven", "plain_unproven", "ratio_unproven", "formula_gap"):
        assert numbers[name] == 0.0
    assert numbers["counted"] == numbers["parameters"] == 14 * 6
    assert 0.999 <= numbers["ratio_slope"] <= 1.0 + 1e-9
    assert numbers["beyond"] == numbers["corners_beyond"] == 1.0
    assert numbers["lower"] == pytest.approx(math.sqrt(numbers["upper"]))


def test_a_large_memoriser_is_not_written_out():
    params = first("memorisation", count=61, dim=11, attacked_points=2)
    numbers = memorisation(params, generator()).numbers
    for name in ("counted", "formula_gap", "plain_unproven", "corner_error", "enumerated_error"):
        assert numbers[name] is None
    assert numbers["beyond"] == 1.0


def test_intervals_prove_up_to_the_radius_and_no_farther_than_corners_hold():
    found = data.separated_points(12, 3, separation=0.1, generator=generator())
    net = models.Memoriser(found, 0.02)
    plain = net.explicit()
    at = [interval_margins(plain, found, factor * net.radius) for factor in (0.0, 1.0, 3.0)]
    torch.testing.assert_close(at[0], (found.y * plain(found.x)).detach())
    assert float(at[1].min()) == pytest.approx(1.0)
    assert cornered(net, found, net.radius) == 0.0
    assert cornered(net, found, 1.001 * (net.radius + net.gap / 3)) == 1.0
    sides = (2.0 * torch.rand(200, 3, generator=generator()) - 1.0) * 3.0 * net.radius
    for x, y, low in zip(found.x, found.y, at[2], strict=True):
        assert bool((y * plain(x + sides).detach() >= low).all())


def test_the_largest_slope_is_found_between_the_closest_points():
    found = data.separated_points(10, 3, separation=0.1, generator=generator())
    ratio = models.DistanceRatio.of(found)
    assert steepest(ratio, found, 10, generator()) == pytest.approx(ratio.lipschitz, rel=1e-3)


def test_separation_of_digits():
    outcome = separation(first("separation", points=200), generator())
    numbers = outcome.numbers
    assert numbers["brute_force_gap"] == 0.0
    assert numbers["train"] == min(numbers["train_by_class"])
    assert numbers["train_quantiles"][0] == numbers["train"]
    assert numbers["ratio"] == pytest.approx(min(numbers["train"], numbers["test"]) / 0.2)
    assert outcome.arrays["train_pair"].shape == (8, 17)
    assert numbers["seconds"] > 0.0
    assert 0.05 < numbers["peak_memory"] < 50.0


@pytest.mark.parametrize("kind", ["inside", "across"])
def test_a_wrong_smallest_distance_shows_in_the_gap(kind):
    learn, test = data.load("digits")
    learn, test = learn.take(slice(300)), test.take(slice(60))
    found = {"inside": measure.separation(learn), "across": measure.separation(test, learn)}
    places = {name: each.pairs[0][0] for name, each in found.items()}
    assert study._largest_gap(**found, learn=learn, test=test, count=2) == 0.0
    found[kind].distance[places[kind]] -= 0.01
    assert study._largest_gap(**found, learn=learn, test=test, count=2) == pytest.approx(0.01)


def test_folders_with_classes_of_their_own_are_matched_by_name(tmp_path, monkeypatch):
    for part, classes in (("train", "abc"), ("test", "bc")):
        for label in classes:
            folder = tmp_path / "svhn" / part / label
            folder.mkdir(parents=True)
            shade = {"a": 0, "b": 51, "c": 255}[label]
            Image.new("RGB", (8, 8), (shade,) * 3).save(folder / "0.png")
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path))
    numbers = separation(first("separation-folders", "paper", image_size=8), generator()).numbers
    assert (numbers["test_conflicts"], numbers["test_duplicates"]) == (0.0, 2.0)


def test_separation_says_which_folder_it_needs(monkeypatch):
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    params = first("separation-folders", "paper")
    with pytest.raises(data.DataError, match="needs folders svhn/train and svhn/test"):
        separation(params, generator())


def test_separation_reads_a_user_s_folder(tmp_path, monkeypatch):
    for part in ("train", "test"):
        for label, shade in (("a", 40), ("b", 142)):
            folder = tmp_path / "svhn" / part / label
            folder.mkdir(parents=True)
            for k in range(2):
                Image.new("RGB", (8, 8), (shade + k, shade, shade)).save(folder / f"{k}.png")
    monkeypatch.setenv("EXTREMAL_DATA", str(tmp_path))
    params = first("separation-folders", "paper", image_size=8)
    numbers = separation(params, generator()).numbers
    assert numbers["train"] == pytest.approx(102 / 255)
    assert numbers["test_duplicates"] == 4.0


@pytest.mark.parametrize(("problem", "cells"), [("lattice", 8), ("manifold", 8), ("ambient", 8)])
def test_problems_have_the_cells_that_they_say(problem, cells):
    params = first("generalisation", problem=problem)
    size = {"lattice": 3, "manifold": 3, "ambient": 9}[problem]
    source, learn, test = smallest_width.problem(params, size, generator())
    assert len(source.labels) == cells
    assert (len(learn), len(test)) == (4 * cells, 2 * cells)
    assert learn.dim == {"lattice": 4, "manifold": 12, "ambient": 9}[problem]


def test_a_width_that_is_not_reached_is_told(monkeypatch):
    tried = []

    def error(params, learn, test, radius, width, generator):
        tried.append((radius, width))
        return 0.0 if width >= 4 and (radius == 0.0 or learn.dim == 2) else 1.0

    monkeypatch.setattr(smallest_width, "_error", error)
    params = first("generalisation", widths=[1, 4, 16])
    numbers = smallest_width.trial(params, generator()).numbers
    assert numbers["clean_width"] == [4.0] * 3
    assert numbers["robust_width"] == [4.0, None, None]
    assert numbers["censored"] == [0.0, 1.0, 1.0]
    assert numbers["unreached"] == 2.0
    assert (params["radius"], 16) in tried


def test_a_cover_reaches_fresh_points_and_proves_them():
    params = first("generalisation", cover_batch=300)
    found = {}
    for k, dim in ((1, 6), (2, 6), (2, 24)):
        g = generator()
        source = data.ManifoldCells("torus", k, dim, generator=g)
        found[k, dim] = each = covered(params, source, g)
        assert each.coverage >= 0.95
        assert each.error <= 1.0 - each.coverage + 0.03
        assert each.parameters == each.points * (6 * dim + 4)
    assert found[2, 6].points > 4 * found[1, 6].points
    assert 0.5 < found[2, 24].points / found[2, 6].points < 2.0


def test_a_cover_that_is_never_whole_says_so(monkeypatch):
    monkeypatch.setattr(
        "extremal.experiments.papers.li_2022.smallest_width_trial._MOST_COVER_POINTS", 100
    )
    params = first("generalisation", cover_batch=50, cover_reach=0.02)
    source = data.ManifoldCells("torus", 2, 4, generator=generator())
    assert covered(params, source, generator()).coverage < 0.95


def test_early_stopping_looks_at_the_validation_set_alone():
    values = {
        "accuracy": [0.1, 1.0, 1.0],
        "test_clean": [0.1, 0.6, 0.5],
        "train_robust": [0.1, 0.7, 1.0],
        "validation_robust": [0.1, 0.5, 0.4],
        "test_robust": [0.6, 0.45, 0.4],
    }
    told = overfitting._told(values)
    assert told["stopped_robust"] == 0.45
    assert told["recovered"] == pytest.approx(0.05)
    assert told["gap"] == pytest.approx(0.6)


def test_sets_of_overfitting_are_disjoint():
    params = first("overfitting", train_points=900, validation_points=300)
    sets = overfitting._split(params, generator())
    seen = {row.numpy().tobytes() for row in sets["train"].x}
    held = [row.numpy().tobytes() for row in sets["validation"].x]
    assert (len(sets["train"]), len(sets["validation"]), len(sets["test"])) == (900, 300, 20)
    assert sum(row in seen for row in held) == 0  # digits has no equal images
