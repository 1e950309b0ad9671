"""The talk's four-row table: adversarial training fits its points and not fresh ones."""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting

_TABLE = "the talk's table (Raghunathan et al. 2019), as a pattern on another network; limits ours"
_RICE = "Rice et al. 2020, in the talk: the robust test error rises again; the limit is ours"
_CURVES = ("train_clean", "test_clean", "train_robust", "test_robust")


def _panel(title: str, training: str) -> Line:
    return Line(
        title,
        "epoch",
        _CURVES,
        "epoch",
        "accuracy",
        where={"training": training},
        labels={name: name.replace("_", ", ") for name in _CURVES},
        styles={"train_clean": "dashed", "train_robust": "dashed"},
    )


def _claim(text: str, training: str, value: str, limit: float, rule: Any, source: str) -> Claim:
    where = {"training": training}
    scales = ("paper",)
    return Claim(f"{training}: {text}", value, limit, 0.0, source, where, rule, scales)  # type: ignore[arg-type]


experiment = Experiment(
    name="li-2022/overfitting",
    title="Robust accuracy on training points and on fresh ones",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, the talk's table and learning curves",
    study="extremal.experiments.studies.overfitting:overfitting",
    settings={
        "problem": Setting("cifar10", "S"),
        "training": Setting(["clean", "adversarial"], "S"),
        "radius": Setting(0.031, "S", "l-inf, the talk's for CIFAR-10"),
        "train_points": Setting(500, "O", "a random subset, so that it trains here"),
        "validation_points": Setting(200, "O", "for early stopping, from the training images"),
        "test_points": Setting(1000, "O", "a random subset of the test images"),
        "watched_points": Setting(150, "O", "of each set, that are attacked"),
        "width": Setting(256, "O", "one hidden layer of ReLUs; the talk: deep networks"),
        "lr": Setting(2e-3, "O", "Adam"),
        "batch": Setting(50, "O"),
        "epochs": Setting(120, "O"),
        "inner_steps": Setting(5, "O", "of the attack trained with"),
        "recorded_every": Setting(10, "O", "epochs"),
        "seeds": Setting(3, "O"),
    },
    quick={
        "problem": "digits",
        "radius": 0.15,
        "train_points": 100,
        "watched_points": 100,
        "width": 100,
        "batch": 10,
        "epochs": 60,
        "recorded_every": 5,
        "seeds": 1,
    },
    smoke={
        "problem": "digits",
        "radius": 0.1,
        "train_points": 30,
        "validation_points": 10,
        "test_points": 20,
        "watched_points": 5,
        "width": 8,
        "batch": 10,
        "epochs": 4,
        "recorded_every": 2,
        "seeds": 1,
    },
    axes=("training",),
    columns=2,
    panels=(
        _panel("Clean training", "clean"),
        _panel("Adversarial training", "adversarial"),
    ),
    claims=(
        _claim("robust test, 3.5 % there", "clean", "robust_test", 0.1, "below", _TABLE),
        _claim("clean train", "clean", "clean_train", 0.99, "above", _TABLE),
        _claim("robust train", "adversarial", "robust_train", 0.99, "above", _TABLE),
        _claim("clean train", "adversarial", "clean_train", 0.99, "above", _TABLE),
        _claim("robust train - test, .542 there", "adversarial", "gap", 0.5, "above", _TABLE),
        _claim("won by early stopping", "adversarial", "recovered", 0.0, "above", _RICE),
        Claim(
            "adversarial: robust test, above that of clean training",
            "robust_test",
            {"training": "clean"},
            0.0,
            _TABLE,
            {"training": "adversarial"},
            "above",
        ),
        Claim(
            "adversarial: clean test, below that of clean training",
            "clean_test",
            {"training": "clean"},
            0.0,
            _TABLE,
            {"training": "adversarial"},
            "below",
            ("paper",),
        ),
    ),
    notes=(
        "The talk's table on CIFAR-10: clean training 3.5 % robust test, 95.2 % clean test, 100 % "
        "clean train; adversarial training 45.8 % robust test, 100 % robust train, 87.3 % clean "
        "test, 100 % clean train. Those are deep networks on all 50,000 images: here a small one "
        "on a stated subset, so that the pattern is compared and not the values. At quick and "
        "smoke scale on digits."
    ),
)
