"""Training: losses, gradient flow, gradient descent, and what to record along the way."""

from extremal.train.adam import adam
from extremal.train.adversarial import adversarial
from extremal.train.descent import gd, sgd
from extremal.train.flow import gradient_flow
from extremal.train.gradient import loss_and_gradient, total_loss
from extremal.train.inner import Inner
from extremal.train.loss import Loss
from extremal.train.recipes import mnist_network, mnist_recipe
from extremal.train.record import DivergenceError, Record
from extremal.train.trajectory import Trajectory
from extremal.train.until import Until
from extremal.train.watch import Watch

__all__ = [
    "DivergenceError",
    "Inner",
    "Loss",
    "Record",
    "Trajectory",
    "Until",
    "Watch",
    "adam",
    "adversarial",
    "gd",
    "gradient_flow",
    "loss_and_gradient",
    "mnist_network",
    "mnist_recipe",
    "sgd",
    "total_loss",
]
