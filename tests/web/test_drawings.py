"""What is drawn: projections, places of neurons, curves, and figures that plotly takes."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go
import pytest
import torch

from extremal.web.answer_pool import Deadline
from extremal.web.playground_charts import (
    LAST_RADIUS,
    draw_curve,
    draw_plane,
    draw_time,
    robust_curve,
)
from extremal.web.playground_settings import PlanePoint, PlaygroundSettings
from extremal.web.playground_space import (
    SHORTEST_DRAWN_LENGTH,
    draw_space,
    grid_times,
    places,
    projection,
    track,
)
from extremal.web.playground_training import FIRST_TIME, FRAME_COUNT, LAST_TIME, decision_regions
from extremal.web.theme import (
    AVERAGE_COLOUR,
    NAMED_THEMES,
    NEGATIVE_COLOUR,
    POSITIVE_COLOUR,
    POWER_COLOURS,
    USUAL_TEXT_PIXELS,
    empty_figure,
    read_theme,
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
    drawn = draw_space(answer, read_theme("light"))["data"][1]
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


@pytest.mark.parametrize("name", NAMED_THEMES)
def test_plotly_takes_every_figure(answers, name):
    look, tested = read_theme(name), [answers[1.0], answers[3.0]]
    both = [one.trained for one in tested]
    found = decision_regions(both[0], PlanePoint(), Deadline(300.0))
    drawn = [draw_space(both[0], look), draw_plane(found, 1.0, look), empty_figure("nothing")]
    drawn += [draw_time(part, look) for part in (both, both[1:])]
    drawn += [draw_curve(part, look) for part in (tested, tested[:1])]
    for figure in drawn:
        go.Figure(figure)


def test_there_is_no_third_theme():
    with pytest.raises(ValueError, match="'light', 'dark'"):
        read_theme("sepia")


def test_marks_are_at_the_radii_of_the_theory(answers):
    shapes = draw_curve([answers[1.0]], read_theme("light"))["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes] == pytest.approx([0.5, 0.5**0.5])


def test_the_cursor_is_the_last_shape_and_the_phases_are_marked(trained):
    layout = draw_time([trained[1.0]], read_theme("light"))["layout"]
    assert layout["shapes"][-1]["type"] == "line"
    assert [note["text"] for note in layout["annotations"]] == ["alignment", "fitting"]
    phases = trained[1.0].run.info["phases"]
    assert layout["shapes"][0]["x1"] == pytest.approx(phases["alignment ends"])
    assert layout["shapes"][1]["x0"] == pytest.approx(phases["fitting starts"])


def test_a_comparison_says_whose_phases_these_are(trained):
    layout = draw_time([trained[1.0], trained[3.0]], read_theme("dark"))["layout"]
    assert [note["text"] for note in layout["annotations"]] == [
        "alignment, p = 1",
        "fitting, p = 1",
    ]


def test_text_and_margins_follow_the_page(trained):
    small, large = (
        draw_time([trained[1.0]], read_theme({"name": "light", "text": size}))["layout"]
        for size in (USUAL_TEXT_PIXELS, 2 * USUAL_TEXT_PIXELS)
    )
    assert (small["font"]["size"], large["font"]["size"]) == (
        USUAL_TEXT_PIXELS,
        2 * USUAL_TEXT_PIXELS,
    )
    assert large["margin"] == {side: 2 * wide for side, wide in small["margin"].items()}
    with pytest.raises(ValueError, match="text must be a whole number from 10 to 30"):
        read_theme({"name": "light", "text": 1000})


def test_the_colours_of_p_are_no_colours_of_a_class(answers):
    lines = draw_curve([answers[1.0], answers[3.0]], read_theme("light"))["data"]
    assert {line["line"]["color"] for line in lines} == set(POWER_COLOURS)
    assert not set(POWER_COLOURS) & {POSITIVE_COLOUR, NEGATIVE_COLOUR, AVERAGE_COLOUR}
