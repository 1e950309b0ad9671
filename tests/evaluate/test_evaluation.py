"""Brackets hold the truth: attacks above, certificates below, and an error where they cross."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
import torch

import extremal as ex
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import BracketViolation, bracket
from extremal.models import Explicit, PReLUNet, subclass_classifier
from tests.evaluate.scenes import Bump, flat_net, made, points

TASK = sys.modules["extremal.evaluate.evaluation_task"]
DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_bracket_of_a_plane_holds_its_distance_and_is_narrow(norm, generator):
    w, test = points(generator)
    result = ex.evaluate(flat_net(w), test, norm=norm, generator=generator)
    margin = test.y * (test.x @ w)
    distance = (margin / torch.linalg.vector_norm(w, DUAL[norm])).clamp(min=0.0)
    assert bool((result.lower <= distance * (1 + 1e-9)).all())
    assert bool((result.upper >= distance * (1 - 1e-9)).all())
    right = margin > 0
    assert torch.equal(result.correct, right)
    assert float(result.gap.median) < 0.01
    assert {result.attack[i] for i in torch.nonzero(~right).flatten().tolist()} == {"clean"}
    assert not result.warnings


def test_attacks_stay_in_the_box_and_the_certificate_says_whether_it_used_it(generator):
    """At x = (0.9, 0) with f = x_1 + x_2 - 0.5, the box keeps x_2 from falling."""
    init = Explicit(
        torch.tensor([[1.0, 1.0]], dtype=torch.float64),
        torch.tensor([[1.0]], dtype=torch.float64),
        bias=torch.tensor([-0.5], dtype=torch.float64),
    )
    net = PReLUNet(2, 1, bias=True, init=init, dtype=torch.float64, generator=generator)
    x, y = torch.tensor([[0.9, 0.0]], dtype=torch.float64), torch.tensor([1])
    boxed, free = Dataset(x, y, box=(0.0, 1.0)), Dataset(x, y)
    for norm, wanted in (("l2", 0.4 / math.sqrt(2.0)), ("linf", 0.2)):
        cut = ex.evaluate(net, boxed, norm=norm, generator=generator)
        whole = ex.evaluate(net, free, norm=norm, generator=generator)
        assert float(whole.upper) == pytest.approx(wanted, rel=1e-3)
        assert float(cut.upper) == pytest.approx(0.4, rel=1e-3)
        assert (whole.boxed, cut.boxed) == (False, norm == "linf")
        assert float(cut.lower) == pytest.approx(0.4 if norm == "linf" else wanted, rel=0.01)
        assert cut.box == (0.0, 1.0)


def test_a_certificate_above_an_attack_is_an_error_that_names_the_points(generator, monkeypatch):
    w, test = points(generator, wrong=0.0)
    honest = TASK.certificate

    def boastful(*arguments, **settings):
        found = honest(*arguments, **settings)
        radius = found.radius.clone()
        radius[[3, 7]] *= 1.1
        return replace(found, radius=radius)

    monkeypatch.setattr(TASK, "certificate", boastful)
    with pytest.raises(BracketViolation, match="2 points broken within the certified") as caught:
        ex.evaluate(flat_net(w), test, generator=generator)
    assert caught.value.points == (3, 7)
    assert issubclass(BracketViolation, RuntimeError)


def test_rounding_is_no_violation_but_more_is():
    assert made([1.0 + 5e-7], [1.0]).curve([1.0]).certified.tolist() == [0.0]
    with pytest.raises(BracketViolation, match=r"1 point broken .*certified 1\.00001"):
        made([1.0 + 1e-5], [1.0])


def test_the_certificate_starts_from_the_attack_where_both_are_of_one_problem(
    generator, monkeypatch
):
    seen = []
    honest = TASK.certificate

    def spy(net, x, y, **settings):
        seen.append(settings["attacked"])
        return honest(net, x, y, **settings)

    monkeypatch.setattr(TASK, "certificate", spy)
    w, test = points(generator, wrong=0.0)
    cut = replace(test, box=(-10.0, 10.0))
    for data, norm in ((test, "l2"), (cut, "l2"), (test, "linf")):
        ex.evaluate(flat_net(w), data, norm=norm, generator=generator)
    assert [start is not None for start in seen] == [True, False, False]
    assert bool((test.y * (seen[0] @ w) <= 0).all())


def test_radii_asked_for_are_attacked_where_points_are_undecided(generator):
    """No gradient at the points: random starts at the radius asked for find what others missed."""
    test = Dataset(torch.zeros(100, 3), torch.ones(100))
    plain = ex.evaluate(Bump(), test, generator=generator)
    asked = ex.evaluate(Bump(), test, radii=[1.0], generator=generator)
    assert float(plain.upper.isinf().double().mean()) > 0.3
    assert float(asked.upper.isinf().double().mean()) < 0.05
    assert "pgd-random" in asked.attack
    assert bool((asked.upper[asked.upper.isfinite()] >= 0.3 + 1 / 3 - 1e-6).all())
    assert asked.curve().radii.tolist() == [1.0]


def test_a_bracket_without_checks_has_the_radii_of_an_evaluation(generator):
    mix = OrthonormalMixture(100, 6, 4, 0.1)
    test = mix.sample(12, generator=generator)
    test = replace(test, y=torch.where(torch.arange(12) == 3, -test.y, test.y))
    net = subclass_classifier(mix, 3.0)
    whole = ex.evaluate(net, test, radii=[0.6], generator=generator)
    known = {"mixture": mix, "radii": [0.6], "generator": generator}
    assert torch.equal(bracket(net, test, **known).lower, whole.lower)
    few = bracket(net, test, certified=5, **known)
    assert torch.equal(few.lower[:5], whole.lower[:5])
    assert not few.lower[5:].any()
    assert few.certificate[:5] == whole.certificate[:5]
    assert set(few.certificate[5:]) == {""}
    attacked = [i for i, name in enumerate(whole.attack) if name == few.attack[i]]
    assert len(attacked) > 6  # the others were found by probes
    assert torch.equal(whole.upper[attacked], few.upper[attacked])
    assert (float(few.upper[3]), few.attack[3], few.warnings) == (0.0, "clean", ())
    none = bracket(net, test, certified=0, generator=generator)
    assert (none.certified, bool(none.lower.any())) == (False, False)
    plain = bracket(net, test, radii=[0.6], certified=0, generator=generator)
    assert not {"center", "average"} & set(plain.attack)  # nobody told it of the clusters


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"certified": -1}, "certified must be"),
        ({"radii": 0.5}, "radii must be"),
        ({"mixture": OrthonormalMixture(9, 1, 1, 0.1)}, "mixture must be GaussianClusters"),
        ({"rays": [torch.zeros(2, 100)]}, "rays must be a list of tensors of shape"),
        ({"rays": torch.zeros(12, 100)}, "rays must be a list of tensors of shape"),
    ],
)
def test_a_bracket_says_what_is_wrong_before_any_work(settings, message, generator, monkeypatch):
    monkeypatch.setattr(TASK, "minimal", None)
    mix = OrthonormalMixture(100, 6, 4, 0.1)
    test, net = mix.sample(12, generator=generator), subclass_classifier(mix, 3.0)
    with pytest.raises(ValueError, match=message):
        bracket(net, test, **settings, generator=generator)
    with pytest.raises(ValueError, match="net must be a network with a certificate"):
        bracket(Bump(), test, generator=generator)


def test_rays_are_searched_for_the_points_that_are_right(generator):
    """At p = 8 gradients toward far neurons vanish; a ray to a centre breaks half the way."""
    mix = OrthonormalMixture(12, 3, 3, 0.0)
    test = mix.simplified()
    test = replace(test, y=torch.where(torch.arange(6) == 0, -test.y, test.y))
    net = subclass_classifier(mix, 8.0)
    rays = [test.x[(torch.arange(6) + 3) % 6] - test.x]
    plain = bracket(net, test, certified=0, generator=generator)
    found = bracket(net, test, rays=rays, certified=0, generator=generator)
    assert bool((found.upper <= plain.upper).all())
    assert found.upper[0] == 0.0
    assert float(found.upper[1:].max()) < math.sqrt(0.5) * 1.001


def test_closed_forms_take_part_where_the_source_is_a_mixture(generator, monkeypatch):
    told = []
    honest = TASK.run

    def spy(net, x, y, **settings):
        told.append((x, settings["group"], settings["mixture"]))
        return honest(net, x, y, **settings)

    monkeypatch.setattr(TASK, "run", spy)
    mix = OrthonormalMixture(100, 6, 4, 0.1)
    test = mix.sample(40, generator=generator)
    net = subclass_classifier(mix, 3.0)
    result = ex.evaluate(net, test, radii=[0.7], generator=generator)
    assert 0.2 < float(result.curve().attacked) < 0.8
    delta = ex.attack.minimal(net, test.x, test.y, generator=generator).radius
    assert bool((result.upper <= delta).all())
    assert float(result.curve().attacked - result.curve().certified) < 0.1
    ((x, group, source),) = told
    assert source is mix
    assert torch.equal(group, (x @ mix.centers.float().T).argmax(1))


def test_a_network_that_knows_its_radii_is_certified_here_too(generator):
    """`ex.certify.radius` and `ex.evaluate` mean the same networks."""
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0], [1.0, 3.0]], dtype=torch.float64)
    y = torch.tensor([1, 1, -1, -1])
    ratio = ex.models.DistanceRatio(x[y > 0], x[y < 0])
    for net in (ratio, ex.models.Memoriser(Dataset(x, y), 0.3)):
        assert ex.certify.can_certify(net)
        found = ex.evaluate(net, Dataset(x, y), generator=generator)
        wanted = ex.certify.radius(net, x, y)
        assert bool((wanted > 0).all())
        torch.testing.assert_close(found.lower, wanted)
        assert found.certified
        assert "uncertified" not in {warning.name for warning in found.warnings}
