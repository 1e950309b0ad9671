"""The closest points of different classes, as pictures side by side."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from extremal import _check
from extremal._files import write_whole
from extremal.data import as_picture
from extremal.report.figure import DPI
from extremal.report.style import RC, plain

_INCHES = 1.1  # of a picture
_ACROSS = 4  # pairs in a row


def draw_pairs(one: Tensor, two: Tensor, titles: Sequence[tuple[str, str]]) -> Figure:
    """Points one (m, dim) and two (m, dim) in [0, 1], each pair side by side under its titles."""
    _check.matrix("one", one)
    _check.matrix("two", two, columns=one.shape[1])
    same = len(one) == len(two) == len(titles)
    _check.require(same, "titles", f"be a pair for each of {len(one)} pairs", len(titles))
    across = min(_ACROSS, len(one))
    rows = -(-len(one) // across)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * across * _INCHES, rows * (_INCHES + 0.25)))
        for k, (left, right, names) in enumerate(zip(one, two, titles, strict=True)):
            for turn, (x, name) in enumerate(((left, names[0]), (right, names[1]))):
                axes = figure.add_subplot(rows, 2 * across, 2 * k + turn + 1)
                picture = as_picture(x).float().clamp(0.0, 1.0).numpy()
                gray = picture.shape[2] == 1
                shown = picture[:, :, 0] if gray else picture
                axes.imshow(shown, cmap="gray" if gray else None, vmin=0.0, vmax=1.0, aspect="auto")
                axes.set_title(plain(name), fontsize=7.0)
                axes.set_axis_off()
        figure.tight_layout(pad=0.4)
    return figure


def save_pairs(
    one: Tensor, two: Tensor, titles: Sequence[tuple[str, str]], path: str | Path
) -> Path:
    """Write `draw_pairs` as a PNG file, whole or not at all."""
    target = io.BytesIO()
    figure = draw_pairs(one, two, titles)
    with matplotlib.rc_context(RC):
        figure.savefig(target, format="png", dpi=DPI, metadata={"Software": None})
    write_whole(Path(path), target.getvalue(), make_folders=True)
    return Path(path)
