"""Train, attack and certify shallow networks, and see why some of them are robust."""

from extremal import data, measure, models, train
from extremal._version import __version__

__all__ = ["__version__", "data", "measure", "models", "train"]
