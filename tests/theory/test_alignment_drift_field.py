"""The field x^(p)(w) against automatic differentiation and against a step of the flow."""

from __future__ import annotations

import math

import pytest
import torch

from extremal import theory

F64 = torch.float64


def random_problem(generator, h=7, n=9, d=5):
    w = torch.randn(h, d, generator=generator, dtype=F64)
    x = torch.randn(n, d, generator=generator, dtype=F64)
    y = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0).to(F64)
    return w, x, y


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.5])
def test_projected_field_is_the_gradient_flow_at_zero_output(p, generator):
    # At f = 0 and v = ||w||, d/dt w/||w|| = P_perp grad_w sum_i y_i f(x_i) / ||w||.
    w, x, y = random_problem(generator)
    leaf = w.clone().requires_grad_()
    norms = leaf.norm(dim=1)
    votes = norms.detach()
    outputs = votes * (x @ leaf.T).clamp_min(0.0) ** p / norms ** (p - 1)
    (grad,) = torch.autograd.grad((y @ outputs).sum(), leaf)
    u = w / w.norm(dim=1, keepdim=True)
    turn = (grad - (grad * u).sum(1, keepdim=True) * u) / w.norm(dim=1, keepdim=True)
    torch.testing.assert_close(theory.projected_field(w, x, y, p), turn)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_eq_5_by_loops(p, generator):
    w, x, y = random_problem(generator)
    expected = torch.zeros_like(w)
    for j in range(len(w)):
        for i in range(len(x)):
            cosine = float(w[j] @ x[i] / (w[j].norm() * x[i].norm()))
            if cosine > 0:
                expected[j] += y[i] * x[i] * p * cosine ** (p - 1)
    torch.testing.assert_close(theory.field(w, x, y, p, weights="cosine"), expected)


def test_cosine_and_inner_product_agree_on_unit_data_only(generator):
    w, x, y = random_problem(generator)
    unit = x / x.norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        theory.field(w, unit, y, 3.0), theory.field(w, unit, y, 3.0, "cosine")
    )
    gap = theory.field(w, x, y, 3.0) - theory.field(w, x, y, 3.0, "cosine")
    assert float(gap.abs().max()) > 0.1


def test_kinks_take_the_subgradient_zero():
    x = torch.eye(2, 3, dtype=F64)
    y = torch.tensor([1.0, -1.0], dtype=F64)
    w = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], dtype=F64)
    expected = torch.zeros(3, 3, dtype=F64)
    expected[0, 0] = 1.0
    torch.testing.assert_close(theory.field(w, x, y, 1.0), expected)


def test_figure_7(generator):
    # Two positive centres in the plane: p = 1 points at mu_+, p = 2 along w, p = 3 beyond it.
    x, y = torch.eye(2, dtype=F64), torch.ones(2, dtype=F64)
    angle = torch.tensor([0.3, 0.7, 1.2], dtype=F64)
    w = 2.5 * torch.stack([angle.cos(), angle.sin()], dim=1)
    torch.testing.assert_close(theory.field(w, x, y, 1.0), torch.ones(3, 2, dtype=F64))
    torch.testing.assert_close(theory.field(w, x, y, 2.0), 2 * w / 2.5)
    cubic = theory.field(w, x, y, 3.0)
    torch.testing.assert_close(cubic, 3 * (w / 2.5) ** 2)
    turned = torch.atan2(cubic[:, 1], cubic[:, 0]) - angle
    assert turned.sign().tolist() == (angle - math.pi / 4).sign().tolist()


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_cosine_drift_is_a_derivative(p, generator):
    w, x, y = random_problem(generator)
    target = 3.0 * torch.randn(5, generator=generator, dtype=F64)
    u = w / w.norm(dim=1, keepdim=True)
    step = 1e-6
    moves = [u + sign * step * theory.projected_field(w, x, y, p) for sign in (1, -1)]
    after, before = (torch.cosine_similarity(move, target[None], dim=1) for move in moves)
    slope = (after - before) / (2 * step)
    torch.testing.assert_close(theory.cosine_drift(w, target, x, y, p), slope, atol=1e-7, rtol=1e-6)


def test_field_depends_on_directions_only(generator):
    w, x, y = random_problem(generator)
    torch.testing.assert_close(theory.field(1e-30 * w, x, y, 3.0), theory.field(w, x, y, 3.0))
    torch.testing.assert_close(theory.field(w, x, -y, 3.0), -theory.field(w, x, y, 3.0))


def test_bad_input_is_named(generator):
    w, x, y = random_problem(generator)
    with pytest.raises(ValueError, match="w must have no zero rows"):
        theory.field(0 * w, x, y, 1.0)
    with pytest.raises(ValueError, match="target must have no zero rows"):
        theory.cosine_drift(w, torch.zeros(5, dtype=F64), x, y, 1.0)
    with pytest.raises(ValueError, match=r"w must be a floating-point tensor of shape \(n, 5\)"):
        theory.field(w[:, :4], x, y, 1.0)
    with pytest.raises(ValueError, match="y must be 9 labels, each -1 or \\+1"):
        theory.field(w, x, torch.zeros(9), 1.0)
    with pytest.raises(ValueError, match="y must be 9 labels"):
        theory.field(w, x, y[:3], 1.0)
    with pytest.raises(ValueError, match=r"x must be finite, got 45 NaN or infinite entries"):
        theory.field(w, x * math.inf, y, 1.0)
    with pytest.raises(ValueError, match="weights must be one of 'inner', 'cosine', got 'sine'"):
        theory.field(w, x, y, 1.0, "sine")


@pytest.mark.parametrize("name", ["w", "target", "x", "y"])
def test_a_list_is_no_tensor(name, generator):
    w, x, y = random_problem(generator)
    given = {"w": w, "target": torch.ones(5, dtype=F64), "x": x, "y": y}
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got list$"):
        theory.cosine_drift(**given | {name: given[name].tolist()}, p=3.0)


def test_a_target_has_one_entry_a_coordinate(generator):
    w, x, y = random_problem(generator)
    for wrong in (torch.ones(4, dtype=F64), torch.ones(1, 5, dtype=F64)):
        with pytest.raises(ValueError, match=r"target must be .* shape \(5,\), got shape"):
            theory.cosine_drift(w, wrong, x, y, 3.0)


def test_two_dtypes_are_told():
    x, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match=r"w must have the dtype of x, torch\.float64, got"):
        theory.field(torch.eye(2), x, y, 3.0)
    with pytest.raises(ValueError, match=r"target must have the dtype of x, torch\.float64, got"):
        theory.cosine_drift(x, torch.ones(2), x, y, 3.0)
