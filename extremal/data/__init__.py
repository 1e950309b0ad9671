"""Where data come from: sources that sample or load a `Dataset`."""

from extremal.data.clusters import Clusters, correlated_centers, random_centers
from extremal.data.dataset import Dataset
from extremal.data.features import load_features
from extremal.data.fetch import DataError
from extremal.data.folders import ImageFolder, image_folder, load_folder, load_split
from extremal.data.images import load, published_split
from extremal.data.manifold import ManifoldCells
from extremal.data.mixture import OrthonormalMixture
from extremal.data.orthogonal import OrthogonalClusters
from extremal.data.patches import Patches
from extremal.data.separated import LatticeCells, separated_points

__all__ = [
    "Clusters",
    "DataError",
    "Dataset",
    "ImageFolder",
    "LatticeCells",
    "ManifoldCells",
    "OrthogonalClusters",
    "OrthonormalMixture",
    "Patches",
    "correlated_centers",
    "image_folder",
    "load",
    "load_features",
    "load_folder",
    "load_split",
    "published_split",
    "random_centers",
    "separated_points",
]
