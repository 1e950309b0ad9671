"""Networks, their initialisations and files, and the classifiers that the theory is about."""

from extremal.models.classification_margin import (
    Analytic,
    check_outputs,
    double,
    margin,
    margin_gradient,
    output_margins,
)
from extremal.models.conversion import from_authors, from_torch
from extremal.models.convolutional import ConvPReLU, PatchCNN, PReLUConv2d, SmoothedReLU
from extremal.models.fully_connected import ACTIVATIONS, MLP, DeepPReLU, PowerReLU, PReLULayer, mlp
from extremal.models.grid import GridNet, ratio_grid, ratio_side
from extremal.models.image_features.feature_extractor import extractor, features, through
from extremal.models.initialisation import (
    Balanced,
    Blocks,
    Explicit,
    Gaussian,
    Initialisation,
    Kaiming,
    Weights,
)
from extremal.models.model_files import load, load_noted, save, shipped
from extremal.models.nearest_centre import NearestCentre
from extremal.models.network_reduction import Polar, Reduction, polar, reductions
from extremal.models.prelu_net import ParameterGradient, PReLUNet
from extremal.models.preparation import Preparation
from extremal.models.provable_constructions import (
    DistanceRatio,
    Memoriser,
    Provable,
    cover,
    cover_network,
)
from extremal.models.readouts import Grouped, Representation, gap_gradient, represented
from extremal.models.reference_classifiers import (
    BayesClassifier,
    LogOdds,
    average_classifier,
    averaged_classifier,
    bayes_classifier,
    decoupled_classifier,
    subclass_classifier,
    summed,
)
from extremal.models.two_layer_form import Shallow, best_gap, core, is_shallow, read_like, shallow

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Analytic",
    "Balanced",
    "BayesClassifier",
    "Blocks",
    "ConvPReLU",
    "DeepPReLU",
    "DistanceRatio",
    "Explicit",
    "Gaussian",
    "GridNet",
    "Grouped",
    "Initialisation",
    "Kaiming",
    "LogOdds",
    "Memoriser",
    "NearestCentre",
    "PReLUConv2d",
    "PReLULayer",
    "PReLUNet",
    "ParameterGradient",
    "PatchCNN",
    "Polar",
    "PowerReLU",
    "Preparation",
    "Provable",
    "Reduction",
    "Representation",
    "Shallow",
    "SmoothedReLU",
    "Weights",
    "average_classifier",
    "averaged_classifier",
    "bayes_classifier",
    "best_gap",
    "check_outputs",
    "core",
    "cover",
    "cover_network",
    "decoupled_classifier",
    "double",
    "extractor",
    "features",
    "from_authors",
    "from_torch",
    "gap_gradient",
    "is_shallow",
    "load",
    "load_noted",
    "margin",
    "margin_gradient",
    "mlp",
    "output_margins",
    "polar",
    "ratio_grid",
    "ratio_side",
    "read_like",
    "reductions",
    "represented",
    "save",
    "shallow",
    "shipped",
    "subclass_classifier",
    "summed",
    "through",
]
