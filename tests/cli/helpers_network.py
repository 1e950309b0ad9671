"""The network and the points that the tests of `evaluate` and `certify` share."""

from __future__ import annotations

import torch

from extremal.data import Dataset, OrthonormalMixture

POINTS = 12
WRONG = 3  # labels that are turned in wrong.safetensors


def mixture() -> OrthonormalMixture:
    return OrthonormalMixture(dim=10, positive=3, negative=2, spread=0.2)


def sample() -> Dataset:
    return mixture().sample(POINTS, generator=torch.Generator().manual_seed(0))
