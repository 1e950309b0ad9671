"""Claims and panels that several records have: rows of claims, orders by p, curves by radius."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from extremal import theory
from extremal.experiments import Against, Claim, Line, Settings, VerticalLine

Published = float | Callable[[Settings], float] | Mapping[str, Any] | None
"""A number, one that depends on the settings, or the parameters of other trials."""
Row = tuple[str, str, Published, float]
"""The quantity, the name of our number, the published value and the tolerance."""


def claims(
    source: str, where: Mapping[str, Any], *rows: Row, against: Against, **rules: Any
) -> tuple[Claim, ...]:
    """A claim for each row, all of one source and of the same trials.

    - `source`: where the published values are from.
    - `where`: the parameters of the trials that are compared.
    - `against`: what these values are, as `Claim` has it.
    - `rules`: other fields of the claims, such as `rule`, `scales` or `interval`.
    """
    return tuple(Claim(*row, source, where, against=against, **rules) for row in rows)


def rises_with_p(
    quantity: str,
    value: str,
    source: str,
    *powers: float,
    against: Against,
    over: float | None = None,
) -> tuple[Claim, ...]:
    """The mean of a value at each of some p is not below that at p - 1, or at p = `over`."""
    pairs = [(p, p - 1 if over is None else over) for p in powers]
    return tuple(
        Claim(
            f"p = {p:g}: {quantity}, above p = {than:g}'s",
            value,
            {"p": than},
            0.0,
            source,
            {"p": p},
            "above",
            against=against,
        )
        for p, than in pairs
    )


def average_radius(settings: Settings) -> float:
    """1/sqrt(K), where the classifier of class averages breaks."""
    return theory.average_radius(settings["positive"], settings["negative"])


CRITICAL_RADII = (
    VerticalLine(average_radius, "1/√K"),
    VerticalLine(theory.OPTIMAL_RADIUS, "√2/2"),
)
"""Where F and F^(p) break on the mixture."""


def attacked_curves(title: str, by: str, where: Mapping[str, Any], **more: Any) -> Line:
    """Accuracy under the strongest attack against l2 radius, one curve for each value of `by`."""
    return Line(
        title,
        "radius",
        ("robust_accuracy",),
        "l2 radius",
        "accuracy under the strongest attack",
        by=by,
        where=where,
        vertical_lines=CRITICAL_RADII,
        **more,
    )


def learning_curves(rank_title: str, rank_label: str) -> tuple[Line, Line]:
    """Accuracies and the hidden values' stable rank by epoch, one curve for each p."""
    accuracies = {"test_accuracy": "test", "train_accuracy": "training"}
    return (
        Line(
            "Accuracy during training",
            "epoch",
            accuracies,
            "epoch",
            "accuracy",
            by="p",
            styles={"train_accuracy": "dotted"},
        ),
        Line(rank_title, "epoch", ("stable_rank",), "epoch", rank_label, by="p"),
    )
