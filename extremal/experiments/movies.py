"""The movie of a record resolved into plain data: every frame, with nothing left to look up."""

from __future__ import annotations

from typing import Any

from extremal._check import require
from extremal.experiments.experiment import Experiment, Movie, Scale, Scene
from extremal.experiments.panel_data import check_where, look_up, matching
from extremal.experiments.storage.store import Store, StoredTrial


def film(
    experiment: Experiment, scale: Scale, store: Store, seeds: int | None = None
) -> dict[str, Any] | None:
    """What an experiment's movie shows, or None where it has none or a scene's trial isn't done.

    It is read from the store and never part of a summary, which all those arrays would make large.
    """
    movie = experiment.movie
    if movie is None:
        return None
    trials = experiment.trials(scale, seeds)
    found = store.read_all(trials)
    done = [stored for stored in found if stored.status == "done"]
    shown = []
    for scene in movie.scenes:
        check_where(scene.title, scene.where, trials)
        own = matching(scene.where, done)
        if not own:
            return None
        shown.append(_scene(movie, scene, own[0]))
    times = shown[0].pop("times")
    for other in shown[1:]:
        theirs = other.pop("times")
        require(theirs == times, movie.times, "be the same list in all scenes", theirs)
    return {
        "title": movie.title,
        "times": times,
        "phases": list(movie.phases),
        "compress": movie.compress,
        "scenes": shown,
    }


def _scene(movie: Movie, scene: Scene, stored: StoredTrial) -> dict[str, Any]:
    times, loss = look_up(movie.times, stored), look_up(movie.loss, stored)
    for name, values in ((movie.times, times), (movie.loss, loss)):
        require(isinstance(values, list) and len(values) > 0, name, "be a list of numbers", values)
    require(len(loss) == len(times), movie.loss, f"have {len(times)} frames", len(loss))
    clouds = []
    for cloud in scene.clouds:
        require(cloud.style != "arrows", cloud.label, "be points or rays in a movie", cloud.style)
        require(cloud.points in stored.array_names, "a movie", "name a stored array", cloud.points)
        array = stored.arrays[cloud.points]
        shape = tuple(array.shape)
        moves = array.ndim == 3
        fits = shape[-1:] == (3,) and (shape[0] == len(times) if moves else array.ndim == 2)
        rule = f"have shape (n, 3) or ({len(times)}, n, 3)"
        require(fits, cloud.points, rule, f"shape {shape}")
        look = {"label": cloud.label, "style": cloud.style, "colour": cloud.colour}
        clouds.append({**look, "moves": moves, "points": array.tolist()})
    turn = look_up(movie.turn, stored)
    return {"title": scene.title, "times": times, "loss": loss, "turn": turn, "clouds": clouds}
