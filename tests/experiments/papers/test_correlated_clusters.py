"""The study of clusters that are not the theory's, and axes that set several parameters."""

import pytest
import torch

from extremal.experiments import Experiment, Setting, get
from extremal.experiments.papers.open_questions.correlated_clusters import made
from extremal.experiments.papers.open_questions.correlated_clusters import trial as clusters

BASE = {"dim": 12, "positive": 3, "negative": 2, "spread": 0.3}


def source(kind, level):
    return made(BASE | {"kind": kind, "level": level}, torch.Generator().manual_seed(0))


def test_each_kind_changes_one_thing():
    orthonormal = source("cosine", 0.0)
    assert torch.allclose(orthonormal.centers, torch.eye(5, 12, dtype=torch.float64))
    close = source("cosine", 0.4).centers
    assert float((close[0] * close[4]).sum()) == pytest.approx(0.4)
    flat = source("rank", 3)
    assert torch.linalg.matrix_rank(flat.centers) == 3
    sizes = source("imbalance", 9.0).weights
    assert float(sizes[2] / sizes[0]) == pytest.approx(9.0)
    assert float(sizes[1] / sizes[0]) == pytest.approx(3.0)
    assert float(sizes[4] / sizes[3]) == pytest.approx(9.0)
    wide = source("spread", 4.0).noise
    assert float(wide[2] / wide[0]) == pytest.approx(4.0)
    assert float(wide[1]) == pytest.approx(0.3 / 12**0.5)
    for kind in ("cosine", "rank"):
        assert source(kind, 3 if kind == "rank" else 0.1).weights is None


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="kind must be one of"):
        source("shape", 1.0)


@pytest.mark.parametrize("kind", ["imbalance", "spread"])
def test_a_ratio_below_one_is_refused(kind):
    with pytest.raises(ValueError, match="level must be a finite number >= 1, got 0"):
        source(kind, 0.0)


def test_numbers_of_a_trial_belong_together():
    trial = get("open-questions/correlation").trials("smoke")[0]
    numbers = clusters(trial.params, torch.Generator().manual_seed(0)).numbers
    assert numbers["half_radius_share"] == pytest.approx(
        numbers["half_radius"] / numbers["separation"]
    )  # all centres of a simplex have one distance to the next
    assert numbers["worst_radius"] <= numbers["half_radius"]
    assert numbers["worst_radius_share"] <= numbers["half_radius_share"]
    assert numbers["worst_accuracy"] <= numbers["clean_accuracy"]
    assert numbers["robust_accuracy"][0] == pytest.approx(numbers["clean_accuracy"])


def test_shares_are_of_each_cluster_s_own_distance():
    trials = get("open-questions/correlation").trials("smoke")
    params = next(trial.params for trial in trials if trial.params["kind"] == "rank")
    numbers = clusters(params, torch.Generator().manual_seed(0)).numbers
    assert 0.0 < numbers["half_radius_share"] < numbers["half_radius"] / numbers["separation"]


def test_centring_takes_the_common_vector_away():
    """Far from the origin nothing is learned that is robust, and centring brings it back."""
    trial = get("open-questions/correlation").trials("quick")[0]
    given = dict(trial.params) | {"kind": "cosine", "level": 0.6, "p": 3.0, "dim": 20}
    given |= {"positive": 2, "negative": 2, "width": 40, "train_points": 200, "flow_time": 200.0}
    given |= {"test_points": 40, "certified_points": 2}
    as_is, centred = (
        clusters(given | {"centred": flag}, torch.Generator().manual_seed(0)).numbers
        for flag in (False, True)
    )
    assert as_is["separation"] == centred["separation"]
    assert as_is["half_radius_share"] < 0.8 < centred["half_radius_share"]


def test_an_axis_of_mappings_sets_what_they_name():
    experiment = Experiment(
        name="toy",
        title="",
        source="",
        study="tests.experiments.helpers_toy:study",
        settings={
            "width": Setting(3, "O"),
            "case": Setting([{"kind": "a"}, {"kind": "b", "width": 5}], "O"),
            "p": Setting([1, 2], "O"),
        },
        axes=("case", "p"),
        panels=(),
    )
    assert [dict(trial.params) for trial in experiment.trials("paper")] == [
        {"width": 3, "kind": "a", "p": 1},
        {"width": 3, "kind": "a", "p": 2},
        {"width": 5, "kind": "b", "p": 1},
        {"width": 5, "kind": "b", "p": 2},
    ]
