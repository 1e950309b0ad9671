"""Training: losses, gradient flow, gradient descent, and what to record along the way."""

from extremal.train.adversarial_training import adversarial
from extremal.train.early_stopping import RobustValidation
from extremal.train.flow.end_condition import Until
from extremal.train.flow.gradient_flow import gradient_flow
from extremal.train.flow_verification import UnverifiedFlowWarning
from extremal.train.gradient_descent import adam, gd, sgd
from extremal.train.inner_attack import InnerAttack, input_gradient, loss_slope
from extremal.train.losses import Loss, loss_and_gradient, total_loss
from extremal.train.recipes import mnist_network, mnist_recipe
from extremal.train.recording import DivergenceError, Record, Trajectory
from extremal.train.validated.validated_flow import ValidatedFlow, validated_flow

__all__ = [
    "DivergenceError",
    "InnerAttack",
    "Loss",
    "Record",
    "RobustValidation",
    "Trajectory",
    "Until",
    "UnverifiedFlowWarning",
    "ValidatedFlow",
    "adam",
    "adversarial",
    "gd",
    "gradient_flow",
    "input_gradient",
    "loss_and_gradient",
    "loss_slope",
    "mnist_network",
    "mnist_recipe",
    "sgd",
    "total_loss",
    "validated_flow",
]
