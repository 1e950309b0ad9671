"""Train, attack and certify shallow networks, and see why some of them are robust.

A part is imported when it is first used, since torch and the drawing libraries take seconds.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from extremal._version import __version__

if TYPE_CHECKING:
    from extremal import attack, certify, data, experiments, measure, models, report, theory, train
    from extremal.evaluate import Robustness, evaluate
    from extremal.experiments import citation

__all__ = [
    "Robustness",
    "__version__",
    "attack",
    "certify",
    "citation",
    "data",
    "evaluate",
    "experiments",
    "measure",
    "models",
    "report",
    "theory",
    "train",
]

# The part that holds each public name which is no part itself.
_PARTS_OF_NAMES = {"Robustness": "evaluate", "evaluate": "evaluate", "citation": "experiments"}


class _Package(ModuleType):
    """The package, whose `evaluate` is the function, although a part has that name too."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name; where Python puts the imported part `evaluate`, its function comes."""
        own = name == "evaluate" and isinstance(value, ModuleType)
        super().__setattr__(name, value.evaluate if own else value)  # type: ignore[attr-defined]


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    """Import a part, or what holds a name, when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'extremal' has no attribute {name!r}")
    part = importlib.import_module(f"extremal.{_PARTS_OF_NAMES.get(name, name)}")
    return getattr(part, name) if name in _PARTS_OF_NAMES else part


def __dir__() -> list[str]:
    """Every public name, imported or not."""
    return sorted({*globals(), *__all__})
