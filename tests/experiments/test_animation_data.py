"""Movies of records: what a film holds, when there is none, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from extremal.experiments import (
    Experiment,
    Movie,
    Outcome,
    PointSet,
    Scene,
    Setting,
    Store,
    animation_data,
    run,
)

STUDY = f"{__name__}:study"
CLOUDS = (PointSet("still", "data"), PointSet("moving", "neurons", "rays", colour="positive"))


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Two points that stand and four that move through three frames, at a height of p."""
    if params["p"] == params["broken"]:
        raise ArithmeticError("broken on purpose")
    numbers = {
        "times": [0.0, 1.0, 2.0 if params["p"] < 9 else 3.0],
        "loss": [1.0, 0.5, 0.25],
        "short": [1.0],
        "turn": 1.0,
        "seed": generator.initial_seed(),
    }
    moving = torch.arange(36.0).reshape(3, 4, 3) + params["p"] + 100 * generator.initial_seed()
    arrays = {"still": torch.eye(2, 3), "moving": moving, "flat": torch.eye(2), "few": moving[:2]}
    return Outcome(numbers, arrays)


def record(broken: float = 0.0, p: tuple[float, ...] = (1.0, 3.0), **changes: Any) -> Experiment:
    given: dict[str, Any] = {"times": "times", "loss": "loss", "turn": "turn", "clouds": CLOUDS}
    given |= changes
    scenes = tuple(Scene(f"p = {one:g}", given["clouds"], {"p": one}) for one in p)
    movie = Movie(
        "A movie", scenes, given["times"], given["loss"], given["turn"], ("first", "then"), 0.5
    )
    settings = {
        "p": Setting(list(p), "O"),
        "broken": Setting(broken, "O"),
        "seeds": Setting(2, "O"),
    }
    return Experiment("me/film", "", "", STUDY, settings, ("p",), (), movie=movie)


def filmed(tmp_path, experiment: Experiment) -> dict[str, Any] | None:
    store = Store(tmp_path)
    run(experiment.trials("paper"), store, jobs=1)
    return animation_data(experiment, "paper", store)


def test_a_film_holds_every_frame_of_the_first_seed(tmp_path):
    found = filmed(tmp_path, record())
    assert found is not None
    scenes = found.pop("scenes")
    assert found == {
        "title": "A movie",
        "times": [0.0, 1.0, 2.0],
        "phases": ["first", "then"],
        "compress": 0.5,
    }
    assert [scene["title"] for scene in scenes] == ["p = 1", "p = 3"]
    still, moving = scenes[1]["clouds"]
    assert (scenes[1]["loss"], scenes[1]["turn"]) == ([1.0, 0.5, 0.25], 1.0)
    assert (still["moves"], moving["moves"]) == (False, True)
    assert still["points"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert moving["points"][2][3] == [36.0, 37.0, 38.0]
    assert (moving["label"], moving["style"], moving["colour"]) == ("neurons", "rays", "positive")


def test_no_film_without_all_its_trials_or_without_a_movie(tmp_path):
    assert animation_data(record(), "paper", Store(tmp_path)) is None
    assert filmed(tmp_path, record(broken=3.0)) is None
    plain = Experiment("me/none", "", "", STUDY, record().settings, ("p",), ())
    assert animation_data(plain, "paper", Store(tmp_path)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": "nothing"}, "name one of times, loss.*got nothing"),
        ({"times": "turn"}, "turn must be a list of numbers, got 1.0"),
        ({"loss": "short"}, "short must have 3 frames, got 1"),
        ({"clouds": (PointSet("loss", "x"),)}, "a movie must name a stored array, got loss"),
        ({"clouds": (PointSet("flat", "x"),)}, r"flat must have shape \(n, 3\) or \(3, n, 3\)"),
        ({"clouds": (PointSet("few", "x"),)}, r"few must have shape .*got shape \(2, 4, 3\)"),
        ({"clouds": (PointSet("still", "x", "arrows"),)}, "x must be points or rays in a movie"),
        ({"p": (1.0, 9.0)}, "times must be the same list in all scenes"),
    ],
)
def test_movies_that_ask_for_nonsense_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        filmed(tmp_path, record(**changes))
