"""Where data come from: sources that sample or load a `Dataset`."""

from extremal.data.dataset import Dataset
from extremal.data.mixture import OrthonormalMixture

__all__ = ["Dataset", "OrthonormalMixture"]
