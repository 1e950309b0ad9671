"""Checks of what a caller passes in: one form of error, raised before any work is done.

Every message has the parameter's name, the rule and what was received:
``spread must be a finite number >= 0, got -0.1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

# A received value is shown with at most this many characters.
_CHARACTERS_SHOWN = 80
# Large tensors are looked at in blocks of this many rows, so that no copy of them is made.
_ROWS_AT_A_TIME = 4096
# How far from 1 the norm of a row may be that should be 1.
_UNIT_NORM_TOLERANCE = 1e-6

Kind = TypeVar("Kind")


def require(condition: bool, name: str, rule: str, received: object) -> None:
    """Raise a ValueError that names the parameter, the rule and what came, unless it holds.

    Long values are cut, but for paths: the end of a path is what tells which file it is.
    """
    if not condition:
        shown = str(received) if isinstance(received, str | Path) else repr(received)
        if len(shown) > _CHARACTERS_SHOWN and not isinstance(received, Path):
            shown = shown[: _CHARACTERS_SHOWN - 3] + "..."
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


def instance(name: str, value: object, kind: type[Kind], rule: str) -> Kind:
    """Return `value` if it is of a kind, which `rule` says in words; its type is what is shown."""
    require(isinstance(value, kind), name, rule, type(value).__name__)
    return value  # type: ignore[return-value]


def module(name: str, value: object) -> nn.Module:
    """Return `value` if it is a torch.nn.Module."""
    return instance(name, value, nn.Module, "be a torch.nn.Module")


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
    large = value.ndim > 0 and len(value) > _ROWS_AT_A_TIME
    parts = value.split(_ROWS_AT_A_TIME) if large else (value,)
    if all(bool(torch.isfinite(part).all()) for part in parts):
        return
    bad = sum(int((~torch.isfinite(part)).sum()) for part in parts)
    require(False, name, "be finite", f"{bad} NaN or infinite entries")


def tensor(
    name: str,
    value: object,
    shape: Sequence[int | str],
    *,
    whole: bool = False,
    rule: str | None = None,
) -> Tensor:
    """Return `value` if it is a finite, floating-point tensor of a shape.

    A size that is a word, as in ("n", 3), may be any from 1 on. With `whole` it is a tensor of
    integers instead. `rule` says more than that in words, where the caller checks more.
    """
    sizes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    kind = "an integer" if whole else "a floating-point"
    least = " with n >= 1" if "n" in shape else ""
    rule = rule or f"be {kind} tensor of shape ({sizes}){least}"
    found = instance(name, value, Tensor, rule)
    fits = found.ndim == len(shape) and all(
        size >= 1 if isinstance(wanted, str) else size == wanted
        for size, wanted in zip(found.shape, shape, strict=True)
    )
    integral = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    fits = fits and (integral if whole else found.is_floating_point())
    require(fits, name, rule, f"shape {tuple(found.shape)} of {found.dtype}")
    if not whole:
        finite(name, found)
    return found


def matrix(name: str, value: object, *, columns: int | None = None) -> Tensor:
    """Return `value` if it is a non-empty, finite, floating-point (n, columns) tensor."""
    return tensor(name, value, ("n", "columns" if columns is None else columns))


def signs(name: str, value: object, *, count: int) -> Tensor:
    """Return `value` if it is a tensor of `count` labels, each -1 or +1."""
    rule = f"be {count} labels, each -1 or +1"
    found = instance(name, value, Tensor, rule)
    require(tuple(found.shape) == (count,), name, rule, f"shape {tuple(found.shape)}")
    require(bool((found.abs() == 1).all()), name, rule, "other values")
    return found


def unit_rows(name: str, value: Tensor) -> None:
    """Require that each row has norm 1, to rounding."""
    worst = float((value.norm(dim=1) - 1).abs().max())
    require(worst <= _UNIT_NORM_TOLERANCE, name, "have rows of norm 1", f"a norm {worst:.3g} away")


def labels(name: str, value: object, *, count: int, outputs: int | None = None) -> Tensor:
    """Return labels as int64: -1 / +1 for one output, 0..outputs-1 for several.

    With `outputs=None` either kind is taken.
    """
    found = instance(name, value, Tensor, "be a tensor of labels")
    rule = f"have shape ({count},), one label a point"
    require(tuple(found.shape) == (count,), name, rule, f"shape {tuple(found.shape)}")
    require(not found.is_complex(), name, "be whole numbers", str(found.dtype))
    if found.is_floating_point():
        finite(name, found)
        require(bool((found == found.round()).all()), name, "be whole numbers", "fractions")
    result = found.to(torch.int64)
    if outputs == 1:
        good = bool((result.abs() == 1).all())
        rule = "be -1 or +1 for a one-output network"
    elif outputs is not None:
        good = bool(((result >= 0) & (result < outputs)).all())
        rule = f"lie in 0..{outputs - 1} for {outputs} outputs"
    else:
        good = bool((result >= 0).all()) or bool((result.abs() == 1).all())
        rule = "be -1 / +1 or 0..C-1"
    if not good:
        require(False, name, rule, torch.unique(result).tolist())
    return result


def _quoted(value: object) -> object:
    """A string with its quotes, so that '3' is not taken for 3; `require` shows strings bare."""
    return repr(value) if isinstance(value, str) else value
