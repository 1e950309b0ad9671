"""The playground's answers: what the theory says, and what the copied lines of Python compute."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch

from extremal.models import PReLUNet, float64_copy, margin
from extremal.theory import OPTIMAL_RADIUS, average_radius
from extremal.web.answer_pool import Deadline, Superseded
from extremal.web.pages.playground_answers import broken, followed, headline, recipe, told_regions
from extremal.web.playground_plane import decision_regions
from extremal.web.playground_settings import PlanePoint, PlaygroundSettings
from extremal.web.playground_training import attack_and_certify, directions, train_flow


def test_with_p_1_neurons_follow_averages_and_half_break_at_one_over_root_k(answers):
    found = answers[1.0]
    names = {row.name for row in followed(found.trained)}
    assert names == {"average of class +", "average of class −"}
    assert float(found.attacked.median()) == pytest.approx(average_radius(2, 2), rel=0.03)
    assert "32 follow a class average" in headline(found.trained)


def test_with_p_3_neurons_follow_centres_and_half_hold_near_the_optimum(answers):
    found = answers[3.0]
    names = {row.name for row in followed(found.trained)}
    assert names == {f"centre {k} (class {'+' if k < 3 else '−'})" for k in (1, 2, 3, 4)}
    assert float(found.attacked.median()) == pytest.approx(OPTIMAL_RADIUS, rel=0.05)
    assert "follow a subclass centre" in headline(found.trained)
    half = float(found.attacked.median())
    assert broken(found).startswith(f"p = 3: half of the test points break by radius {half:.3f}")


def test_certificates_stay_below_attacks(answers):
    for found in answers.values():
        assert bool((found.certified <= found.attacked).all())
        assert bool((found.certified > 0).all())


def test_shares_of_what_is_followed_add_up(answers):
    for found in answers.values():
        rows = followed(found.trained)
        assert sum(row.share for row in rows) == pytest.approx(1.0)
        assert sum(row.neurons for row in rows) == len(found.trained.follows.neurons)


def test_the_only_centre_of_a_class_is_named_once():
    setup = PlaygroundSettings(positive=2, negative=1, width=12)
    found = train_flow(setup, Deadline(300.0))
    names, rows = directions(found.mixture)
    assert names[0] == "average of class +"
    assert names[-1] == "only centre 3 (class −)"
    assert rows.shape == (4, 3)
    assert "which is its average too" in headline(found)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_the_copied_lines_compute_the_same_numbers(answers, p):
    text = recipe(PlaygroundSettings(p=p))
    assert len(text.splitlines()) == 10
    scope, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(text, scope)  # it is what users do with it
    found = answers[p]
    assert torch.equal(scope["attacked"], found.attacked)
    assert torch.equal(scope["certified"], found.certified)
    assert isinstance(scope["net"], PReLUNet)
    assert torch.equal(scope["net"].neurons, found.trained.net.neurons)
    assert torch.equal(scope["run"].times, found.trained.run.times)
    middle = f"{float(found.attacked.median()):.4f}"
    assert out.getvalue().startswith(f"p = {p:g}: half break by {middle}")


def test_the_lines_of_a_comparison_are_a_loop():
    text = recipe(PlaygroundSettings(p=1.0, second_p=2.5, loss="logistic", init=-7, seed=12))
    lines = text.splitlines()
    assert len(lines) == 11
    assert lines[1] == "for p in (1.0, 2.5):"
    assert "Gaussian(1e-7)" in text
    assert 'loss="logistic"' in text
    compile(text, "recipe", "exec")


def test_training_stops_when_nobody_waits():
    deadline = Deadline(300.0)
    deadline.given_up.set()
    with pytest.raises(Superseded):
        attack_and_certify(train_flow(PlaygroundSettings(width=4), deadline), deadline)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_the_smallest_attack_crosses_the_edge_and_the_ball_does_not(answers, p):
    answer, probe = answers[p].trained, PlanePoint(1, 3, 0.9, 0.1)
    found = decision_regions(answer, probe, Deadline(300.0))
    assert found.sign == 1
    assert 0.0 < found.certified <= found.radius
    assert found.landed is not None
    inside = (found.landed[0] - 0.9, found.landed[1] - 0.1)
    assert inside[0] ** 2 + inside[1] ** 2 + found.aside**2 == pytest.approx(found.radius**2)
    # On the plane, no point of the certified disc has another sign.
    angles = torch.linspace(0, 6.2832, 400, dtype=torch.float64)
    ring = torch.stack([0.9 + found.certified * angles.cos(), 0.1 + found.certified * angles.sin()])
    points = ring.T @ answer.mixture.centers[[0, 2]]
    label = torch.ones(len(points), dtype=torch.int64)
    assert bool((margin(float64_copy(answer.net), points, label) > 0).all())
    assert f"p = {p:g}: at (0.90, 0.10) the network says +" in told_regions(found, p)


def test_the_grid_is_the_network_on_the_plane(answers):
    answer = answers[3.0].trained
    found = decision_regions(answer, PlanePoint(2, 4, 0.0, 1.0), Deadline(300.0))
    for row, column in ((0, 0), (30, 60), (45, 12)):
        across, up = answer.mixture.centers[[1, 3]]
        at = found.axis[column] * across + found.axis[row] * up
        value = float(answer.net(at[None].float()).detach())
        assert float(found.values[row, column]) == pytest.approx(value, rel=1e-4, abs=1e-5)
    assert found.sign == -1


def test_at_the_origin_the_network_is_undecided(answers):
    found = decision_regions(answers[1.0].trained, PlanePoint(1, 2, 0.0, 0.0), Deadline(300.0))
    assert (found.sign, found.radius, found.landed) == (0, 0.0, None)
    assert "undecided" in told_regions(found, 1.0)
