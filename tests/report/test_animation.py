"""The animation: its frames, what moves in them, and that its bytes depend on nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from extremal.report import save_animation, write_report
from extremal.report.animation import _places


def make_film(frames: int = 4) -> dict[str, Any]:
    """Two neurons that grow along two axes, the second scene's a hundred times shorter."""
    steps = np.linspace(0.01, 1.0, frames)
    scenes = []
    for title, size in (("p = 1", 1.0), ("p = 3", 0.01)):
        moving = [(size * step * np.eye(2, 3)).tolist() for step in steps]
        clouds = [
            _cloud("data", "points", "negative", np.eye(3).tolist(), moves=False),
            _cloud("neurons", "rays", "positive", moving, moves=True),
            _cloud("centres", "rays", "accent", np.eye(3).tolist(), moves=False),
        ]
        loss = [float(1 - step) for step in steps]
        scenes.append({"title": title, "loss": loss, "turn": 1.0, "clouds": clouds})
    times = [float(k) for k in range(frames)]
    look = {"title": "Growth", "phases": ["first", "then"], "compress": 0.25}
    return {**look, "times": times, "scenes": scenes}


def _cloud(label: str, style: str, colour: str, points: Any, *, moves: bool) -> dict[str, Any]:
    look = {"label": label, "style": style, "colour": colour}
    return {**look, "points": points, "moves": moves}


def frames_of(path: Path) -> tuple[list[NDArray[np.int64]], list[int]]:
    """The pictures and their durations in milliseconds."""
    pictures, durations = [], []
    with Image.open(path) as opened:
        for k in range(opened.n_frames):
            opened.seek(k)
            pictures.append(np.asarray(opened.convert("RGB")).astype(np.int64))
            durations.append(opened.info["duration"])
    return pictures, durations


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    path = save_animation(make_film(), tmp_path_factory.mktemp("film") / "new" / "film.gif")
    return path, *frames_of(path)


def test_one_frame_for_each_time_and_pauses_at_both_ends(shown):
    path, pictures, durations = shown
    assert path.read_bytes()[:6] == b"GIF89a"
    assert [entry.name for entry in path.parent.iterdir()] == ["film.gif"]
    assert len(pictures) == 4
    assert pictures[0].shape == (410, 720, 3)
    assert durations == [800, 90, 90, 2500]
    with Image.open(path) as opened:
        assert opened.info["loop"] == 0


def test_the_same_film_gives_the_same_bytes(shown, tmp_path):
    path, *_ = shown
    assert save_animation(make_film(), tmp_path / "again.gif").read_bytes() == path.read_bytes()


def test_neurons_grow_in_both_scenes_and_the_rest_stands_still(shown):
    _, pictures, _ = shown
    below = slice(60, 330)  # under the titles and over the legend
    for half in (slice(0, 360), slice(360, 720)):
        # Of the colours here only that of the neurons has more blue than green.
        blue = [int((p[below, half, 2] - p[below, half, 1] > 20).sum()) for p in pictures]
        assert blue[0] < blue[1] < blue[2] < blue[3]
    first, last = pictures[0][below], pictures[-1][below]
    changed = (np.abs(first - last).sum(-1) > 0).mean()
    assert 0.0 < changed < 0.1


def test_the_page_around_it_stays_white(shown):
    _, pictures, _ = shown
    assert all((picture[[0, -1]] == 255).all() for picture in pictures)


def test_moving_rays_have_compressed_lengths_and_nothing_else_has():
    points = [[[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]]
    ray = _cloud("", "rays", "positive", points, moves=True)
    (found,) = _places(ray, 1, 0.5)
    length = math.sqrt(5.0)
    np.testing.assert_allclose(found, [[0.6 * length, 0.8 * length, 0.0], [0.0, 0.0, 0.0]])
    (found,) = _places({**ray, "style": "points"}, 1, 0.5)
    np.testing.assert_array_equal(found, points[0])
    still = _places({**ray, "moves": False, "points": points[0]}, 2, 0.5)
    assert len(still) == 2
    np.testing.assert_array_equal(still[1], points[0])


def test_a_film_of_one_frame_one_scene_and_an_empty_cloud(tmp_path):
    film = make_film(1)
    film["scenes"] = film["scenes"][:1]
    film["scenes"][0]["clouds"][1]["points"] = [[]]
    pictures, _ = frames_of(save_animation(film, tmp_path / "film.gif"))
    assert [picture.shape for picture in pictures] == [(410, 360, 3)]


def test_a_report_has_the_animation_where_there_is_a_film(summary, tmp_path):
    summary["panels"] = summary["panels"][:1]
    names = [path.name for path in write_report(summary, tmp_path / "a", make_film(2))]
    assert names == ["figure.png", "figure.pdf", "report.html", "animation.gif"]
    assert (tmp_path / "a" / "animation.gif").is_file()
    assert len(write_report(summary, tmp_path / "b")) == 3
    assert not (tmp_path / "b" / "animation.gif").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda film: film.pop("times"), "film must hold title, times, phases"),
        (lambda film: film.update(scenes=[]), "film must have a frame and a scene"),
        (lambda film: film.update(times=[]), "film must have a frame and a scene"),
        (lambda film: film["times"].pop(), "loss must have 3 frames, got 4"),
        (
            lambda film: film["scenes"][1]["clouds"][1]["points"].pop(),
            "neurons must have 4 frames, got 3",
        ),
    ],
)
def test_films_that_do_not_fit_are_refused_before_any_work(change, message, tmp_path):
    film = make_film()
    change(film)
    with pytest.raises(ValueError, match=message):
        save_animation(film, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write .*film\.gif"):
        save_animation(make_film(1), tmp_path / "file" / "film.gif")
