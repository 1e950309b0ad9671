"""Attack and certificate together: brackets that hold, curves, and warnings when they mislead."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import extremal as ex
from extremal._robustness import wilson
from extremal.attack.ball import Ball
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import BracketViolation, HealthWarning, Robustness
from extremal.models import Explicit, PReLUNet, subclass_classifier
from tests.attack.networks import linear

MODULE = sys.modules["extremal.evaluate"]
DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}


def flat_net(w: torch.Tensor) -> PReLUNet:
    """f(x) = <w, x> as a ReLU network: relu(<w, x>) - relu(<-w, x>)."""
    init = Explicit(torch.stack([w, -w]), torch.tensor([[1.0, -1.0]], dtype=w.dtype))
    return PReLUNet(len(w), 2, init=init, dtype=w.dtype, generator=torch.Generator())


def points(generator, count=40, dim=6, wrong=0.1):
    """Points at both sides of a plane, some with the wrong label; the plane's normal."""
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    y = torch.where(x @ w > 0, 1, -1)
    y[: int(wrong * count)] *= -1
    return w, Dataset(x, y)


def made(lower, upper, **fields) -> Robustness:
    count = len(lower)
    given = {
        "norm": "l2",
        "box": None,
        "certified": True,
        "boxed": False,
        "attack": ("shortest",) * count,
        "certificate": ("parabolas",) * count,
        **fields,
    }
    kind = {"dtype": torch.float64}
    return Robustness(torch.tensor(lower, **kind), torch.tensor(upper, **kind), **given)


def names(result: Robustness) -> set[str]:
    return {warning.name for warning in result.warnings}


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
    honest = MODULE.certificate

    def boastful(*arguments, **settings):
        found = honest(*arguments, **settings)
        radius = found.radius.clone()
        radius[[3, 7]] *= 1.1
        return replace(found, radius=radius)

    monkeypatch.setattr(MODULE, "certificate", boastful)
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
    honest = MODULE.certificate

    def spy(net, x, y, **settings):
        seen.append(settings["attacked"])
        return honest(net, x, y, **settings)

    monkeypatch.setattr(MODULE, "certificate", spy)
    w, test = points(generator, wrong=0.0)
    cut = replace(test, box=(-10.0, 10.0))
    for data, norm in ((test, "l2"), (cut, "l2"), (test, "linf")):
        ex.evaluate(flat_net(w), data, norm=norm, generator=generator)
    assert [start is not None for start in seen] == [True, False, False]
    assert bool((test.y * (seen[0] @ w) <= 0).all())


def test_curve_counts_below_at_and_above_each_radius():
    """Robust at r: surely where lower >= r, surely not where upper <= r."""
    result = made([0.0, 0.5, 1.0, 0.2], [0.0, 0.8, 1.0, math.inf])
    radii = [0.0, 0.2, 0.2000001, 0.5, 0.8, 1.0, 2.0]
    curve = result.curve(radii)
    assert curve.certified.tolist() == [0.75, 0.75, 0.5, 0.5, 0.25, 0.0, 0.0]
    assert curve.attacked.tolist() == [0.75, 0.75, 0.75, 0.75, 0.5, 0.25, 0.25]
    assert curve.radii.tolist() == radii
    brute = [float(((result.lower >= r) & (result.upper > r)).double().mean()) for r in radii]
    assert curve.certified.tolist() == brute


def test_wilson_is_that_of_another_library():
    for count in (1, 7, 500):
        hits = torch.tensor(sorted({0, count // 3, count - 1, count}))
        for k, ends in zip(hits.tolist(), wilson(hits, count).tolist(), strict=True):
            other = binomtest(k, count).proportion_ci(0.95, method="wilson")
            assert ends == pytest.approx([other.low, other.high], abs=1e-12)


def test_headline_and_table_say_the_numbers():
    lower = [0.6] * 439 + [0.497] * 1 + [0.3] * 59 + [0.0]
    upper = [0.625] * 439 + [0.6] * 1 + [0.4] * 59 + [0.0]
    attack = ("shortest",) * 499 + ("clean",)
    result = made(lower, upper, attack=attack)
    low = binomtest(439, 500).proportion_ci(0.95, method="wilson").low
    high = binomtest(440, 500).proportion_ci(0.95, method="wilson").high
    assert result.headline(0.5) == (
        "robust accuracy at l2 radius 0.5 lies between 87.8 % and 88.0 % on these 500 points "
        f"(95 % interval for the population {100 * low:.1f}-{100 * high:.1f} %), "
        "bracket gap median 4.0 %"
    )
    assert result.gap.ninetieth == pytest.approx(0.25)
    lines = result.table([0.5, 0.7]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert lines[1].split()[0] == "0.5"
    assert "87.8 %" in lines[1]
    assert "88.0 %" in lines[1]
    assert lines[2].count("0.0 %") == 2


def test_without_a_certificate_the_headline_claims_no_lower_bound(generator):
    w, test = points(generator)
    result = ex.evaluate(flat_net(w), test, certify=False, generator=generator)
    assert not result.lower.any()
    assert "is at most" in result.headline(0.1)
    assert "nothing is certified" in result.headline(0.1)
    assert set(result.certificate) == {""}
    assert not result.warnings


def test_all_wrong_and_nothing_found_are_said(generator):
    w, test = points(generator, wrong=0.0)
    wrong = ex.evaluate(flat_net(-w), test, generator=generator)
    assert not wrong.upper.any()
    assert math.isnan(wrong.gap.median)
    assert "no finite bracket" in wrong.headline(0.0)
    assert wrong.curve([0.0]).attacked.tolist() == [0.0]


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


def test_closed_forms_take_part_where_the_source_is_a_mixture(generator, monkeypatch):
    told = []
    honest = MODULE.run

    def spy(net, x, y, **settings):
        told.append((x, settings["group"], settings["mixture"]))
        return honest(net, x, y, **settings)

    monkeypatch.setattr(MODULE, "run", spy)
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


def test_one_seed_one_result(generator):
    test = Dataset(torch.zeros(20, 3), torch.ones(20))

    def told(seed: int) -> str:
        g = torch.Generator().manual_seed(seed)
        return ex.evaluate(Bump(), test, radii=[0.8], generator=g).to_json()

    first = told(1)
    assert told(1) == first
    assert json.loads(told(2))["upper"] != json.loads(first)["upper"]


def test_a_file_gives_back_every_field(tmp_path):
    warning = HealthWarning("wide-brackets", "the truth may be anywhere between")
    result = made(
        [0.1, 0.0],
        [1 / 3, math.inf],
        box=(0.0, 1.0),
        attack=("shortest", ""),
        certificate=("linear", ""),
        warnings=(warning,),
        settings={"radii": [0.25], "seed": 3},
    )
    path = tmp_path / "robustness.json"
    result.save(path)
    assert json.loads(path.read_text())["upper"] == [1 / 3, None]
    again = Robustness.load(path)
    assert again.to_json() == result.to_json()
    assert again.warnings == (warning,)
    assert torch.equal(again.upper, result.upper)
    assert again.curve().radii.tolist() == [0.25]
    frame = result.to_frame()
    assert frame["upper"] == [1 / 3, math.inf]
    assert frame["attack"] == ["shortest", ""]
    assert len({len(column) for column in frame.values()}) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda read: read.update(format="other"),
        lambda read: read.pop("upper"),
        lambda read: read.update(lower=[2.0, 2.0]),
        lambda read: read.update(upper=[0.5]),
        lambda read: read.update(upper=["a", "b"]),
        lambda read: read.update(norm="l3"),
        lambda read: read.update(more=1),
        lambda read: read.update(lower=[-1.0, 0.0]),
    ],
)
def test_a_file_that_is_none_is_refused(change, tmp_path):
    path = tmp_path / "robustness.json"
    read = json.loads(made([0.1, 0.2], [0.3, 0.4]).to_json())
    change(read)
    path.write_text(json.dumps(read))
    with pytest.raises(ValueError, match=r"path must be a file that Robustness\.save wrote"):
        Robustness.load(path)


def test_no_file_and_no_json_are_refused(tmp_path):
    with pytest.raises(ValueError, match="path must name an existing file"):
        Robustness.load(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="path must be a file that"):
        Robustness.load(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "l3"}, "norm must be one of"),
        ({"radii": [-1.0]}, "radii must be a finite number >= 0, got -1"),
        ({"radii": []}, "radii must be a sequence of at least one number"),
        ({"radii": 0.5}, "radii must be a sequence"),
        ({"effort": "slow"}, "effort must be one of"),
        ({"batch": 0}, "batch must be an integer >= 1"),
        ({"generator": 3}, "generator must be a torch.Generator"),
    ],
)
def test_bad_settings_are_refused(settings, message, generator):
    w, test = points(generator)
    with pytest.raises(ValueError, match=message):
        ex.evaluate(flat_net(w), test, **{"generator": generator, **settings})


def test_networks_and_data_that_do_not_fit_are_refused(generator):
    w, test = points(generator)
    with pytest.raises(ValueError, match="test must be a Dataset"):
        ex.evaluate(flat_net(w), test.x, generator=generator)
    with pytest.raises(ValueError, match=r"x must be a tensor of shape \(n, 3\)"):
        ex.evaluate(flat_net(w[:3]), test, generator=generator)
    with pytest.raises(ValueError, match=r"y must be -1 or \+1"):
        ex.evaluate(flat_net(w), Dataset(test.x, test.y + 1), generator=generator)
    column = nn.Linear(6, 1).double()
    with pytest.raises(ValueError, match=r"net\(x\) must have shape \(n,\) for one output"):
        ex.evaluate(column, test, generator=generator)


class Bump(nn.Module):
    """Flat with value 1 around the origin, below zero beyond |x_1| = 0.3 + 1/3."""

    def forward(self, x):
        return 1.0 - 3.0 * torch.relu(x[:, 0].abs() - 0.3)


class Masked(nn.Module):
    """A plane whose gradient points the wrong way."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x):
        f = x @ self.w
        return 2.0 * f.detach() - f


def classes(w: torch.Tensor, *after: nn.Module, bias: float = 0.0) -> nn.Sequential:
    """Two outputs +-<w, x> + bias, then other layers."""
    layer = nn.Linear(len(w), 2)
    layer.weight.data, layer.bias.data = torch.stack([-w, w]), torch.full_like(w[:2], bias)
    return nn.Sequential(layer, *after)


def two_classes(test: Dataset) -> Dataset:
    return Dataset(test.x, (test.y + 1) // 2)


def test_a_healthy_network_gets_no_warning(generator):
    w, test = points(generator, wrong=0.0)
    result = ex.evaluate(classes(w), two_classes(test), generator=generator)
    assert not result.warnings
    assert set(result.certificate) == {"lipschitz"}
    distance = (test.x @ w).abs() / w.norm()
    assert bool((result.lower <= distance).all() & (result.upper >= distance * (1 - 1e-9)).all())
    assert result.gap.ninetieth < 0.01


def test_zero_gradients_are_said(generator):
    x = torch.tensor([0.0, 1.0, 0.0]).repeat(40, 1)
    x[:3, 0] = 0.5  # the only ones with a slope
    result = ex.evaluate(Bump(), Dataset(x, torch.ones(40)), generator=generator)
    assert {"zero-gradients", "random-search-wins", "uncertified"} <= names(result)
    (said,) = (w.sentence for w in result.warnings if w.name == "zero-gradients")
    assert "92.5 % of the points" in said
    x[:, 0] = 0.5
    sloped = ex.evaluate(Bump(), Dataset(x, torch.ones(40)), generator=generator)
    assert names(sloped) == {"uncertified"}


def test_gradients_that_lead_the_wrong_way_are_found_out_by_random_search(generator):
    w, test = points(generator, wrong=0.0)
    result = ex.evaluate(Masked(w), test, generator=generator)
    assert "random-search-wins" in names(result)
    assert "zero-gradients" not in names(result)
    assert "random-search" in result.attack
    plain = ex.evaluate(linear(w, 0.0), test, generator=generator)
    assert names(plain) == {"uncertified"}


def test_what_a_probe_breaks_counts(generator):
    w, test = points(generator, wrong=0.0)
    result = ex.evaluate(Masked(w), test, generator=generator)
    found = torch.tensor([name == "random-search" for name in result.attack])
    alone = ex.attack.minimal(Masked(w), test.x, test.y, generator=generator).radius
    assert bool((result.upper[found] < alone[found]).all())
    distance = (test.x @ w).abs() / w.norm()
    assert bool((result.upper >= distance * (1 - 1e-9)).all())


def test_probabilities_are_said(generator):
    w, test = points(generator, wrong=0.0)
    data = two_classes(test)
    assert "probabilities" in names(
        ex.evaluate(classes(w, nn.Softmax(1)), data, generator=generator)
    )
    sigmoid = nn.Sequential(linear(w, 0.0), nn.Sigmoid())
    told = ex.evaluate(sigmoid, test, generator=generator)
    assert "probabilities" in names(told)
    assert not told.upper[test.y < 0].any()  # its sign never says -1
    centred = ex.evaluate(nn.Sequential(linear(w, 0.0), nn.Tanh()), test, generator=generator)
    assert "probabilities" not in names(centred)


def test_margins_of_rounding_are_said(generator):
    """Outputs of 1000 and margins of 0.001: float32 can't hold the difference, float64 can."""
    w, test = points(generator, wrong=0.0)
    net, data = classes(1e-3 * w, bias=1e3), two_classes(test)
    assert names(ex.evaluate(net.double(), data, generator=generator)) == set()
    small = Dataset(data.x.float(), data.y)
    result = ex.evaluate(net.float(), small, certify=False, generator=generator)
    assert "margins-of-rounding" in names(result)


def test_wide_brackets_are_said(generator):
    w, test = points(generator, wrong=0.0)
    first = nn.Linear(6, 50, bias=False)
    first.weight.data = torch.cat([torch.stack([w, -w]), 5.0 * torch.eye(48, 6).double()])
    last = nn.Linear(50, 2, bias=False)
    last.weight.data = torch.zeros(2, 50, dtype=torch.float64)
    last.weight.data[0, :2] = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    last.weight.data[1, :2] = torch.tensor([1.0, -1.0], dtype=torch.float64)
    loose = nn.Sequential(first, nn.ReLU(), last)
    result = ex.evaluate(loose, two_classes(test), generator=generator)
    assert "wide-brackets" in names(result)
    assert result.gap.median > 0.5


def test_plain_steps_that_miss_are_said(generator):
    mix = OrthonormalMixture(100, 3, 2, 0.05)
    test = mix.sample(30, generator=generator)
    steep = ex.evaluate(subclass_classifier(mix, 3.0), test, generator=generator)
    assert names(steep) == {"plain-steps-miss"}
    radius = 1.05 * float(steep.upper.quantile(0.5))
    ball = Ball("l2", radius)
    alone = ex.attack.pgd(
        subclass_classifier(mix, 3.0), test.x, test.y, ball=ball, steps=100, step=0.1 * radius
    )
    (said,) = steep.warnings
    assert f"leave {100 * alone.accuracy:.3g} % standing at l2 radius {radius:.3g}" in said.sentence
