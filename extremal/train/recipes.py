"""The training recipe of the papers' image networks."""

from __future__ import annotations

import torch

from extremal import _check
from extremal._progress import Progress
from extremal.data import Dataset
from extremal.models import Kaiming, PReLUNet, Preparation
from extremal.train.gradient_descent import adam


def mnist_network(
    p: float,
    train: Dataset,
    *,
    width: int = 500,
    outputs: int = 10,
    generator: torch.Generator,
) -> PReLUNet:
    """The untrained network of Min & Vidal 2024, Section 5.2, for images `train`.

    Kaiming's uniform start, output biases, inputs centred by the mean training image [S]; each
    activation divided by ||x - c||^(p-1), so that p = 1 is not normalised, neurons uniform in
    +-sqrt(6/width), the votes as PyTorch starts a linear layer [A]. [S] is stated in the paper,
    [A] found in its authors' code.

    Arguments:

    - `p`: the power of the activation, at least 1.
    - `train`: the training images, a `Dataset`; inputs are centred by their mean.
    - `width`: how many neurons.
    - `outputs`: how many outputs, one for each class.
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    _check.instance("train", train, Dataset, "be a Dataset")
    center = train.x.double().mean(0)
    return PReLUNet(
        train.dim,
        width,
        p,
        outputs,
        bias=True,
        preparation=Preparation.for_power(p, center=center),
        init=Kaiming(),
        dtype=train.x.dtype,
        generator=generator,
    )


def mnist_recipe(
    p: float,
    train: Dataset,
    *,
    width: int = 500,
    outputs: int = 10,
    epochs: int = 51,
    batch: int = 1000,
    progress: bool | Progress = False,
    generator: torch.Generator,
) -> PReLUNet:
    """A `mnist_network` trained as in Min & Vidal 2024, Section 5.2 (Figures 3 and 6, Table 1).

    Adam with step 1e-3 on the mean cross-entropy of batches of 1000 [S], 51 passes [A]; labels are
    0..outputs-1, the digit or, with 2 outputs, its parity. The generator draws the start, then the
    batches. `extremal.data.published_split` gives the images that the published numbers are of.

    Arguments:

    - `p`: the power of the activation, at least 1.
    - `train`: the training images and their labels, a `Dataset`.
    - `width`: how many neurons.
    - `outputs`: how many outputs, one for each class; at least 2.
    - `epochs`: how many passes through the data.
    - `batch`: points in a batch, at most as many as there are.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    net = mnist_network(p, train, width=width, outputs=outputs, generator=generator)
    adam(net, train, epochs=epochs, batch=batch, progress=progress, generator=generator)
    return net
