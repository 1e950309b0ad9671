"""Where data come from: sources that sample or load a `Dataset`."""

from extremal.data.dataset import Box, Dataset, checked_box
from extremal.data.fetching.download import DataError, cache_folder, fetch
from extremal.data.gaussian_clusters import GaussianClusters, correlated_centers, random_centers
from extremal.data.named_datasets import load, published_split
from extremal.data.orthonormal_mixture import OrthogonalClusters, OrthonormalMixture
from extremal.data.patch_data import PatchData
from extremal.data.separated_sets import LatticeCells, ManifoldCells, separated_points
from extremal.data.user_files import (
    ImageFolder,
    image_folder,
    load_features,
    load_folder,
    load_split,
)

__all__ = [
    "Box",
    "DataError",
    "Dataset",
    "GaussianClusters",
    "ImageFolder",
    "LatticeCells",
    "ManifoldCells",
    "OrthogonalClusters",
    "OrthonormalMixture",
    "PatchData",
    "cache_folder",
    "checked_box",
    "correlated_centers",
    "fetch",
    "image_folder",
    "load",
    "load_features",
    "load_folder",
    "load_split",
    "published_split",
    "random_centers",
    "separated_points",
]
