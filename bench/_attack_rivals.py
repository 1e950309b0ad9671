"""The rivals of `attack.minimal` in the bench `attack_optimality`, none of which shares its code.

Each takes a `Problem` and a norm and returns perturbations; they are verified like any attack's.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bench._attack_cases import Problem
from extremal import attack
from extremal._tensors import NORM_ORDERS
from extremal.models import TwoLayerForm, as_two_layer_form

Rival = Callable[[Problem, str, Tensor], Tensor]

AUTOATTACK_QUERIES = 1000
AUTOATTACK_POINTS = 8
SCIP_SECONDS = 20.0
SCIP_NEURONS = 20
SCIP_LENGTHENING = 1.00001
# The search tries so many shares of so many rays, then so many neighbours of the best in so many
# rounds: 10^5 trials.
RAYS, SHARES_OF_A_RAY = 4000, 24
ROUNDS, NEIGHBOURS = 40, 100
# SLSQP starts from so many of the best rays, the best data of other classes, and the nearest ones.
DESCENTS = {"random": 12, "data": 4}
# Of more coordinates than this each descent costs so much that there are fewer.
MOST_COORDINATES_OF_ALL_DESCENTS = 20
FEWER_DESCENTS = {"random": 3, "data": 2}
# A solution is made longer by the first of these factors that breaks the point.
LENGTHENINGS = (1.0, 1.0 + 1e-8, 1.0 + 1e-6, 1.0 + 1e-5, 1.0 + 1e-4)
FOOLBOX = {
    "l2": {
        "DDNAttack": {"steps": 200},
        "L2FMNAttack": {"steps": 200},
        "L2BrendelBethgeAttack": {},
    },
    "linf": {"LInfFMNAttack": {"steps": 200}, "LinfinityBrendelBethgeAttack": {}},
    "l1": {"L1FMNAttack": {"steps": 200}, "L1BrendelBethgeAttack": {}},
}


def by_search_and_descent(problem: Problem, norm: str, known: Tensor) -> Tensor:
    """10^5 random trials around each point and data of other classes, then SLSQP from the best."""
    form = as_two_layer_form(problem.net)
    assert form is not None
    own = form.own(problem.y)
    generator = torch.Generator().manual_seed(0)
    found = []
    for x, mine in zip(problem.x, own, strict=True):
        search = _Search(form, x, mine, problem, norm)
        found.append(search.best(generator))
    return torch.stack(found)


class _Search:
    """The smallest perturbation of one point, by trial and by SLSQP."""

    def __init__(
        self, form: TwoLayerForm, x: Tensor, own: Tensor, problem: Problem, norm: str
    ) -> None:
        self.form, self.x, self.own, self.norm = form, x, own, norm
        low, high = (torch.full_like(x, end) for end in (-torch.inf, torch.inf))
        if problem.box is not None:
            low, high = (torch.as_tensor(end).expand_as(x) - x for end in problem.box)
        self.bounds = (low, high)
        self.spread = problem.others.std(0).clamp(min=1e-12)
        self.others = problem.others - x
        few = len(x) > MOST_COORDINATES_OF_ALL_DESCENTS
        self.descents = FEWER_DESCENTS if few else DESCENTS

    def margins(self, delta: Tensor) -> Tensor:
        """The margins (k,) at perturbations (k, dim)."""
        return self.form.margins(self.x + delta, self.own.expand(len(delta), -1))

    def size(self, delta: Tensor) -> Tensor:
        return torch.linalg.vector_norm(delta, NORM_ORDERS[self.norm], dim=-1)

    def best(self, generator: torch.Generator) -> Tensor:
        """The best of all starts."""
        ends = self.nearer(self._rays(generator))
        foreign = self.others[self.margins(self.others) <= 0]
        near = foreign[(foreign / self.spread).norm(dim=1).argsort()[: self.descents["data"]]]
        data = torch.cat([self.nearer(foreign)[: self.descents["data"]], self.nearer(near)])
        tried = self.around(torch.cat([ends, data])[:1], generator)
        starts = torch.cat([tried, ends[: self.descents["random"]], data])
        every = [starts, *(self.descend(start).unsqueeze(0) for start in starts)]
        broken = self.nearer(torch.cat(every))
        return broken[0] if len(broken) > 0 else torch.zeros_like(self.x)

    def _rays(self, generator: torch.Generator) -> Tensor:
        """Broken points on random rays: dense, sparse and of signs, in the data's own spread."""
        dim = len(self.x)
        ways = torch.randn(RAYS, dim, generator=generator, dtype=torch.float64)
        kept = torch.rand(RAYS, dim, generator=generator) < torch.rand(RAYS, 1, generator=generator)
        ways = torch.where(kept, ways, 0.0)
        ways[::3] = ways[::3].sign()
        ways[: 2 * dim] = torch.cat([torch.eye(dim), -torch.eye(dim)]).double()[:RAYS]
        ways[1::2] *= self.spread
        ways[2 * dim : 2 * dim + len(self.others)] = self.others[: max(0, RAYS - 2 * dim)]
        length = self.size(ways).clamp(min=1e-300)
        reach = 4.0 * self.size(self.others).max()
        broken = []
        for share in torch.linspace(0, 1, SHARES_OF_A_RAY + 1)[1:].tolist():
            step = (reach * share**2 / length).unsqueeze(1) * ways
            step = torch.clamp(step, *self.bounds)
            some = torch.nonzero(self.margins(step) <= 0).squeeze(1)
            broken.append(step[some])
            left = torch.ones(len(ways), dtype=torch.bool)
            left[some] = False
            ways, length = ways[left], length[left]
        return torch.cat(broken)

    def nearer(self, delta: Tensor) -> Tensor:
        """Broken perturbations, each as short as bisection makes it, the shortest first."""
        delta = torch.clamp(delta, *self.bounds)
        delta = delta[self.margins(delta) <= 0]
        low, high = torch.zeros(len(delta), 1).double(), torch.ones(len(delta), 1).double()
        for _ in range(40):
            middle = 0.5 * (low + high)
            broken = (self.margins(middle * delta) <= 0).unsqueeze(1)
            low, high = torch.where(broken, low, middle), torch.where(broken, middle, high)
        delta = high * delta
        delta = delta[self.margins(delta) <= 0]
        return delta[self.size(delta).argsort()]

    def around(self, best: Tensor, generator: torch.Generator) -> Tensor:
        """Neighbours of the best, ever nearer, each scaled to be shorter than it."""
        for turn in range(ROUNDS if len(best) > 0 else 0):
            near = 0.5 * 0.85**turn * self.size(best)
            ways = torch.randn(NEIGHBOURS, len(self.x), generator=generator, dtype=torch.float64)
            moved = best + (near / self.size(ways)).unsqueeze(1) * ways
            moved = torch.cat([best, moved * (self.size(best) / self.size(moved)).unsqueeze(1)])
            best = self.nearer(moved)[:1]
        return best

    def descend(self, start: Tensor) -> Tensor:
        """SLSQP on the smallest perturbation toward the class that wins at the start."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solved = torch.from_numpy(_Program(self, start).solved())
        for longer in LENGTHENINGS:
            moved = torch.clamp(longer * solved, *self.bounds)
            if float(self.margins(moved.unsqueeze(0))) <= 0:
                return moved
        return start


class _Program:
    """min ||d|| subject to own <= foreign, both as p-norms, as SLSQP takes it; d = scale * v.

    The scales are the spreads of the data's columns, in units of which they are alike.
    """

    def __init__(self, search: _Search, start: Tensor) -> None:
        form, own = search.form, search.own
        self.norm, self.p = search.norm, form.p
        ready = form.preparation
        self.z = ready.scaled_offset(search.x.unsqueeze(0))[0].numpy()
        self.normalize, self.rate = ready.normalize, ready.scale
        self.neurons, self.offsets = form.directions.numpy(), form.all_offsets.numpy()
        other = form.outputs((search.x + start).unsqueeze(0))[0].masked_fill(own, -torch.inf)
        a, c = (part[own] - part[other.argmax()] for part in (form.weights, form.constant))
        a = torch.cat([a, c.unsqueeze(1)], 1).numpy()
        self.sides = [np.maximum(sign * a, 0.0) ** (1.0 / self.p) for sign in (-1.0, 1.0)]
        unit = float(search.size(start)) or 1.0
        self.scale = unit * (search.spread / search.spread.max()).numpy()
        self.unit, self.start = unit, start.numpy() / self.scale
        self.low, self.high = (end.numpy() / self.scale for end in search.bounds)

    def gap(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Foreign less own p-norm for each own output (k,), and its gradient (k, dim)."""
        z = self.z + self.rate * self.scale * v
        length = max(float(np.linalg.norm(z)), 1e-300)
        size = length**self.normalize
        slope = self.normalize * size / length**2 * z
        r = np.maximum(np.append(self.neurons @ z + self.offsets * size, size), 0.0)
        value, gradient = 0.0, 0.0
        for sign, side in zip((1.0, -1.0), self.sides, strict=True):
            terms = side * r
            largest = np.maximum(terms.max(1, keepdims=True), 1e-300)
            total = ((terms / largest) ** self.p).sum(1, keepdims=True) ** (1.0 / self.p)
            total = np.maximum(total, 1e-300)
            weight = side * (terms / largest / total) ** (self.p - 1.0) * (r > 0)
            moved = weight[:, :-1] @ self.neurons
            last = weight[:, :-1] @ self.offsets + weight[:, -1]
            value = value + sign * (total * largest)[:, 0]
            gradient = gradient + sign * (moved + last[:, None] * slope)
        return value / self.unit, gradient * self.rate * self.scale / self.unit

    def solved(self) -> np.ndarray:
        """What SLSQP makes of the start, (dim,)."""
        dim = len(self.start)
        aim, first, box, walls = self._goal()
        spread = self._spread

        def broken(w: np.ndarray) -> np.ndarray:
            return self.gap(spread(w[None])[0])[0] - 1e-9

        def slope(w: np.ndarray) -> np.ndarray:
            g = self.gap(spread(w[None])[0])[1]
            if self.norm == "l1":
                return np.concatenate([g, -g], 1)
            return np.concatenate([g, np.zeros((len(g), len(w) - dim))], 1)

        rules = [{"type": "ineq", "fun": broken, "jac": slope}]
        if walls is not None:
            rules.append({"type": "ineq", "fun": lambda w: walls @ w, "jac": lambda w: walls})
        options = {"maxiter": 100, "ftol": 1e-9}
        given: Any = {"jac": True, "bounds": box, "constraints": rules, "options": options}
        found = minimize(aim, first, method="SLSQP", **given).x
        return self.scale * np.nan_to_num(spread(found[None])[0])

    def _spread(self, w: np.ndarray) -> np.ndarray:
        """The v (m, dim) of unknowns w."""
        dim = len(self.start)
        return w[:, :dim] - w[:, dim:] if self.norm == "l1" else w[:, :dim]

    def _goal(self) -> tuple[Any, np.ndarray, list[Any], np.ndarray | None]:
        """The aim with its gradient, the first unknowns, their bounds, and linear constraints."""
        share, v = self.scale / self.unit, self.start
        box = list(zip(self.low, self.high, strict=True))
        if self.norm == "l2":
            return lambda w: (0.5 * ((share * w) ** 2).sum(), share**2 * w), v, box, None
        if self.norm == "l1":
            twice = np.concatenate([share, share])
            first = np.concatenate([np.maximum(v, 0.0), np.maximum(-v, 0.0)])
            ends = [*self.high, *-self.low]
            box = [(0.0, max(0.0, end)) for end in ends]
            return lambda w: (float(twice @ w), twice), first, box, None
        last = np.eye(len(v) + 1)[-1]
        one, eye = np.ones((len(v), 1)), np.diag(share)
        walls = np.concatenate([np.concatenate([sign * eye, one], 1) for sign in (1.0, -1.0)])
        first = np.append(v, np.abs(share * v).max())
        return lambda w: (float(w[-1]), last), first, [*box, (0.0, None)], walls


def by_foolbox(problem: Problem, norm: str, name: str) -> Tensor:
    """A minimising attack of foolbox; its perturbations."""
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {"norm": norm, "box": problem.box, "generator": generator}
    options = FOOLBOX[norm][name]
    net, x, y = problem.net, problem.x, problem.y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attack.foolbox_attack(net, x, y, attack=name, options=options, **given)
    return found.x_adv - x


def by_autoattack(problem: Problem, norm: str, known: Tensor) -> Tensor:
    """AutoAttack around the first points of a case, a hundredth nearer than what is known."""
    delta = torch.zeros_like(problem.x)
    rows = torch.nonzero(known.isfinite() & (known > 0)).squeeze(1)
    for i in rows[:AUTOATTACK_POINTS].tolist():
        point, label = problem.x[i : i + 1], problem.y[i : i + 1]
        given: dict[str, Any] = {
            "norm": norm,
            "box": problem.box,
            "radius": 0.99 * float(known[i]),
            "queries": AUTOATTACK_QUERIES,
            "generator": torch.Generator().manual_seed(0),
        }
        found = attack.auto_attack(problem.net, point, label, **given)
        delta[i] = torch.where(found.success, found.x_adv - point, 0.0)[0]
    return delta


def by_scip(problem: Problem, norm: str, known: Tensor) -> Tensor:
    """p = 1: the nearest broken point by SCIP, as a mixed-integer program; zero where none is.

    min ||d|| subject to sum_j a_j r_j + beta <= 0 and r_j = relu(s_j + <u_j, d>), of which each is
    written with a binary variable, within the radius that is known.
    """
    form = as_two_layer_form(problem.net)
    assert form is not None
    own = form.own(problem.y)
    delta = torch.zeros_like(problem.x)
    if len(form.directions) > SCIP_NEURONS:
        return delta
    for i in torch.nonzero(known.isfinite() & (known > 0)).squeeze(1).tolist():
        best = float(known[i])
        for target in torch.nonzero(~own[i]).squeeze(1).tolist():
            mine = int(own[i].int().argmax())
            a = form.weights[mine] - form.weights[target]
            beta = float(form.constant[mine] - form.constant[target])
            found = _scip_solution(form, problem, i, norm, a, beta, best)
            if found is not None:
                delta[i], best = found
    return delta


def _scip_solution(
    form: TwoLayerForm, problem: Problem, i: int, norm: str, a: Tensor, beta: float, best: float
) -> tuple[Tensor, float] | None:
    """The best perturbation that SCIP finds within a radius and its time, and its norm."""
    scip = importlib.import_module("pyscipopt")
    model, total = scip.Model(), scip.quicksum
    model.hideOutput()
    model.setParam("limits/time", SCIP_SECONDS)
    model.setParam("limits/gap", 1e-5)
    x, dim = problem.x[i], form.dim
    low, high = [-best] * dim, [best] * dim
    if problem.box is not None:
        low = [max(end, problem.box[0] - at) for end, at in zip(low, x.tolist(), strict=True)]
        high = [min(end, problem.box[1] - at) for end, at in zip(high, x.tolist(), strict=True)]
    d = [model.addVar(lb=b, ub=c) for b, c in zip(low, high, strict=True)]
    rows, s = form.directions, form.directions @ x + form.all_offsets
    order = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}[norm]
    reach = (best * torch.linalg.vector_norm(rows, order, dim=1)).tolist()
    margin = beta
    for row, start, far, weight in zip(rows.tolist(), s.tolist(), reach, a.tolist(), strict=True):
        value = start + total(w * v for w, v in zip(row, d, strict=True))
        top, bottom = max(0.0, start + far), max(0.0, far - start)
        r, on = model.addVar(lb=0.0, ub=top), model.addVar(vtype="B")
        model.addCons(r >= value)
        model.addCons(r <= value + bottom * (1 - on))
        model.addCons(r <= top * on)
        margin = margin + weight * r
    model.addCons(margin <= -1e-6 * float(a.abs().max()))
    size = model.addVar(lb=0.0, ub=best**2 if norm == "l2" else best)
    if norm == "l2":
        model.addCons(size >= total(v * v for v in d))
    else:
        each = [model.addVar(lb=0.0, ub=best) for _ in d] if norm == "l1" else [size] * dim
        for v, t in zip(d, each, strict=True):
            model.addCons(t >= v)
            model.addCons(t >= -v)
        if norm == "l1":
            model.addCons(size >= total(each))
    model.setObjective(size)
    model.optimize()
    if model.getNSols() == 0:
        return None
    value = model.getObjVal() ** (0.5 if norm == "l2" else 1.0)
    # Its equations hold up to 1e-6: a little farther the point is broken in truth.
    return SCIP_LENGTHENING * torch.tensor([model.getVal(v) for v in d]).double(), value


def rivals(p: float, norm: str) -> dict[str, Rival]:
    """All rivals against networks of power p by name; some start from what others have found."""
    named: dict[str, Rival] = {"search": by_search_and_descent}
    for name in FOOLBOX[norm]:
        if "Brendel" not in name or importlib.util.find_spec("numba") is not None:
            named[name] = functools.partial(_foolbox_rival, name=name)
    if p == 1.0:
        named["scip"] = by_scip
    named["autoattack"] = by_autoattack
    return named


def _foolbox_rival(problem: Problem, norm: str, known: Tensor, *, name: str) -> Tensor:
    return by_foolbox(problem, norm, name)
