"""Normalised margins and KKT residuals: closed forms, exact KKT points, and dense brute force."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from extremal import measure, train
from extremal.data import Dataset, OrthonormalMixture
from extremal.measure.max_margin_kkt import nearest_in_cone
from extremal.models import (
    Balanced,
    Explicit,
    Gaussian,
    Grouped,
    PReLUNet,
    Preparation,
    average_classifier,
    margin,
    subclass_classifier,
)

POWERS = (1.0, 2.0, 3.0, 3.5)
TRAINED = (("neurons", "votes"), ("neurons",), ("votes",))
F64 = torch.float64


def network(neurons: Tensor, votes: Tensor, p: float, **settings) -> PReLUNet:
    return PReLUNet(
        neurons.shape[1],
        len(neurons),
        p,
        len(votes),
        init=Explicit(neurons.double(), votes.double()),
        dtype=F64,
        generator=torch.Generator(),
        **settings,
    )


def scaled(net: PReLUNet, factor: float) -> PReLUNet:
    twin = deepcopy(net)
    with torch.no_grad():
        for part in twin.parameters():
            if part.requires_grad:
                part.mul_(factor)
    return twin


def separated(
    outputs: int, p: float, trained: tuple[str, ...] = TRAINED[0]
) -> tuple[PReLUNet, Dataset]:
    """A random network, and those of random points with the labels it gives them by far."""
    g = torch.Generator().manual_seed(3)
    prep = Preparation(scale=1.3, center=torch.full((4,), 0.2), normalize=0.25)
    net = PReLUNet(4, 6, p, outputs, preparation=prep, init=Gaussian(0.8), dtype=F64, generator=g)
    net.freeze(*{"neurons", "votes"} - set(trained))
    x = torch.randn(60, 4, generator=g, dtype=F64)
    with torch.no_grad():
        out = net(x)
    y = torch.where(out > 0, 1, -1) if outputs == 1 else out.argmax(1)
    good = margin(net, x, y).detach() > 0.02
    assert int(good.sum()) >= 20
    return net, Dataset(x[good], y[good])


def dense(net: PReLUNet, data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """theta, the constraints' values and their gradients as columns, by autograd one by one."""
    parts = [part for part in net.parameters() if part.requires_grad]
    values, columns = [], []
    for x, y in zip(data.x, data.y.tolist(), strict=True):
        out = net(x.unsqueeze(0)).squeeze(0)
        rivals = [t for t in range(net.outputs) if t != y]
        each = [y * out] if net.outputs == 1 else [out[y] - out[t] for t in rivals]
        for value in each:
            slopes = torch.autograd.grad(value, parts, retain_graph=True)
            values.append(value.item())
            columns.append(torch.cat([slope.flatten() for slope in slopes]).numpy())
    theta = torch.cat([part.detach().flatten() for part in parts]).numpy()
    return theta, np.array(values), np.stack(columns, axis=1)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("a", "b"), [(2.0, 0.5), (1.0, 1.0)])
def test_one_neuron_along_one_point(p, a, b):
    """f = a b s^p and cos(theta, grad f) = 2ab / (a^2 + b^2), whatever p and s are."""
    axis, s = torch.tensor([[0.6, 0.8]], dtype=F64), 0.7
    net = network(a * axis, torch.tensor([[-b]]), p)
    data = Dataset(s * axis, torch.tensor([-1]))
    square, cosine = a**2 + b**2, 2 * a * b / (a**2 + b**2)
    assert measure.normalized_margin(net, data) == pytest.approx(a * b * s**p / square)
    found = measure.kkt_residual(net, data)
    assert (found.degree, found.slackness, found.refined_slackness) == (2, 0.0, 0.0)
    assert found.margin == pytest.approx(a * b * s**p / square)
    assert found.stationarity == pytest.approx(math.sqrt(2 - 2 * cosine), abs=1e-12)
    assert found.refined_stationarity == pytest.approx(math.sqrt(1 - cosine**2), abs=1e-12)

    net.freeze("votes")
    assert measure.normalized_margin(net, data) == pytest.approx(b * s**p)
    found = measure.kkt_residual(net, data)
    assert found.degree == 1
    assert found.stationarity == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("p", POWERS)
def test_the_subclass_classifier_is_a_kkt_point(p):
    """The gradient of margin k is (w_k, v_k) alone, and their sum is theta; ||theta||^2 = 2K."""
    mixture = OrthonormalMixture(7, 3, 2, 0.1)  # axes: inner products are 0, at relu's kink
    found = measure.kkt_residual(subclass_classifier(mixture, p), mixture.simplified())
    assert found.margin == pytest.approx(1 / 10)
    for part in (found.stationarity, found.refined_stationarity):
        assert part == pytest.approx(0.0, abs=1e-12)
    assert found.slackness == pytest.approx(0.0, abs=1e-12)


def test_the_average_classifier_is_one_with_unequal_multipliers():
    """For p = 1 multipliers are 1/s1 and 1/s2 with s = sqrt(K), and ||theta||^2 = 2 (s1 + s2).

    The loss's own are all equal, h = (s1 w_plus, s1 v_plus, s2 w_minus, s2 v_minus), so that
    cos(theta, h) = (K1 + K2) / sqrt((s1 + s2) (s1^3 + s2^3)).
    """
    mixture = OrthonormalMixture(8, 4, 1, 0.1)
    found = measure.kkt_residual(average_classifier(mixture), mixture.simplified())
    assert found.margin == pytest.approx(1 / (2 * (2 + 1)))
    assert found.refined_stationarity == pytest.approx(0.0, abs=1e-7)
    cosine = 5 / math.sqrt(3 * (8 + 1))
    assert found.stationarity == pytest.approx(math.sqrt(2 - 2 * cosine))


def test_tied_rivals_share_a_point():
    """w_k = s mu_k with s = ||V_k|| and V_k = 3 e_k - (1, 1, 1): every rival of a point ties."""
    axes = torch.eye(3, 5, dtype=F64)
    data = Dataset(axes, torch.arange(3))
    found = measure.kkt_residual(network(6**0.5 * axes, 3 * torch.eye(3) - 1, 3.0), data)
    assert found.margin == pytest.approx(3 * 6**0.5 / 36)
    assert found.stationarity == pytest.approx(0.0, abs=1e-12)
    assert found.refined_stationarity == pytest.approx(0.0, abs=1e-12)
    # Without the negative votes cos(theta, h)^2 = 144 / 180.
    lacking = measure.kkt_residual(network(6**0.5 * axes, 3 * torch.eye(3), 3.0), data)
    assert lacking.refined_stationarity == pytest.approx((1 - 144 / 180) ** 0.5)


def test_the_residual_grows_with_the_distance_from_a_kkt_point():
    mixture = OrthonormalMixture(5, 2, 2, 0.1)
    best = subclass_classifier(mixture, 3.0)
    g = torch.Generator().manual_seed(0)
    noise = [torch.randn(part.shape, generator=g, dtype=F64) for part in best.parameters()]
    rows = []
    for size in (0.0, 0.01, 0.05, 0.2):
        net = deepcopy(best)
        with torch.no_grad():
            for part, way in zip(net.parameters(), noise, strict=True):
                part.add_(size * way)
        found = measure.kkt_residual(net, mixture.simplified())
        rows.append((found.stationarity, found.refined_stationarity))
    for column in zip(*rows, strict=True):
        assert column[0] < 1e-12
        assert all(a < b for a, b in itertools.pairwise(column))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("trained", TRAINED, ids="+".join)
@pytest.mark.parametrize("p", POWERS)
def test_against_dense_gradients_and_scipy(outputs, trained, p):
    net, data = separated(outputs, p, trained)
    theta, values, columns = dense(net, data)
    length = np.linalg.norm(theta)
    found = measure.kkt_residual(net, data, support=1000)
    assert found.degree == len(trained)
    assert found.margin == pytest.approx(values.min() / length**found.degree)
    assert found.margin == measure.normalized_margin(net, data)
    h = columns @ np.exp(-values)
    m = length * np.exp(-values) / np.linalg.norm(h)
    assert found.stationarity == pytest.approx(np.linalg.norm(theta - columns @ m) / length)
    assert found.slackness == pytest.approx(m @ (values - values.min()) / length**2)
    assert found.refined_stationarity == pytest.approx(nnls(columns, theta)[1] / length, abs=2e-7)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_refined_slackness_where_multipliers_are_unique(outputs):
    net, data = separated(outputs, 3.0)
    data = data.take(slice(4))
    theta, values, columns = dense(net, data)
    assert np.linalg.matrix_rank(columns) == len(values)
    m, _ = nnls(columns, theta)
    slack = m @ (values - values.min()) / (theta @ theta)
    assert slack > 0.01
    assert measure.kkt_residual(net, data).refined_slackness == pytest.approx(slack, rel=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_smaller_support_fits_no_better_and_never_worse_than_the_loss(outputs):
    net, data = separated(outputs, 3.0)
    theta, values, columns = dense(net, data)
    order = np.argsort(values)
    last = math.inf
    for support in (1, 3, 10, len(values) - 1, len(values)):
        found = measure.kkt_residual(net, data, support=support)
        h = columns @ np.exp(-values)
        held = columns[:, order[:support]]
        if support < len(values):
            held = np.column_stack([held, h])
        miss = nnls(held, theta)[1] / np.linalg.norm(theta)
        assert found.refined_stationarity == pytest.approx(miss, abs=2e-7)
        assert found.refined_stationarity <= min(last, found.stationarity) + 1e-7
        last = found.refined_stationarity


def test_the_size_of_theta_changes_only_what_the_loss_weighs():
    net, data = separated(1, 3.0)
    first, second = (measure.kkt_residual(scaled(net, c), data) for c in (1.0, 7.0))
    assert second.margin == pytest.approx(first.margin)
    assert second.refined_stationarity == pytest.approx(first.refined_stationarity, abs=1e-7)
    assert second.refined_slackness == pytest.approx(first.refined_slackness, abs=1e-6)
    assert second.slackness < 0.5 * first.slackness  # the loss looks at the smallest margins only
    single = deepcopy(net).freeze("votes")
    assert measure.normalized_margin(scaled(single, 7.0), data) == pytest.approx(
        measure.normalized_margin(single, data)
    )


@pytest.mark.parametrize("trained", TRAINED, ids="+".join)
@pytest.mark.parametrize("outputs", [1, 3])
def test_weights_whose_squares_underflow_or_overflow(outputs, trained):
    """Powers of two round nothing: all but the loss's weighing is the same, to the last digit."""
    net, data = separated(outputs, 3.0, trained)
    flat = measure.kkt_residual(scaled(net, 2.0**-30), data)  # exp(-g) is 1 but for 1e-18
    for size in (2.0**-565, 2.0**505):
        other = scaled(net, size)
        margin_ = measure.normalized_margin(other, data)
        assert margin_ == measure.normalized_margin(net, data) != 0.0
        found = measure.kkt_residual(other, data)
        assert found.margin == margin_
        assert found.refined_stationarity == pytest.approx(flat.refined_stationarity, abs=1e-6)
        if size < 1:
            assert found.stationarity == pytest.approx(flat.stationarity, rel=1e-7)
            assert found.slackness == pytest.approx(flat.slackness, rel=1e-7)
        else:  # only the smallest margin is left in the loss
            assert found.slackness == 0.0
            assert math.isfinite(found.stationarity)


def test_a_frozen_part_whose_squares_underflow():
    net, data = separated(1, 3.0, ("neurons",))
    small = deepcopy(net)
    with torch.no_grad():
        small.votes.mul_(2.0**-565)
    margin_ = measure.normalized_margin(small, data)
    assert margin_ == measure.normalized_margin(net, data) * 2.0**-565 > 0.0
    found = measure.kkt_residual(small, data)
    refined = measure.kkt_residual(net, data).refined_stationarity
    assert found.refined_stationarity == pytest.approx(refined, abs=1e-6)


def test_single_precision_and_batches_change_nothing():
    net, data = separated(3, 2.0)
    many = Dataset(data.x.repeat(150, 1).float(), data.y.repeat(150))
    assert len(many) > 2048
    found, one = measure.kkt_residual(net.float(), many), measure.kkt_residual(net, data)
    assert found.margin == pytest.approx(one.margin, rel=1e-6)
    assert found.stationarity == pytest.approx(one.stationarity, rel=1e-6)
    assert net.neurons.dtype == torch.float32


def test_an_error_leaves_no_feasible_point():
    net, data = separated(1, 2.0)
    found = measure.kkt_residual(net, Dataset(data.x, -data.y))
    assert found.margin < 0
    assert found.margin == measure.normalized_margin(net, Dataset(data.x, -data.y))
    assert found.stationarity == found.slackness == math.inf
    assert found.refined_stationarity == found.refined_slackness == math.inf


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_late_in_the_flow_the_margin_rises_and_the_residual_falls(p):
    g = torch.Generator().manual_seed(5)
    data = OrthonormalMixture(4, 2, 1, 0.2).sample(12, generator=g, dtype=F64)
    net = PReLUNet(4, 8, p, init=Balanced(0.05), dtype=F64, generator=g)
    times = (30.0, 100.0, 300.0, 1000.0)
    watch = {
        "margin": lambda net: measure.normalized_margin(net, data),
        "eps": lambda net: measure.kkt_residual(net, data).stationarity,
    }
    record = train.Record(at=times, watch=watch)
    flow = train.gradient_flow(net, data, until=1000.0, tolerance=1e-4, record=record)
    assert float(flow.values["margin"][0]) < float(flow.values["margin"][1])
    margins, eps = flow.values["margin"][1:], flow.values["eps"][1:]
    assert bool((margins.diff() > 0).all())
    assert bool((eps.diff() < 0).all())
    assert float(eps[-1]) < 0.5 * float(eps[0])


@pytest.mark.parametrize(
    ("size", "length", "common"), [(4, 9, 0.0), (40, 15, 0.0), (60, 200, 3.0), (30, 5, 0.5)]
)
def test_the_nearest_point_of_a_cone_is_scipys(size, length, common):
    random = np.random.default_rng(size)
    columns = random.standard_normal((length, size)) + common * random.standard_normal((length, 1))
    columns /= np.linalg.norm(columns, axis=0)
    target = columns @ random.uniform(size=size) + random.standard_normal(length)
    target /= np.linalg.norm(target)
    gram, inner = columns.T @ columns, columns.T @ target
    c = nearest_in_cone(torch.from_numpy(gram), torch.from_numpy(inner)).numpy()
    assert (c >= 0).all()
    miss = np.linalg.norm(target - columns @ c)
    assert miss == pytest.approx(nnls(columns, target)[1], abs=1e-6)
    assert (columns.T @ (target - columns @ c)).max() <= 2e-7


def test_copies_of_a_vector_and_a_target_outside_do_no_harm():
    column = torch.full((4, 4), 1.0, dtype=F64)
    c = nearest_in_cone(column, torch.full((4,), 0.5, dtype=F64))
    assert float(c.sum()) == pytest.approx(0.5)
    assert not bool(nearest_in_cone(column, torch.full((4,), -0.5, dtype=F64)).any())


def test_a_cone_that_takes_too_long_is_an_error(monkeypatch):
    """One iteration of the real `nnls` is not enough for four vectors that all take part."""
    monkeypatch.setattr("scipy.optimize.nnls", lambda a, b, **_: nnls(a, b, maxiter=1))
    told = r"^no nearest point in the cone of 4 vectors within 40 iterations: nnls ended with "
    with pytest.raises(RuntimeError, match=told):
        nearest_in_cone(torch.eye(4, dtype=F64), torch.full((4,), 0.5, dtype=F64))


def ones(**kind: bool) -> PReLUNet:
    return network(torch.ones(2, 3), torch.ones(1, 2), 2.0, **kind)


@pytest.mark.parametrize("function", [measure.normalized_margin, measure.kkt_residual])
@pytest.mark.parametrize(
    ("net", "message"),
    [
        (ones(bias=True), r"net must have no biases.*got \['bias'\]"),
        (ones(hidden_bias=True), r"net must have no biases.*got \['hidden_bias'\]"),
        (ones().freeze("neurons", "votes"), "net must have neurons or votes that are not"),
        (network(torch.zeros(2, 3), torch.zeros(1, 2), 2.0), "net must have a trained weight"),
        (torch.nn.Linear(3, 1), "net must be a PReLUNet .*got Linear"),
        (
            Grouped(network(torch.ones(2, 3), torch.ones(3, 2), 2.0), torch.tensor([0, 1, 1])),
            r"net must be a PReLUNet \(the margin of a Grouped one .*got Grouped",
        ),
    ],
)
def test_what_is_not_homogeneous_is_refused(function, net, message):
    data = Dataset(torch.ones(2, 3, dtype=F64), torch.tensor([1, -1]))
    with pytest.raises(ValueError, match=message):
        function(net, data)


def test_other_mistakes_are_named():
    net, data = separated(3, 2.0)
    with pytest.raises(ValueError, match="support must be an integer >= 1, got 0"):
        measure.kkt_residual(net, data, support=0)
    with pytest.raises(ValueError, match="data must be a Dataset"):
        measure.kkt_residual(net, (data.x, data.y))
    with pytest.raises(ValueError, match=r"data\.y must lie in 0\.\.2 for 3 outputs"):
        measure.kkt_residual(net, Dataset(data.x, data.y + 3))
