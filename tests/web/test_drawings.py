"""What is drawn: projections, places of neurons, curves, and figures that plotly takes."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict
from urllib.parse import unquote

import plotly.graph_objects as go
import pytest
import torch

from extremal.web.answer_pool import Deadline
from extremal.web.curve_legend import DASHES, legend
from extremal.web.playground_charts import LAST_RADIUS, draw_curve, draw_time, robust_curve
from extremal.web.playground_plane import (
    SECTOR_LOOKS,
    Sector,
    decision_regions,
    draw_plane,
    sectors,
)
from extremal.web.playground_settings import PLANE_REACH, PlanePoint, PlaygroundSettings
from extremal.web.playground_space import (
    SHORTEST_DRAWN_LENGTH,
    draw_space,
    grid_times,
    places,
    projection,
    track,
)
from extremal.web.playground_training import FIRST_TIME, FRAME_COUNT, LAST_TIME, train_flow
from extremal.web.theme import (
    AVERAGE_COLOUR,
    DAY,
    NEGATIVE_COLOUR,
    NIGHT,
    POSITIVE_COLOUR,
    POWER_COLOURS,
    empty_figure,
)

SIZES = list(itertools.product(range(1, 7), repeat=2))


@pytest.mark.parametrize(("positive", "negative"), SIZES)
def test_a_projection_has_orthonormal_rows(positive, negative):
    rows = projection(PlaygroundSettings(positive=positive, negative=negative))
    assert torch.allclose(rows @ rows.T, torch.eye(3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(("positive", "negative"), [size for size in SIZES if sum(size) > 3])
def test_averages_are_upright_and_centres_of_a_class_equally_high(positive, negative):
    setup = PlaygroundSettings(positive=positive, negative=negative)
    seen = projection(setup)  # its columns are where the centres are drawn
    for own, count, sign in ((slice(positive), positive, 1), (slice(positive, None), negative, -1)):
        heights = seen[2, own]
        assert torch.allclose(heights, torch.full_like(heights, sign * (2 * count) ** -0.5))
        middle = seen[:, own].sum(1) / count**0.5
        assert torch.allclose(middle[2].abs(), torch.tensor(0.5**0.5, dtype=torch.float64))
        if count > 1:
            assert float(middle[:2].abs().max()) < 1e-9


def test_four_centres_are_a_regular_tetrahedron():
    seen = projection(PlaygroundSettings(positive=2, negative=2)).T
    sides = [float((seen[i] - seen[j]).norm()) for i, j in itertools.combinations(range(4), 2)]
    assert sides == pytest.approx([2**0.5] * 6)  # as far apart as they truly are


def test_neurons_lie_along_their_directions_between_the_two_lengths(trained):
    exact = trained[3.0]
    seen = places(exact)
    weights = exact.run.snapshots["neurons"].double()
    flat = (weights / weights.norm(dim=-1, keepdim=True)) @ projection(exact.setup).T
    ratio = seen.norm(dim=-1) / flat.norm(dim=-1)
    assert float(ratio.min()) == pytest.approx(SHORTEST_DRAWN_LENGTH)
    assert float(ratio.max()) == pytest.approx(1.0)
    assert torch.allclose(seen, flat * ratio.unsqueeze(-1))
    lengths = weights.norm(dim=-1).flatten()
    order = lengths.argsort()
    assert bool((ratio.flatten()[order].diff() > -1e-9).all())  # longer is drawn longer


def test_the_track_is_what_is_drawn(trained):
    answer = trained[1.0]
    sent = track(answer)
    assert len(sent["times"]) == len(sent["x"]) == len(sent["loss"]) == len(answer.run)
    drawn = draw_space(answer)["data"][1]
    for axis in "xyz":
        assert [value / 1000 for value in sent[axis][-1]] == pytest.approx(drawn[axis], abs=6e-4)
    assert sent["turn"] <= sent["fit"] <= sent["times"][-1]


def test_the_time_control_stands_for_the_recorded_times(trained):
    grid = grid_times()
    assert len(grid) == FRAME_COUNT
    assert (grid[0], grid[-1]) == (FIRST_TIME, LAST_TIME)
    recorded = set(track(trained[1.0])["times"])
    reached = [time for time in grid if time < float(trained[1.0].run.times[-1])]
    assert set(reached) <= recorded


def test_the_curve_is_the_share_of_points_that_survive():
    radii = torch.tensor([0.0, 0.2, 0.2, 0.5, 2.0, torch.inf], dtype=torch.float64)
    curve = robust_curve(radii)
    steps = list(zip(curve["x"], curve["y"], strict=True))
    for radius in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0):
        share = [y for x, y in steps if x <= radius][-1]
        assert share == pytest.approx(float((radii > radius).double().mean()))
    assert curve["x"][-1] == LAST_RADIUS


def test_plotly_takes_every_figure(answers):
    tested = [answers[1.0], answers[3.0]]
    both = [one.trained for one in tested]
    found = decision_regions(both[0], PlanePoint(), Deadline(300.0))
    drawn = [draw_space(both[0]), draw_plane(found, 1.0), empty_figure()]
    drawn += [draw_time(part) for part in (both, both[1:])]
    drawn += [draw_curve(part) for part in (tested, tested[:1])]
    for figure in drawn:
        go.Figure(figure)


def test_what_the_browser_repaints_has_one_meaning():
    day, night = asdict(DAY), asdict(NIGHT)
    assert day.keys() == night.keys()
    assert len(set(day.values())) == len(day)
    data = {POSITIVE_COLOUR, NEGATIVE_COLOUR, AVERAGE_COLOUR, *POWER_COLOURS}
    assert not data & set(day.values())


def test_marks_are_at_the_radii_of_the_theory(answers):
    shapes = draw_curve([answers[1.0]])["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes] == pytest.approx([0.5, 0.5**0.5])


def test_the_cursor_is_the_last_shape_and_the_phases_are_marked(trained):
    layout = draw_time([trained[1.0]])["layout"]
    assert layout["shapes"][-1]["type"] == "line"
    assert [note["text"] for note in layout["annotations"]] == ["alignment", "fitting"]
    phases = trained[1.0].run.info["phases"]
    assert layout["shapes"][0]["x1"] == pytest.approx(phases["alignment ends"])
    assert layout["shapes"][1]["x0"] == pytest.approx(phases["fitting starts"])


def test_a_comparison_says_whose_phases_these_are(trained):
    layout = draw_time([trained[1.0], trained[3.0]])["layout"]
    assert [note["text"] for note in layout["annotations"]] == [
        "alignment, p = 1",
        "fitting, p = 1",
    ]


def told_curves(figure) -> dict[str, tuple]:
    """What tells each curve of a figure, by its words: its dashes, its marks, and its sample."""
    rows = [row for group in legend(figure) for row in group.children]
    looks = {}
    for curve, row in zip(figure["data"], rows, strict=True):
        picture, words = row.children
        assert words == curve["name"]
        dash, mark = curve["line"].get("dash", "solid"), curve.get("marker", {}).get("symbol")
        drawn = unquote(picture.src)
        assert f'stroke-dasharray="{DASHES[dash]}"' in drawn
        assert drawn.count("<path") == (1 if mark is None else 2)
        looks[words] = (dash, mark)
    return looks


def test_two_powers_differ_by_their_words_and_marks_and_not_by_colour_alone(answers):
    both = [answers[1.0], answers[3.0]]
    assert told_curves(draw_curve(both)) == {
        "p = 1: attack": ("solid", None),
        "p = 1: certificate": ("dash", None),
        "p = 3: attack": ("solid", "diamond-open"),
        "p = 3: certificate": ("dash", "diamond-open"),
    }
    dashes = {"loss": "solid", "to average": "dash", "to centre": "solid"}
    dashes |= {"longest w": "solid", "median w": "dot"}
    assert told_curves(draw_time([one.trained for one in both])) == {
        f"{power}: {name}": (dash, mark)
        for power, mark in (("p = 1", None), ("p = 3", "diamond-open"))
        for name, dash in dashes.items()
    }


def test_sectors_have_the_edges_of_what_is_said():
    edges = [0.1, 2.0, 2.5, 5.0]

    def signs(angles):
        inside = torch.bucketize(
            angles.remainder(2 * math.pi), torch.tensor(edges, dtype=torch.float64)
        )
        return torch.tensor([0, 1, -1, 0, 0])[inside]

    found = sectors(signs)
    assert [one.sign for one in found] == [1, -1, 0]
    assert [one.start for one in found] == pytest.approx([0.1, 2.0, 2.5], abs=1e-12)
    assert [one.end for one in found] == pytest.approx([2.0, 2.5, 0.1 + 2 * math.pi], abs=1e-12)
    assert sectors(torch.ones_like) == (Sector(0.0, 2 * math.pi, 1),)


def test_areas_without_a_class_are_hatched_and_named():
    trained = train_flow(PlaygroundSettings(width=8), Deadline(300.0))
    found = decision_regions(trained, PlanePoint(), Deadline(300.0))
    assert {one.sign for one in found.sectors} == {-1, 0, 1}
    for one in found.sectors:  # each is where the grid says so
        angles = torch.atan2(found.axis[:, None], found.axis[None]) - one.start
        turned = angles.remainder(2 * math.pi)
        inside = (turned > 1e-6) & (turned < one.end - one.start - 1e-6)
        inside[30, 30] = False  # the origin, where f = 0
        assert set(found.values[inside].sign().tolist()) == {one.sign}
    figure = draw_plane(found, 1.0)
    hatched = [one for one in figure["data"] if "fillpattern" in one]
    assert [one["fillcolor"] for one in hatched] == [DAY.paper]
    notes = {note["text"]: note for note in figure["layout"]["annotations"]}
    assert {words for words, _ in SECTOR_LOOKS.values()} < set(notes)
    for one in found.sectors:
        note = notes[SECTOR_LOOKS[one.sign][0]]
        angle = (math.atan2(note["y"], note["x"]) - one.start) % (2 * math.pi)
        assert 0 < angle < one.end - one.start
        assert max(abs(note["x"]), abs(note["y"])) < 0.75 * PLANE_REACH


def test_the_colours_of_p_are_no_colours_of_a_class(answers):
    lines = draw_curve([answers[1.0], answers[3.0]])["data"]
    assert {line["line"]["color"] for line in lines} == set(POWER_COLOURS)
    assert not set(POWER_COLOURS) & {POSITIVE_COLOUR, NEGATIVE_COLOUR, AVERAGE_COLOUR}
