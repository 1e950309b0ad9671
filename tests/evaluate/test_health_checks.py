"""Signs that numbers mislead are seen, and nothing is said of healthy networks."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import extremal as ex
from extremal.attack.ball import Ball
from extremal.certify import can_certify, radius
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import subclass_classifier
from tests.attack.networks import linear
from tests.evaluate.scenes import Bump, Masked, classes, names, points, two_classes


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


@pytest.fixture(scope="module")
def masked():
    """A network whose gradients lead away, its points, its normal and its evaluation."""
    generator = torch.Generator().manual_seed(0)
    w, test = points(generator, wrong=0.0)
    return w, test, ex.evaluate(Masked(w), test, generator=generator)


def test_gradients_that_lead_the_wrong_way_are_found_out_by_random_search(masked, generator):
    w, test, result = masked
    assert "random-search-wins" in names(result)
    assert "zero-gradients" not in names(result)
    assert "random-search" in result.attack
    plain = ex.evaluate(linear(w, 0.0), test, generator=generator)
    assert names(plain) == {"uncertified"}


def test_what_a_probe_breaks_counts(masked, generator):
    w, test, result = masked
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


class Positive(nn.Module):
    """Outputs of no meaning in (0, size), as an untrained network may have them."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return self.size * torch.sigmoid(x.sin().sum(1) * 1e3 % 7.0 - 3.5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_untrained_networks_do_not_look_like_probabilities(outputs, generator):
    """Their outputs may all lie in [0, 1], and say nothing of the labels."""
    _, test = points(generator, wrong=0.0)
    votes = torch.rand(outputs, 8, generator=generator, dtype=torch.float64)
    neurons = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    data = test if outputs == 1 else two_classes(test)
    for size in (1e-7, 0.02):
        init = ex.models.Explicit(size * neurons, votes)
        net = ex.models.PReLUNet(
            6, 8, outputs=outputs, init=init, dtype=torch.float64, generator=generator
        )
        assert bool(((net(data.x) >= 0) & (net(data.x) <= 1)).all())
        assert "probabilities" not in names(ex.evaluate(net, data, generator=generator))
    if outputs == 1:
        tiny = ex.evaluate(Positive(1e-6), test, generator=generator)
        assert "probabilities" not in names(tiny)


class Shaken(nn.Module):
    """A linear function, and noise on it in any mode."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x):
        return x @ self.w + 0.01 * torch.rand(len(x), dtype=x.dtype)


def test_outputs_that_change_from_call_to_call_are_said(generator):
    w, test = points(generator, wrong=0.0)
    first = nn.Linear(6, 4, dtype=torch.float64)
    dropping = nn.Sequential(first, nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2).double())
    data = two_classes(test)
    state = torch.random.get_rng_state()
    for net, mode in ((dropping, "in training mode"), (Shaken(w), "in evaluation mode, too")):
        result = ex.evaluate(net, test if net is not dropping else data, generator=generator)
        (said,) = (each.sentence for each in result.warnings if each.name == "random-outputs")
        assert mode in said
        assert net.training  # it is left as it was
        if net is dropping:
            assert torch.equal(torch.random.get_rng_state(), state)
    told = ex.evaluate(dropping.eval(), data, generator=generator)
    assert "random-outputs" not in names(told)


def test_a_two_layer_relu_module_is_read_as_such_and_that_is_said(generator):
    """Else it would get a Lipschitz constant, and attacks that do not know its neurons."""
    _, test = points(generator, wrong=0.0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.2), nn.Linear(9, 2)).double()
    data = Dataset(test.x, module.eval()(test.x).argmax(1))
    result = ex.evaluate(module, data, generator=generator)
    known = ex.evaluate(ex.models.from_torch(module), data, generator=generator)
    assert torch.equal(result.lower, known.lower)
    assert "lipschitz" not in result.certificate
    assert names(result) == {"converted"} | names(known)
    assert result.settings["network"] == "Sequential, read as a PReLUNet"
    assert known.settings["network"] == "PReLUNet"


def test_a_network_that_says_the_same_everywhere_is_said(generator):
    w, test = points(generator, wrong=0.0)
    silent = nn.Sequential(linear(w, -1e6), nn.ReLU())
    told = names(ex.evaluate(silent, test, generator=generator))
    assert "constant" in told
    assert "probabilities" not in told


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
    loose = nn.Sequential(first, nn.LeakyReLU(0.0), last)  # the same, but not by its name
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
    assert "gradients vanish toward far neurons" in said.sentence


def test_a_cause_is_named_for_shallow_networks_only(masked):
    """Gradients that lead away miss, too, and no neuron is to blame."""
    _, _, result = masked
    (said,) = (w.sentence for w in result.warnings if w.name == "plain-steps-miss")
    assert said.startswith("plain gradient steps from the points themselves leave 100 % standing")
    assert said.endswith("where 0 % stand: PGD alone reports robustness that is not there")


CHAINS = {
    "linear": (nn.Linear(6, 2), True),
    "nested": (nn.Sequential(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Linear(4, 2)), True),
    "no linear layer": (nn.Sequential(nn.ReLU(), nn.Flatten()), False),
    "empty": (nn.Sequential(), False),
    "unknown layer": (nn.Sequential(nn.Linear(6, 2), nn.Softmax(1)), False),
    "norm": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2)), False),
    "module": (Bump(), False),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_network_is_a_chain_where_its_lipschitz_constant_is_known(name):
    net, wanted = CHAINS[name]
    assert can_certify(net) is wanted
    x = torch.ones(1, 6)
    if wanted:
        assert float(radius(net, x, net(x).argmax(1))) > 0
    else:
        with pytest.raises(ValueError, match="net must be a PReLUNet"):
            radius(net, x, torch.ones(1))


def test_an_error_within_a_certificate_is_not_taken_for_an_unknown_network(generator, monkeypatch):
    def fail(*arguments, **settings):
        raise ValueError("something else")

    monkeypatch.setattr(sys.modules["extremal.certify.certified_radius"], "_lipschitz_radii", fail)
    w, test = points(generator, count=4, wrong=0.0)
    with pytest.raises(ValueError, match="something else"):
        ex.evaluate(classes(w), two_classes(test), generator=generator)
