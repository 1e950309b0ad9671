"""The studies of what the flow learns: critical radii, p, initialisation, phases, the theorem."""

import math
from itertools import pairwise

import pytest
import torch

from extremal import theory
from extremal.data import OrthonormalMixture
from extremal.evaluate import bracket
from extremal.experiments import get
from extremal.experiments.papers.min_vidal_2025.alignment_phases import nudge
from extremal.experiments.papers.min_vidal_2025.alignment_phases import trial as phases
from extremal.experiments.papers.min_vidal_2025.subclass_theorem_trial import (
    _bounds,
)
from extremal.experiments.papers.min_vidal_2025.subclass_theorem_trial import (
    trial as optimal,
)
from extremal.experiments.papers.open_questions.critical_radius import trial as critical
from extremal.experiments.papers.open_questions.flow_bias_trial import trial as learned
from extremal.models import Explicit, Gaussian, PReLUNet, subclass_classifier


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def smoke(name, **changes):
    return dict(get(name).trials("smoke")[0].params) | changes


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 6.0])
@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (2, 5)])
def test_both_sides_meet_the_closed_form_without_noise(p, counts):
    params = {"dim": 9, "positive": counts[0], "negative": counts[1], "spread": 0.0, "p": p}
    numbers = critical({**params, "points": 1}, generator()).numbers
    assert numbers["off_attacked"] < 0.005
    assert numbers["off_certified"] < 0.005
    worst = min(theory.subclass_radius(count, p) for count in counts)
    assert numbers["closed_form_worst"] == pytest.approx(worst)


def test_with_noise_each_class_has_as_many_points_as_asked():
    params = {"dim": 40, "positive": 2, "negative": 4, "spread": 0.3, "p": 3.0, "points": 5}
    numbers = critical(params, generator()).numbers
    for side in ("positive", "negative"):
        least, most = (numbers[f"attacked_{side}_{end}"] for end in ("least", "most"))
        assert least <= numbers[f"attacked_{side}"] <= most
    assert 0.0 <= numbers["gap"] <= numbers["gap_99"] <= numbers["gap_largest"] < 0.02


def test_rays_to_the_centres_are_tried_for_large_p():
    """At p = 8 gradients toward far neurons vanish; the answer is half the way to a centre."""
    mixture = OrthonormalMixture(12, 3, 3, 0.0)
    data = mixture.simplified()
    net = subclass_classifier(mixture, 8.0)
    found = bracket(net, data, mixture=mixture, generator=generator())
    assert found.upper.max() < math.sqrt(0.5) * 1.001


def test_what_is_learned_depends_on_p():
    params = smoke(
        "open-questions/p-sweep", flow_time=1500.0, width=80, dim=30, train_points=300, spread=0.05
    )
    one, three = (learned(params | {"p": p}, generator()).numbers for p in (1.0, 3.0))
    assert one["cosine_averages"] > 0.98 > one["cosine_centers"]
    assert three["cosine_centers"] > 0.98 > three["cosine_averages"]
    assert one["missed_averages"] == three["missed_centers"] == 0
    assert one["predicted_radius"] == pytest.approx(1 / math.sqrt(5))
    assert one["half_radius"] < three["half_radius"]
    for numbers in (one, three):
        assert numbers["stalled"] == 0.0
        assert numbers["half_radius_certified"] <= numbers["half_radius"] * (1 + 1e-6)
        assert numbers["aligned_time"] <= 1500.0
        assert numbers["onset_time"] <= 1500.0


def test_a_flow_that_has_no_time_has_stalled_and_its_times_are_the_last():
    numbers = learned(smoke("open-questions/p-sweep", p=8.0, flow_time=5.0), generator()).numbers
    assert numbers["stalled"] == 1.0
    assert numbers["onset_time"] == numbers["aligned_time"] == 5.0


def test_a_large_start_has_no_time_of_growth():
    params = smoke("open-questions/initialisation", p=3.0, init_std=1.0)
    assert "predicted_onset" not in learned(params, generator()).numbers


@pytest.mark.parametrize("kind", ["none", "direction", "literal"])
def test_a_nudge_is_what_it_says(kind):
    mixture = OrthonormalMixture(50, 2, 2, 0.0)
    net = PReLUNet(50, 30, 3.0, init=Gaussian(1e-5), generator=generator())
    before = net.neurons.detach().double().clone()
    nudge(net, mixture, kind, 0.05, generator())
    after = net.neurons.detach().double()
    target = mixture.centers[torch.randint(4, (30,), generator=generator())]
    norm = before.norm(dim=1, keepdim=True)
    if kind == "none":
        assert torch.equal(after, before)
    elif kind == "literal":
        torch.testing.assert_close(after, 0.95 * before + 0.05 * target)
    else:
        torch.testing.assert_close(after.norm(dim=1, keepdim=True), norm)
        moved = 0.95 * before / norm + 0.05 * target
        cosines = torch.cosine_similarity(after, moved, dim=1)
        torch.testing.assert_close(cosines, torch.ones_like(cosines))


def test_an_unknown_nudge_is_named():
    mixture = OrthonormalMixture(4, 1, 1, 0.0)
    net = PReLUNet(
        4, 1, 3.0, init=Explicit(torch.ones(1, 4), torch.ones(1, 1)), generator=generator()
    )
    with pytest.raises(ValueError, match="nudge must be one of"):
        nudge(net, mixture, "push", 0.05, generator())


def test_directions_come_before_norms_and_the_flow_goes_on_from_descent():
    numbers = phases(smoke("min-vidal-2025/alignment", nudge="none"), generator()).numbers
    assert numbers["iteration"] == [0, *smoke("min-vidal-2025/alignment")["recorded"]]
    assert numbers["aligned_first"] == pytest.approx(1.0)
    assert numbers["aligned_iteration"] < numbers["grown_iteration"]
    assert numbers["norm_when_aligned"] < 0.1
    losses = numbers["losses"]
    assert all(later <= now + 1e-6 for now, later in pairwise(losses))


def test_f_p_nears_the_bayes_classifier_and_neither_beats_the_unavoidable():
    params = smoke("min-vidal-2025/theorem", spread=0.3, attacked_points=30)
    low, high = (optimal(params | {"p": p}, generator()).numbers for p in (1.0, 6.0))
    assert low["radius_of_bayes"] < 0.9
    assert high["radius_of_bayes"] == pytest.approx(1.0, abs=0.02)
    assert high["bounds_broken"] == 0
    assert min(high["robust_error"], high["robust_error_bayes"]) >= high["unavoidable"] == 0.4
    assert "distance" not in high
    assert "bound" not in low


def test_the_bound_is_compared_with_what_the_attack_leaves():
    mixture = OrthonormalMixture(1_000_000, 2, 2, 0.1)
    weak = torch.full((5000,), 0.3)
    broken = _bounds(mixture, 3.0, weak, [0.1, 0.5, 0.6, 0.8])
    assert broken["bounds_broken"] == 2
    assert broken["bound"][-1] == 0.0  # beyond sqrt(2)/2 nothing is proven
