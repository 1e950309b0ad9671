"""Small data and networks for the tests of adversarial training."""

import torch

from extremal import train
from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet, mlp
from extremal.train import InnerAttack, RobustValidation

DIM = 6


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points(count=40, signed=True, seed=1):
    """Two overlapping Gaussians."""
    x = torch.randn(count, DIM, generator=generator(seed), dtype=torch.float64)
    y = torch.where(torch.arange(count) % 2 == 0, 1, -1)
    x[:, 0] += 1.5 * y
    return Dataset(x, y if signed else (y + 1) // 2)


def network(outputs=1, p=3.0):
    return PReLUNet(
        DIM, 8, p, outputs, init=Gaussian(0.3), dtype=torch.float64, generator=generator(5)
    )


def module():
    return mlp(DIM, [7], "tanh", outputs=2, generator=generator(2)).double()


def trained(net, seed=0, **changes):
    settings = {
        "inner": InnerAttack("linf", 0.3, steps=3),
        "loss": "cross-entropy",
        "lr": 0.1,
        "batch": 10,
        "epochs": 4,
        "watch": RobustValidation(6, 5),
        "generator": generator(seed),
    }
    return train.adversarial(net, points(signed=False), **(settings | changes))
