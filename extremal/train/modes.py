"""Looking at a network in training without a trace: in evaluation mode, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """All of the network in evaluation mode inside, each part in its own mode afterwards.

    In training mode a pass alone moves the running means of a BatchNorm, and Dropout draws.
    """
    before = [(part, part.training) for part in net.modules()]
    try:
        net.eval()
        yield
    finally:
        for part, training in before:
            part.training = training
