"""Train, attack and certify shallow networks, and see why some of them are robust."""

from extremal import attack, certify, data, measure, models, theory, train
from extremal._version import __version__
from extremal.evaluate import Robustness, evaluate

__all__ = [
    "Robustness",
    "__version__",
    "attack",
    "certify",
    "data",
    "evaluate",
    "experiments",
    "measure",
    "models",
    "report",
    "theory",
    "train",
]


def __getattr__(name: str) -> object:
    """Import `experiments` and `report` when first used: drawing libraries are slow to load."""
    if name in {"experiments", "report"}:
        import importlib  # noqa: PLC0415 - only for these two

        return importlib.import_module(f"extremal.{name}")
    raise AttributeError(f"module 'extremal' has no attribute {name!r}")
