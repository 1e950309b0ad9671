"""Algorithm 1 of Min & Vidal 2024 as printed: one fitted scale, normalised ascent in R^dim."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.measure.classifier_distance.network_difference import onto
from extremal.measure.distances.result import Distance
from extremal.models import PReLUNet, double

_STEP = 0.01


def algorithm_1(
    net: PReLUNet,
    reference: PReLUNet,
    *,
    starts: int,
    steps: int,
    inputs: Tensor | None,
    fit_points: int,
    generator: torch.Generator,
) -> Distance:
    """The largest |c f - F| that ascents from uniform points of the sphere reach.

    c = sum_i f(x_i) F(x_i) / sum_i f(x_i)^2 on `fit_points` uniform points or on `inputs` (n, dim),
    and x ← x + 0.01 g / ||g||, projected to the sphere, with g the gradient of |c f - F|^2.
    """
    f, other = double(net), double(reference)
    assert isinstance(f, PReLUNet)
    assert isinstance(other, PReLUNet)
    fitted = _sphere(fit_points, net.dim, generator) if inputs is None else inputs
    with torch.no_grad():
        a, b = f(fitted), other(fitted)
    scale = max(float((a * b).sum() / (a * a).sum().clamp(min=1e-300)), 1e-300)
    x = _sphere(starts, net.dim, generator)
    one = torch.ones(starts, dtype=torch.float64)
    for _ in range(steps):
        fx, fg = f.input_gradient(x, one)
        ox, og = other.input_gradient(x, one)
        slope = (scale * fx - ox) * (scale * fg - og)
        length = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        x = onto(x + _STEP * slope / torch.where(length > 0, length, 1.0), ball=False)
    with torch.no_grad():
        gaps = (scale * f(x) - other(x)).abs()
    best = int(gaps.argmax())
    none = float("nan")
    return Distance(float(gaps[best]), scale, x[best], none, none, True, "paper")


def _sphere(count: int, dim: int, generator: torch.Generator) -> Tensor:
    return onto(torch.randn(count, dim, generator=generator, dtype=torch.float64), ball=False)
