"""Networks, their initialisations and files, and the classifiers that the theory is about."""

from extremal.models.activations import relu_power, relu_power_with_slope
from extremal.models.classification_margin import (
    HasInputGradient,
    check_outputs,
    evaluation_mode,
    float64_copy,
    margin,
    margin_gradient,
    output_margins,
)
from extremal.models.conversion import from_authors, from_torch
from extremal.models.convolutional import ConvPReLU, PatchCNN, PReLUConv2d, SmoothedReLU
from extremal.models.fully_connected import ACTIVATIONS, MLP, DeepPReLU, PowerReLU, PReLULayer, mlp
from extremal.models.grid_network import GridNet, ratio_grid, ratio_side
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
from extremal.models.model_files import included_networks, load, load_with_note, save
from extremal.models.network_reduction import Polar, Reduction, polar, reduced_networks
from extremal.models.prelu_net import ParameterGradient, PReLUNet
from extremal.models.preparation import Preparation
from extremal.models.provable_constructions import (
    DistanceRatio,
    KnowsRadii,
    Memoriser,
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
from extremal.models.two_layer_form import (
    TwoLayerForm,
    as_two_layer_form,
    group_margins,
    inner_network,
    is_shallow,
    with_readout_of,
)

__all__ = [
    "ACTIVATIONS",
    "MLP",
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
    "HasInputGradient",
    "Initialisation",
    "Kaiming",
    "KnowsRadii",
    "LogOdds",
    "Memoriser",
    "PReLUConv2d",
    "PReLULayer",
    "PReLUNet",
    "ParameterGradient",
    "PatchCNN",
    "Polar",
    "PowerReLU",
    "Preparation",
    "Reduction",
    "Representation",
    "SmoothedReLU",
    "TwoLayerForm",
    "Weights",
    "as_two_layer_form",
    "average_classifier",
    "averaged_classifier",
    "bayes_classifier",
    "check_outputs",
    "cover",
    "cover_network",
    "decoupled_classifier",
    "evaluation_mode",
    "extractor",
    "features",
    "float64_copy",
    "from_authors",
    "from_torch",
    "gap_gradient",
    "group_margins",
    "included_networks",
    "inner_network",
    "is_shallow",
    "load",
    "load_with_note",
    "margin",
    "margin_gradient",
    "mlp",
    "output_margins",
    "polar",
    "ratio_grid",
    "ratio_side",
    "reduced_networks",
    "relu_power",
    "relu_power_with_slope",
    "represented",
    "save",
    "subclass_classifier",
    "summed",
    "through",
    "with_readout_of",
]
