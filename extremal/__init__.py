"""Train, attack and certify shallow networks, and see why some of them are robust."""

from extremal import data, models
from extremal._version import __version__

__all__ = ["__version__", "data", "models"]
