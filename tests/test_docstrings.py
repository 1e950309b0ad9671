"""Every argument of every exported function and class of the core is explained where it stands."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

PARTS = ("attack", "certify", "data", "evaluate", "measure", "models", "theory", "train")


def explained(obj: object) -> str:
    """What is written about an object's arguments: its docstring, and comments of its fields."""
    parts = [inspect.getdoc(obj) or ""]
    if inspect.isclass(obj):
        if "__init__" in vars(obj) and not dataclasses.is_dataclass(obj):
            parts.append(inspect.getdoc(obj.__init__) or "")
        fields = re.findall(r"^    (\w+):[^#\n]*#\s*\S.*$", inspect.getsource(obj), re.M)
        parts += [f"`{name}`" for name in fields]
    return "\n".join(parts)


def unexplained(part: str) -> Iterator[str]:
    """The arguments that no docstring names in backticks, as "function(argument)"."""
    module = importlib.import_module(f"extremal.{part}")
    for name in module.__all__:
        obj = getattr(module, name)
        ours = getattr(obj, "__module__", "").startswith("extremal.")
        if not ours or not callable(obj) or (inspect.isclass(obj) and issubclass(obj, Exception)):
            continue
        text = explained(obj)
        for argument in inspect.signature(obj).parameters:
            if not re.search(rf"`{re.escape(argument)}`", text) and argument not in ("args", "_"):
                yield f"{part}.{name}({argument})"


@pytest.mark.parametrize("part", PARTS)
def test_every_argument_is_explained(part: str) -> None:
    assert list(unexplained(part)) == []
