"""Checks of what a caller passes in, in the package's one form of error.

`theory` imports no other part of the package, so that it can be the oracle of all of them: these
few lines are its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

import torch
from torch import Tensor

_UNIT_TOLERANCE = 1e-6


def require(condition: bool, name: str, rule: str, received: object) -> None:
    """Raise a ValueError that names the parameter, the rule and what came, unless it holds."""
    if not condition:
        raise ValueError(f"{name} must {rule}, got {received}")


def _quoted(value: object) -> object:
    """A string with its quotes, so that '3' is not taken for 3; `require` shows strings bare."""
    return repr(value) if isinstance(value, str) else value


def number(
    name: str,
    value: object,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
) -> float:
    """Return `value` as a finite float with minimum <= value <= maximum and value > above."""
    limits = [f">= {minimum:g}"] if minimum > -math.inf else []
    limits += [f"> {above:g}"] if above > -math.inf else []
    limits += [f"<= {maximum:g}"] if maximum < math.inf else []
    rule = "be a finite number " + " and ".join(limits)
    good = not isinstance(value, bool) and isinstance(value, Real)
    require(good, name, rule.strip(), _quoted(value))
    result = float(value)  # type: ignore[arg-type]
    inside = math.isfinite(result) and minimum <= result <= maximum and result > above
    require(inside, name, rule.strip(), value)
    return result


def integer(name: str, value: object, *, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`."""
    good = not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= minimum
    require(good, name, f"be an integer >= {minimum}", _quoted(value))
    return int(value)  # type: ignore[call-overload]


def choice(name: str, value: object, options: Iterable[str]) -> None:
    """Require that `value` is one of `options`."""
    known = list(options)
    require(value in known, name, f"be one of {', '.join(map(repr, known))}", _quoted(value))


def matrix(name: str, value: object, *, columns: int | None = None) -> Tensor:
    """Return `value` if it is a non-empty, finite, floating-point (n, columns) tensor."""
    width = "columns" if columns is None else columns
    rule = f"be a finite floating-point tensor of shape (n, {width}) with n >= 1"
    require(isinstance(value, Tensor), name, rule, type(value).__name__)
    assert isinstance(value, Tensor)
    seen = f"shape {tuple(value.shape)} of {value.dtype}"
    shaped = value.ndim == 2 and min(value.shape) >= 1 and value.is_floating_point()
    require(shaped and columns in {None, value.shape[-1]}, name, rule, seen)
    require(bool(torch.isfinite(value).all()), name, rule, "NaN or infinite entries")
    return value


def vector(name: str, value: object, *, size: int | None = None) -> Tensor:
    """Return `value` if it is a non-empty, finite, floating-point (size,) tensor."""
    rule = f"be a finite floating-point tensor of shape ({'n' if size is None else size},)"
    require(isinstance(value, Tensor), name, rule, type(value).__name__)
    assert isinstance(value, Tensor)
    shaped = value.ndim == 1 and len(value) >= 1 and value.is_floating_point()
    seen = f"shape {tuple(value.shape)} of {value.dtype}"
    require(shaped and size in {None, len(value)}, name, rule, seen)
    require(bool(torch.isfinite(value).all()), name, rule, "NaN or infinite entries")
    return value


def signs(name: str, value: object, *, count: int) -> Tensor:
    """Return `value` if it is a tensor of `count` labels, each -1 or +1."""
    rule = f"be {count} labels, each -1 or +1"
    require(isinstance(value, Tensor), name, rule, type(value).__name__)
    assert isinstance(value, Tensor)
    require(tuple(value.shape) == (count,), name, rule, f"shape {tuple(value.shape)}")
    require(bool((value.abs() == 1).all()), name, rule, "other values")
    return value


def unit_rows(name: str, value: Tensor) -> None:
    """Require that each row has norm 1, to rounding."""
    worst = float((value.norm(dim=1) - 1).abs().max())
    require(worst <= _UNIT_TOLERANCE, name, "have rows of norm 1", f"a norm {worst:.3g} away")
