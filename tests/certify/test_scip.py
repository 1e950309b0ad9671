"""A global solver's minimal radii between certificates and attacks, for small networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from extremal.attack import shortest
from extremal.certify import radius
from extremal.models import PReLUNet, as_two_layer_form
from tests.certify.networks import Kind, make, right_points

pyscipopt = pytest.importorskip("pyscipopt")

GAP = 1e-6  # relative, of the squared radius
KINDS = [
    Kind(2, 4, 1.0, 3, bias=True),
    Kind(3, 5, 1.0, 1, bias=True, hidden_bias=True),
    Kind(2, 4, 2.0, 2, bias=True),
    Kind(3, 4, 2.0, 1, scale="small"),
    Kind(2, 4, 3.0, 1, bias=True, center=True),
    Kind(2, 3, 3.0, 3),
]


def by_scip(net: PReLUNet, x: Tensor, label: int, *, farthest: float) -> float:
    """The l2 distance of x (dim,) to the nearest broken point, inf beyond `farthest`; whole p.

    The least over targets t of min ||d|| subject to sum_j a_j r_j^p + beta <= 0 and
    r_j = relu(s_j + <w_j, d>), each written with a binary variable.
    """
    form = as_two_layer_form(net)
    assert form is not None
    own = int(form.classes(torch.tensor([label])))
    rows = form.directions * form.preparation.scale
    s = (form.preparation.scaled_offset(x[None]) @ form.directions.T)[0]
    s = s if form.offsets is None else s + form.offsets
    best = math.inf
    for target in range(len(form.weights)):
        if target != own:
            a = form.weights[own] - form.weights[target]
            beta = float(form.constant[own] - form.constant[target])
            best = min(best, _nearest(rows, s, a, beta, int(net.p), farthest))
    return best


def _nearest(rows: Tensor, s: Tensor, a: Tensor, beta: float, p: int, farthest: float) -> float:
    model = pyscipopt.Model()
    model.hideOutput()
    model.setParam("limits/gap", GAP)
    total = pyscipopt.quicksum
    d = [model.addVar(lb=-farthest, ub=farthest) for _ in range(rows.shape[1])]
    margin = beta
    reach = (farthest * torch.linalg.vector_norm(rows, dim=1)).tolist()
    for row, start, far, weight in zip(rows.tolist(), s.tolist(), reach, a.tolist(), strict=True):
        value = start + total(w * v for w, v in zip(row, d, strict=True))
        high, low = max(0.0, start + far), max(0.0, far - start)
        r, on = model.addVar(lb=0.0, ub=high), model.addVar(vtype="B")
        model.addCons(r >= value)
        model.addCons(r <= value + low * (1 - on))
        model.addCons(r <= high * on)
        margin = margin + weight * r**p
    model.addCons(margin <= 0.0)
    square = model.addVar(lb=0.0, ub=farthest**2)
    model.addCons(square >= total(v * v for v in d))
    model.setObjective(square)
    model.optimize()
    if model.getStatus() == "infeasible":
        return math.inf
    assert model.getStatus() in {"optimal", "gaplimit"}
    return model.getObjVal() ** 0.5


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_certificates_and_attacks_against_a_global_solver(kind, generator):
    """certified <= exact = attacked."""
    net = make(kind, generator)
    x, y = right_points(net, kind, 2 if kind.p == 1.0 else 1, generator)
    attacked, certified = shortest(net, x, y).radius, radius(net, x, y)
    for i in range(len(x)):
        exact = by_scip(net, x[i], int(y[i]), farthest=1.2 * float(attacked[i]))
        assert float(attacked[i]) == pytest.approx(exact, rel=1e-3)
        assert float(attacked[i]) >= exact * (1 - 1e-5)
        assert 0.0 < float(certified[i]) <= exact * (1 + 1e-5)


def test_nothing_is_found_nearer_than_the_attack(generator):
    """The same model, searched up to a little less than the smallest attack only."""
    kind = KINDS[0]
    net = make(kind, generator)
    x, y = right_points(net, kind, 1, generator)
    attacked = float(shortest(net, x, y).radius)
    assert by_scip(net, x[0], int(y[0]), farthest=0.99 * attacked) == math.inf
