"""Where data come from: sources that sample or load a `Dataset`."""

from extremal.data.dataset import Dataset
from extremal.data.fetch import DataError
from extremal.data.images import load, published_split
from extremal.data.mixture import OrthonormalMixture

__all__ = ["DataError", "Dataset", "OrthonormalMixture", "load", "published_split"]
