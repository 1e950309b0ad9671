"""The rivals of `attack.minimal` in the bench `attack_optimality`, none of which shares its code.

Each takes a `Problem` and a norm and returns perturbations; they are verified like any attack's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bench._attack_cases import Problem
from extremal import attack
from extremal._tensors import NORM_ORDERS
from extremal.models import TwoLayerForm, as_two_layer_form

RAYS = 4000
SHARES_OF_A_RAY = 24
ROUNDS, NEIGHBOURS = 40, 100
DESCENTS = {"random": 16, "data": 6}
# Directions of rays change so many coordinates at least and at most.
FOOLBOX = {
    "l2": {
        "DDNAttack": {"steps": 1000},
        "L2FMNAttack": {"steps": 1000},
        "L2BrendelBethgeAttack": {},
    },
    "linf": {"LInfFMNAttack": {"steps": 1000}, "LinfinityBrendelBethgeAttack": {}},
    "l1": {"L1FMNAttack": {"steps": 1000}, "L1BrendelBethgeAttack": {}},
}


def by_search_and_descent(problem: Problem, norm: str) -> Tensor:
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

    def margins(self, delta: Tensor) -> Tensor:
        """The margins (k,) at perturbations (k, dim)."""
        return self.form.margins(self.x + delta, self.own.expand(len(delta), -1))

    def size(self, delta: Tensor) -> Tensor:
        return torch.linalg.vector_norm(delta, NORM_ORDERS[self.norm], dim=-1)

    def best(self, generator: torch.Generator) -> Tensor:
        """The best of all starts."""
        ends = self.nearer(self._rays(generator))
        data = self.nearer(self.others[self.margins(self.others) <= 0])
        tried = self.around(ends[:1], generator)
        picked = [tried, ends[: DESCENTS["random"]], data[: DESCENTS["data"]]]
        if len(data) > 0:
            scaled = (self.others[self.margins(self.others) <= 0] / self.spread).norm(dim=1)
            near = self.others[self.margins(self.others) <= 0][scaled.argsort()[:4]]
            picked.append(self.nearer(near))
        starts = torch.cat(picked)
        every = [*picked, *(self.descend(start).unsqueeze(0) for start in starts)]
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
        unit = float(self.size(start)) or 1.0
        scale = self.spread.numpy() / self.spread.numpy().max()
        if self.norm != "l2":
            scale = np.ones_like(scale)
        if self.form.dim > 20 and self.norm == "l2":
            scale = scale if scale.min() < 0.1 else np.ones_like(scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solved = _Program(self, start, unit, scale).solved()
        return solved if bool(solved.isfinite().all()) else start


class _Program:
    """min ||d|| subject to own <= foreign in p-norms, as SLSQP takes it; d = unit * scale * v."""

    def __init__(self, search: _Search, start: Tensor, unit: float, scale: np.ndarray) -> None:
        self.search, self.unit, self.scale, self.start = search, unit, scale, start
        form, own = search.form, search.own
        out = form.outputs((search.x + start).unsqueeze(0))[0]
        foreign = out.masked_fill(own, -torch.inf).argmax()
        self.mine = torch.nonzero(own).squeeze(1)
        self.other = int(foreign)
        a = form.weights[self.mine] - form.weights[self.other]
        self.a = torch.cat([a, (form.constant[self.mine] - form.constant[self.other])[:, None]], 1)

    def gap(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Foreign less own p-norm for each own output (k,), and its gradient (k, dim)."""
        form, p = self.search.form, self.search.form.p
        d = torch.from_numpy(self.unit * self.scale * v).requires_grad_()
        s = form.active(form.preparation.at((self.search.x + d).unsqueeze(0)))[0]
        r = torch.cat([torch.relu(s), torch.ones(1, dtype=torch.float64)])
        values, slopes = [], []
        for a in self.a:
            sides = []
            for side in (-a, a):
                terms = side.clamp(min=0.0) ** (1.0 / p) * r
                sides.append(torch.linalg.vector_norm(terms + 1e-14, p))
            value = (sides[0] - sides[1]) / self.unit
            (slope,) = torch.autograd.grad(value, d, retain_graph=True)
            values.append(float(value))
            slopes.append(slope.numpy() * self.unit * self.scale)
        return np.array(values), np.array(slopes)

    def solved(self) -> Tensor:
        """What SLSQP makes of the start, (dim,)."""
        dim, norm = len(self.start), self.search.norm
        low, high = ((end.numpy() / (self.unit * self.scale)) for end in self.search.bounds)
        v0 = self.start.numpy() / (self.unit * self.scale)
        kept: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

        def gap(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            v = w[:dim] - w[dim:] if norm == "l1" else w[:dim]
            key = v.tobytes()
            if key not in kept:
                kept.clear()
                kept[key] = self.gap(v)
            return kept[key]

        def slope(w: np.ndarray) -> np.ndarray:
            g = gap(w)[1]
            if norm == "l1":
                return np.concatenate([g, -g], 1)
            return np.concatenate([g, np.zeros((len(g), 1))], 1) if norm == "linf" else g

        inside = [{"type": "ineq", "fun": lambda w: gap(w)[0] - 1e-9, "jac": slope}]
        if norm == "l2":
            w0, box = v0, list(zip(low, high, strict=True))

            def aim(w: np.ndarray) -> tuple[float, np.ndarray]:
                return 0.5 * float((self.scale * w) @ (self.scale * w)), self.scale**2 * w

        elif norm == "l1":
            w0 = np.concatenate([np.maximum(v0, 0), np.maximum(-v0, 0)])
            box = [(0.0, max(0.0, e)) for e in high] + [(0.0, max(0.0, -e)) for e in low]

            def aim(w: np.ndarray) -> tuple[float, np.ndarray]:
                return float(w.sum()), np.ones_like(w)

        else:
            w0 = np.concatenate([v0, [np.abs(v0).max()]])
            box = [*zip(low, high, strict=True), (0.0, None)]
            one, eye = np.ones((dim, 1)), np.eye(dim)
            walls = np.concatenate([np.concatenate([eye, one], 1), np.concatenate([-eye, one], 1)])
            inside.append({"type": "ineq", "fun": lambda w: walls @ w, "jac": lambda w: walls})

            def aim(w: np.ndarray) -> tuple[float, np.ndarray]:
                return float(w[-1]), np.eye(dim + 1)[-1]

        options = {"maxiter": 100, "ftol": 1e-9}
        found = minimize(
            aim, w0, jac=True, bounds=box, constraints=inside, method="SLSQP", options=options
        ).x
        v = found[:dim] - found[dim:] if norm == "l1" else found[:dim]
        solved = torch.from_numpy(self.unit * self.scale * v)
        for longer in (1.0, 1 + 1e-8, 1 + 1e-6, 1 + 1e-5, 1 + 1e-4):
            moved = torch.clamp(longer * solved, *self.search.bounds)
            if float(self.search.margins(moved.unsqueeze(0))) <= 0:
                return moved
        return solved


def by_foolbox(problem: Problem, norm: str, name: str) -> Tensor:
    """A minimising attack of foolbox; its perturbations."""
    generator = torch.Generator().manual_seed(0)
    found = attack.foolbox_attack(
        problem.net,
        problem.x,
        problem.y,
        attack=name,
        options=FOOLBOX[norm][name],
        norm=norm,
        box=problem.box,
        generator=generator,
    )
    return found.x_adv - problem.x


def rivals(norm: str) -> dict[str, Callable[[Problem, str], Tensor]]:
    """All of a norm by name."""
    named: dict[str, Callable[[Problem, str], Tensor]] = {"search": by_search_and_descent}
    for name in FOOLBOX[norm]:
        named[name] = lambda problem, norm, name=name: by_foolbox(problem, norm, name)
    return named
