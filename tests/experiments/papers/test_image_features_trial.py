"""The study of features of images, on digits: its parts agree with each other."""

import pytest
import torch

from extremal.experiments import get
from extremal.experiments.papers.li_li_2025 import image_features_trial as study

BASE = dict(get("li-li-2025/table-2").trials("smoke")[0].params) | {
    "epochs": 6,
    "recorded_every": 2,
    "train_each": 20,
}


@pytest.fixture(scope="module")
def outcome():
    return study.trial(BASE, torch.Generator().manual_seed(0))


def test_the_three_experiments_share_their_trials():
    for scale in ("smoke", "quick", "paper"):
        keys = {
            tuple(trial.key for trial in get(f"li-li-2025/{name}").trials(scale))
            for name in ("features", "table-2", "real-dynamics")
        }
        assert len(keys) == 1


def test_gains_are_differences_of_the_table(outcome):
    numbers = outcome.numbers
    for kind, best, rest in (("standard", "NRF", "RF"), ("adversarial", "RF", "NRF")):
        gains = [
            numbers[f"{kind} {best} {pair}"] - numbers[f"{kind} {rest} {pair}"]
            for pair in numbers["pair"]
        ]
        found = [numbers[f"{kind} gain {pair}"] for pair in numbers["pair"]]
        assert found == pytest.approx(gains, nan_ok=True)
        assert numbers[f"{kind} gain"] == pytest.approx(sum(gains) / 4, nan_ok=True)
        column = [numbers[f"{kind} {best} {pair}"] for pair in ("3→8", "8→3", "1→7", "7→1")]
        assert numbers[f"{kind} {best}"] == pytest.approx(column, nan_ok=True)


def test_curves_and_pictures_are_of_the_sizes_asked_for(outcome):
    numbers = outcome.numbers
    assert numbers["epoch"] == [0, 2, 4, 6]
    assert all(
        len(numbers[f"{kind}_{name}"]) == 4
        for kind in study.TRAINING_KINDS
        for name in ("clean", "robust", "robust_features", "non_robust_features")
    )
    assert set(outcome.arrays) == {"original", "robust_features", "non_robust_features"}
    assert {tuple(array.shape) for array in outcome.arrays.values()} == {(8, 8, 8, 1)}
    assert numbers["inversion_step"][-1] == BASE["inversion_steps"]


def test_images_are_means_of_squares_with_labels_in_the_order_of_the_classes():
    learn, test, shape = study._images(BASE | {"pooled": 2}, torch.Generator().manual_seed(0))
    assert shape == (1, 4, 4)
    assert learn.dim == test.dim == 16
    assert learn.y.bincount().tolist() == [20] * 4
    whole, _ = study.data.load("digits")
    pooled = torch.nn.functional.avg_pool2d(whole.x.reshape(-1, 1, 8, 8), 2).flatten(1)
    place = int((pooled - learn.x[25]).abs().sum(1).argmin())
    assert torch.equal(pooled[place], learn.x[25])
    assert int(whole.y[place]) == 3


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match="problem must be one of"):
        study.trial(BASE | {"problem": "svhn"}, torch.Generator())


def test_an_attack_that_never_succeeds_agrees_with_no_row():
    """Every order is strict, and no published share lies within its tolerance of zero."""
    for claim in get("li-li-2025/table-2").claims:
        if claim.rule == "near":
            assert claim.tolerance < claim.published
        else:
            assert claim.rule in {"over", "reported"}


def test_numbers_of_the_findings_are_in_rows(outcome):
    for name, wanted in (
        ("table-2", {"standard clean", "standard attacked", "adversarial clean"}),
        ("features", {"robust_features likeness", "non_robust_features likeness"}),
    ):
        reported = {c.value for c in get(f"li-li-2025/{name}").claims if c.rule == "reported"}
        assert wanted <= reported <= set(outcome.numbers)
