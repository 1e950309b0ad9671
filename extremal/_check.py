"""Checks of what a caller passes in: one form of error, raised before any work is done.

Every message has the parameter's name, the rule and what was received:
``spread must be a finite number >= 0, got -0.1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path

import torch
from torch import Tensor, nn

_DIGITS_SHOWN = 80
_ROWS = 4096  # of a tensor that are looked at at a time


def require(condition: bool, name: str, rule: str, received: object) -> None:
    """Raise a ValueError that names the parameter, the rule and what came, unless it holds.

    Long values are cut, but for paths: the end of a path is what tells which file it is.
    """
    if not condition:
        shown = str(received) if isinstance(received, str | Path) else repr(received)
        if len(shown) > _DIGITS_SHOWN and not isinstance(received, Path):
            shown = shown[: _DIGITS_SHOWN - 3] + "..."
        raise ValueError(f"{name} must {rule}, got {shown}")


def number(
    name: str,
    value: object,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> float:
    """Return `value` as a finite float within the stated bounds."""
    rule = "be a finite number"
    if minimum is not None:
        rule += f" >= {minimum:g}"
    if above is not None:
        rule += f" > {above:g}"
    if maximum is not None:
        rule += f"{' and' if 'number ' in rule else ''} <= {maximum:g}"
    good = isinstance(value, Real) and not isinstance(value, bool)
    require(good, name, rule, _quoted(value))
    result = float(value)  # type: ignore[arg-type]
    inside = (
        math.isfinite(result)
        and (minimum is None or result >= minimum)
        and (above is None or result > above)
        and (maximum is None or result <= maximum)
    )
    require(inside, name, rule, value)
    return result


def integer(name: str, value: object, *, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`."""
    rule = f"be an integer >= {minimum}"
    flag = isinstance(value, bool)
    require(not flag and isinstance(value, Integral), name, rule, _quoted(value))
    result = int(value)  # type: ignore[call-overload]
    require(result >= minimum, name, rule, value)
    return result


def choice(name: str, value: object, options: Iterable[object]) -> None:
    """Require that `value` is one of `options`."""
    known = list(options)
    require(value in known, name, f"be one of {', '.join(map(repr, known))}", _quoted(value))


def instance(name: str, value: object, kind: type, rule: str) -> None:
    """Require that `value` is of a kind, which `rule` says in words; its type is what is shown."""
    require(isinstance(value, kind), name, rule, type(value).__name__)


def module(name: str, value: object) -> nn.Module:
    """Return `value` if it is a torch.nn.Module."""
    instance(name, value, nn.Module, "be a torch.nn.Module")
    return value  # type: ignore[return-value]


def generator(name: str, value: object) -> torch.Generator:
    """Return `value` if it is a torch.Generator."""
    require(isinstance(value, torch.Generator), name, "be a torch.Generator", value)
    return value  # type: ignore[return-value]


def floating(name: str, value: object) -> torch.dtype:
    """Return `value` if it is a floating-point torch.dtype."""
    good = isinstance(value, torch.dtype) and value.is_floating_point
    require(good, name, "be a floating-point torch.dtype", value)
    return value  # type: ignore[return-value]


def finite(name: str, value: Tensor) -> None:
    """Require that a tensor has neither NaN nor infinite entries; looked at in parts."""
    parts = value.split(_ROWS) if value.ndim else (value,)
    bad = sum(int((~torch.isfinite(part)).sum()) for part in parts)
    require(bad == 0, name, "be finite", f"{bad} NaN or infinite entries")


def matrix(name: str, value: object, *, columns: int | None = None) -> Tensor:
    """Return `value` if it is a non-empty, finite, floating-point (n, columns) tensor."""
    width = "columns" if columns is None else columns
    rule = f"be a floating-point tensor of shape (n, {width}) with n >= 1"
    require(isinstance(value, Tensor), name, rule, type(value).__name__)
    assert isinstance(value, Tensor)
    seen = f"shape {tuple(value.shape)} of {value.dtype}"
    shaped = value.ndim == 2 and value.shape[0] >= 1 and value.shape[1] >= 1
    require(shaped and value.is_floating_point(), name, rule, seen)
    require(columns is None or value.shape[1] == columns, name, rule, seen)
    finite(name, value)
    return value


def labels(name: str, value: object, *, count: int, outputs: int | None = None) -> Tensor:
    """Return labels as int64: -1 / +1 for one output, 0..outputs-1 for several.

    With `outputs=None` either kind is taken.
    """
    require(isinstance(value, Tensor), name, "be a tensor of labels", type(value).__name__)
    assert isinstance(value, Tensor)
    rule = f"have shape ({count},), one label a point"
    require(tuple(value.shape) == (count,), name, rule, f"shape {tuple(value.shape)}")
    require(not value.is_complex(), name, "be whole numbers", str(value.dtype))
    if value.is_floating_point():
        finite(name, value)
        require(bool((value == value.round()).all()), name, "be whole numbers", "fractions")
    result = value.to(torch.int64)
    seen = torch.unique(result).tolist()
    if outputs == 1:
        require(set(seen) <= {-1, 1}, name, "be -1 or +1 for a one-output network", seen)
    elif outputs is not None:
        inside = all(0 <= label < outputs for label in seen)
        require(inside, name, f"lie in 0..{outputs - 1} for {outputs} outputs", seen)
    else:
        signed = set(seen) <= {-1, 1}
        require(signed or all(label >= 0 for label in seen), name, "be -1 / +1 or 0..C-1", seen)
    return result


def _quoted(value: object) -> object:
    """A string with its quotes, so that '3' is not taken for 3; `require` shows strings bare."""
    return repr(value) if isinstance(value, str) else value
