"""An animation in space as a GIF: neurons that turn and grow, one frame for each recorded time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import NDArray
from PIL import Image

from extremal._check import require
from extremal._files import write_whole
from extremal.report.matplotlib_scenes import limits, set_space
from extremal.report.panel_style import CLOUD_COLOURS, MATPLOTLIB_SETTINGS, literal_text

# A scene's width in a frame.
SCENE_WIDTH_INCHES = 3.6
# A frame's height, with titles and the legend.
FRAME_HEIGHT_INCHES = 4.1
# A frame is seen on a screen, where more dots only make the file larger.
FRAME_DOTS_PER_INCH = 100
# How long a frame is shown.
FRAME_MILLISECONDS = 90
# How long the first frame is shown, so that the start is seen.
FIRST_FRAME_MILLISECONDS = 800
# How long the last frame is shown, since it holds the result.
LAST_FRAME_MILLISECONDS = 2500
# Colours of the one palette that all frames share.
PALETTE_SIZE = 128

Film = Mapping[str, Any]
Points = NDArray[np.float64]


def save_animation(film: Film, path: str | Path) -> Path:
    """Write a film (see `extremal.experiments.animation_data`) as a GIF, whole or not at all.

    One frame for each of the film's times, with the scenes side by side in one cube. Rays that move
    have the length ||w||^compress, which a caption says; the axes have no numbers for that reason.
    The same film gives the same bytes, with the same matplotlib and Pillow.
    """
    _check(film)
    pictures = [Image.fromarray(picture) for picture in _pictures(film)]
    # One palette for all frames: what stands still then has the same colours, and costs nothing.
    sample = [np.asarray(pictures[k]) for k in (0, len(pictures) // 2, -1)]
    # This way of choosing keeps white white, which a page around the picture would show.
    way = Image.Quantize.MAXCOVERAGE
    palette = Image.fromarray(np.concatenate(sample)).quantize(PALETTE_SIZE, way)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times = [
        FIRST_FRAME_MILLISECONDS,
        *[FRAME_MILLISECONDS] * (len(frames) - 2),
        LAST_FRAME_MILLISECONDS,
    ][-len(frames) :]
    target = io.BytesIO()
    frames[0].save(target, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    write_whole(path, target.getvalue(), make_folders=True)
    return Path(path)


def _check(film: Film) -> None:
    wanted = ("title", "times", "phases", "compress", "scenes")
    good = isinstance(film, Mapping) and set(wanted) <= set(film)
    require(good, "film", f"hold {', '.join(wanted)}", film)
    count = len(film["times"])
    require(count >= 1 and len(film["scenes"]) >= 1, "film", "have a frame and a scene", film)
    for scene in film["scenes"]:
        require(len(scene["loss"]) == count, "loss", f"have {count} frames", len(scene["loss"]))
        for cloud in scene["clouds"]:
            frames = len(cloud["points"]) if cloud["moves"] else count
            require(frames == count, cloud["label"], f"have {count} frames", frames)


def _pictures(film: Film) -> Iterator[NDArray[np.uint8]]:
    """The frames, (height, width, 3) bytes each."""
    scenes, count = film["scenes"], len(film["times"])
    places = [[_places(c, count, film["compress"]) for c in scene["clouds"]] for scene in scenes]
    low, high = limits([p for scene in places for cloud in scene for p in cloud], 3)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(
            figsize=(SCENE_WIDTH_INCHES * len(scenes), FRAME_HEIGHT_INCHES), dpi=FRAME_DOTS_PER_INCH
        )
        canvas = FigureCanvasAgg(figure)
        clock = figure.text(0.03, 0.975, "", va="top", fontsize=11)
        moves: list[Callable[[int], None]] = []
        for k, (scene, clouds) in enumerate(zip(scenes, places, strict=True)):
            axes: Any = figure.add_subplot(1, len(scenes), k + 1, projection="3d")
            axes.computed_zorder = False
            set_space(axes, low, high)
            for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
                axis.set_ticklabels([])
            for cloud, points in zip(scene["clouds"], clouds, strict=True):
                moves.append(_draw(axes, cloud, points))
            moves.append(_title(axes, scene, film))
        figure.subplots_adjust(left=0.0, right=1.0, bottom=0.19, top=0.87, wspace=0.0)
        _legend(figure, film)
        for k, time in enumerate(film["times"]):
            clock.set_text(literal_text(f"{film['title']}: flow time {_short(time)}"))
            for move in moves:
                move(k)
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _places(cloud: Mapping[str, Any], count: int, compress: float) -> list[Points]:
    """The cloud's (n, 3) points in each frame, with compressed lengths if they are moving rays."""
    if not cloud["moves"]:
        return [np.array(cloud["points"], dtype=float).reshape(-1, 3)] * count
    frames = [np.array(points, dtype=float).reshape(-1, 3) for points in cloud["points"]]
    if cloud["style"] != "rays":
        return frames
    lengths = [np.linalg.norm(points, axis=1, keepdims=True) for points in frames]
    return [
        points * np.where(length > 0, length, 1.0) ** (compress - 1.0)
        for points, length in zip(frames, lengths, strict=True)
    ]


def _draw(axes: Axes3D, cloud: Mapping[str, Any], places: list[Points]) -> Callable[[int], None]:
    """Draw a cloud; the result moves it to its places in a frame."""
    colour, rays = CLOUD_COLOURS[cloud["colour"]], cloud["style"] == "rays"
    reference = cloud["colour"] == "accent"
    strong = rays or cloud["moves"]
    dots = axes.scatter(
        *places[0].T,
        s=(0 if reference else 9) if strong else 16,
        color=colour,
        alpha=1.0 if strong else 0.3,
        linewidths=0,
        depthshade=False,
        zorder=5 if strong else 2,
    )
    lines = Line3DCollection(
        _segments(places[0] if rays else places[0][:0]),
        colors=colour,
        linewidths=1.5 if reference else 0.8,
        linestyles="--" if reference else "-",
        alpha=0.9 if reference else 0.6,
        zorder=3 if reference else 4,
    )
    axes.add_collection3d(lines, autolim=False)

    def move(k: int) -> None:
        dots._offsets3d = tuple(places[k].T)
        if rays:
            lines.set_segments(_segments(places[k]))

    return move if cloud["moves"] else lambda k: None


def _segments(points: Points) -> NDArray[np.float64]:
    return np.stack([np.zeros_like(points), points], axis=1)


def _title(axes: Axes3D, scene: Mapping[str, Any], film: Film) -> Callable[[int], None]:
    title = axes.set_title("", loc="center", pad=-2.0)

    def move(k: int) -> None:
        phase = film["phases"][int(film["times"][k] > scene["turn"])]
        title.set_text(literal_text(f"{scene['title']}: {phase}, loss {_short(scene['loss'][k])}"))

    return move


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _legend(figure: Figure, film: Film) -> None:
    """The clouds of the first scene, in few rows, and how lengths are to be read."""
    entries = []
    for cloud in film["scenes"][0]["clouds"]:
        look: dict[str, Any] = {"marker": "o", "linestyle": "none", "alpha": 0.4}
        if cloud["style"] == "rays":
            look = {"marker": "o", "markersize": 3.0, "linewidth": 0.9}
        if cloud["colour"] == "accent":
            look = {"linestyle": "--"}
        entries.append(
            Line2D(
                [],
                [],
                color=CLOUD_COLOURS[cloud["colour"]],
                label=literal_text(cloud["label"]),
                **look,
            )
        )
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.05)}
    figure.legend(handles=entries, ncols=3, frameon=False, columnspacing=1.6, **place)
    text = f"Rays of neurons have the neuron's direction and the length ‖w‖^{film['compress']:g}."
    if film["compress"] != 1.0:
        figure.text(0.5, 0.02, literal_text(text), ha="center", fontsize=8)
