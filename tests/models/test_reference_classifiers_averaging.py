"""Averaged and decoupled networks, fixed votes, and the readings of fine labels."""

import pytest
import torch

from extremal import attack, certify, measure
from extremal.data import Dataset, GaussianClusters, OrthogonalClusters
from extremal.models import (
    Blocks,
    Grouped,
    LogOdds,
    PReLUNet,
    averaged_classifier,
    decoupled_classifier,
    signed_sum,
)

SOURCE = OrthogonalClusters(60, 3, 2, generator=torch.Generator().manual_seed(1))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fine(**others):
    return PReLUNet(60, 10, 3.0, outputs=5, init=Blocks(0.3, 0.1), generator=generator(), **others)


def test_both_networks_read_the_centres():
    for net in (averaged_classifier(SOURCE), decoupled_classifier(SOURCE)):
        assert torch.equal(net(SOURCE.centers).sign().long(), SOURCE.labels)


def test_decoupled_features_are_more_robust_under_attack_and_certificate():
    data = SOURCE.sample(30, generator=generator(), dtype=torch.float64)
    one, two = (
        attack.minimal(net, data.x, data.y, generator=generator())
        for net in (averaged_classifier(SOURCE), decoupled_classifier(SOURCE))
    )
    held = certify.radius(decoupled_classifier(SOURCE), data.x, data.y, attacked=two.x_adv)
    assert float(one.radius.median()) < float(held.median()) <= float(two.radius.median())


def test_the_averaged_network_has_the_sums_as_neurons():
    net = averaged_classifier(SOURCE, biases=(0.1, -0.2))
    torch.testing.assert_close(net.neurons[0], SOURCE.centers[:3].sum(0))
    torch.testing.assert_close(net.hidden_bias, torch.tensor([6.0, -12.0], dtype=torch.float64))


@pytest.mark.parametrize("outputs", [1, 5])
def test_blocks_vote_for_one_side_each(outputs):
    net = PReLUNet(4, 10, outputs=outputs, init=Blocks(0.1, vote=0.5), generator=generator())
    if outputs == 1:
        assert net.votes.tolist() == [[0.5] * 5 + [-0.5] * 5]
    else:
        assert (net.votes != 0).sum(0).tolist() == [1] * 10
        assert net.votes.argmax(0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_blocks_of_unequal_size_are_refused():
    with pytest.raises(ValueError, match="width must be a multiple of 3"):
        PReLUNet(4, 10, outputs=3, init=Blocks(0.1), generator=generator())


@pytest.mark.parametrize("arguments", [(0.0,), (0.1, -1.0), (0.1, 0.0, 0.0), (float("nan"),)])
def test_bad_blocks_are_named(arguments):
    with pytest.raises(ValueError, match="must be"):
        Blocks(*arguments)


@pytest.mark.parametrize("biases", [{}, {"bias": True, "hidden_bias": True}])
def test_the_summed_reading_is_the_signed_sum_of_outputs(biases):
    net = fine(**biases)
    if biases:
        torch.nn.init.normal_(net.bias, generator=generator())
    x = SOURCE.sample(20, generator=generator()).x
    signs = SOURCE.labels
    torch.testing.assert_close(signed_sum(net, signs)(x), net(x) @ signs.float())


def test_log_odds_are_those_of_summed_probabilities():
    net = fine().double()
    x = 0.3 * SOURCE.sample(20, generator=generator(), dtype=torch.float64).x
    share = torch.softmax(net(x), 1)[:, SOURCE.labels > 0].sum(1)
    torch.testing.assert_close(LogOdds(net, SOURCE.labels)(x), torch.logit(share))


def test_the_readings_agree_on_the_centres_of_a_decoupled_network():
    net = PReLUNet(60, 5, outputs=5, init=Blocks(0.1), generator=generator()).double()
    with torch.no_grad():
        net.neurons.copy_(SOURCE.centers)
    grouped = Grouped(net, (SOURCE.labels > 0).long(), signed=True)
    readings = (grouped, signed_sum(net, SOURCE.labels), LogOdds(net, SOURCE.labels))
    for reading in readings:
        assert torch.equal(reading(SOURCE.centers).sign().long(), SOURCE.labels)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: signed_sum(fine(), torch.ones(5)), "signs must be a tensor of -1 and \\+1"),
        (lambda: signed_sum(fine(), torch.tensor([1, -1])), "signs must have 5 entries"),
        (lambda: LogOdds(fine(), torch.tensor([1, -1, 1])), "signs must have 5 entries"),
        (lambda: averaged_classifier(SOURCE, biases=(0.0, float("inf"))), "biases must"),
        (lambda: averaged_classifier(SOURCE, biases=0.1), "biases must"),
        (lambda: decoupled_classifier(SOURCE, threshold=1.2), "threshold must"),
        (
            lambda: decoupled_classifier(
                GaussianClusters(torch.eye(3), torch.tensor([0, 1, 2]), 0.1)
            ),
            "labels of the clusters must",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_closed_form_attacks_take_any_two_class_clusters():
    data = SOURCE.sample(20, generator=generator(), dtype=torch.float64)
    net = averaged_classifier(SOURCE)
    away = attack.average_direction(SOURCE)
    assert float(away.norm()) == pytest.approx(1.0)
    ball = attack.Ball("l2", 1.3 * (60 / 5) ** 0.5 + 2.0)
    found = attack.mixture_attack(net, data.x, data.y, SOURCE, data.group, ball)
    assert found.success.float().mean() > 0.9
    assert measure.accuracy(net, data) == 1.0
    with pytest.raises(ValueError, match="mixture must be GaussianClusters of two classes"):
        attack.average_direction(GaussianClusters(torch.eye(3), torch.tensor([0, 1, 2]), 0.1))


def test_clusters_without_such_a_direction_are_attacked_all_the_same():
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    source = GaussianClusters(corners, torch.tensor([1, 1, -1, -1]), 0.1)
    assert attack.average_direction(source).tolist() == [0.0, 0.0]
    data = source.sample(12, generator=generator())
    net = PReLUNet(2, 4, init=Blocks(1.0), generator=generator())
    attack.accuracy_curve(net, data, [0.5], generator=generator())
    wide = Dataset(torch.cat([data.x, data.x], 1), data.y, data.group, source=source)
    assert attack.known_clusters(wide) is None
    assert attack.known_clusters(data.fine()) is None
