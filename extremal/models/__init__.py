"""Networks, their initialisations and files, and the classifiers that the theory is about."""

from extremal.models.activations import (
    PowerReLU,
    SmoothedReLU,
    relu_power,
    relu_power_with_slope,
)
from extremal.models.classification_margin import (
    HasInputGradient,
    check_outputs,
    evaluation_mode,
    float64_copy,
    margin,
    margin_gradient,
    output_margins,
)
from extremal.models.conversion import from_authors, from_torch, rescaled
from extremal.models.convolutional import ConvPReLU, PatchCNN, PReLUConv2d
from extremal.models.fully_connected import ACTIVATIONS, MLP, DeepPReLU, PReLULayer, mlp
from extremal.models.grid_network import GridNet, ratio_grid, ratio_side
from extremal.models.image_features.feature_extractor import extractor, features, through
from extremal.models.image_features.frozen_networks import FrozenResNet, load_resnet
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
from extremal.models.network_reduction import Reduction, reduced_networks
from extremal.models.prelu_net import DenseInputs, ParameterGradient, PReLUNet, PreparedInputs
from extremal.models.preparation import Preparation
from extremal.models.provable_constructions import (
    DistanceRatio,
    KnowsRadii,
    Memoriser,
    cover,
    cover_network,
    least_distance,
    pairwise_distances,
)
from extremal.models.readouts import (
    Grouped,
    LogOdds,
    Representation,
    gap_gradient,
    input_dim,
    representations,
    signed_sum,
)
from extremal.models.reference_classifiers import (
    BayesClassifier,
    average_classifier,
    averaged_classifier,
    bayes_classifier,
    decoupled_classifier,
    subclass_classifier,
)
from extremal.models.two_layer_form import (
    TwoLayerForm,
    as_two_layer_form,
    group_margins,
    inner_network,
    is_shallow,
    polar_form,
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
    "DenseInputs",
    "DistanceRatio",
    "Explicit",
    "FrozenResNet",
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
    "PowerReLU",
    "Preparation",
    "PreparedInputs",
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
    "input_dim",
    "is_shallow",
    "least_distance",
    "load",
    "load_resnet",
    "load_with_note",
    "margin",
    "margin_gradient",
    "mlp",
    "output_margins",
    "pairwise_distances",
    "polar_form",
    "ratio_grid",
    "ratio_side",
    "reduced_networks",
    "relu_power",
    "relu_power_with_slope",
    "representations",
    "rescaled",
    "save",
    "signed_sum",
    "subclass_classifier",
    "through",
    "with_readout_of",
]
