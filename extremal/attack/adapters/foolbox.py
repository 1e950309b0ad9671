"""The attacks of foolbox, an optional package, on our networks, points and boxes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import NORM_ORDERS
from extremal.attack.adapters.unit_box import UnitBox, class_labels, global_seed, optional_library
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    CLEAN_NAME,
    AttackResult,
    check_points,
    verified,
)
from extremal.attack.ball import NORMS, Ball
from extremal.attack.fab import just_broken
from extremal.data import Box


def foolbox_attack(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    attack: object,
    options: Mapping[str, Any] | None = None,
    norm: str = "l2",
    radius: float | None = None,
    box: Box | None = None,
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by an attack of foolbox 3, and verify what it finds.

    With `radius=None` the attack must be one that minimises, and the radii found are the result's.
    Points are searched in their dtype in their `UnitBox` in [0, 1]; lengths among the options are
    in those units. A one-output network has two logits.

    Needs `pip install extremal[foolbox]`.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `attack`: an attack object of foolbox, or the name of a class in `foolbox.attacks`, made with
      `options`.
    - `options`: keyword arguments of the class; only where `attack` is a name.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf"; `attack` must be of it.
    - `radius`: of the ball, one number above 0; None (the default) for the smallest found.
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `generator`: a `torch.Generator`, the source of all random draws.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.choice("norm", norm, NORMS)
    limit = None if radius is None else _check.number("radius", radius, above=0.0)
    reach = limit or max(1.0, float(x.max() - x.min()))
    # A minimiser may go anywhere in the frame: this is the norm of its diagonal, and more.
    ball = Ball(norm, limit or 1e3 * reach * x.shape[1], box)
    _check.integer("batch", batch, minimum=1)
    _check.generator("generator", generator)
    library = _library()
    attacker = _attacker(library, attack, options, norm)
    result = verified(net, x, y, x, ball, CLEAN_NAME)
    frame = UnitBox.around(x, ball, reach)
    model = library.PyTorchModel(frame.network(net, x.dtype), bounds=(0, 1), device=x.device)
    eps = None if limit is None else limit / frame.width
    standing = torch.nonzero(~result.success).squeeze(1)
    done = len(x) - len(standing)
    with Bar("foolbox", len(x), progress) as bar, global_seed(generator):
        bar.done(done)
        for rows in standing.split(batch):
            part, labels = x[rows], y[rows]
            u = frame.inward(part, x.dtype)
            wanted = library.criteria.Misclassification(class_labels(labels))
            _, moved, _ = attacker(model, u, wanted, epsilons=eps)
            delta = frame.outward(moved.detach(), u, part, ball)
            if limit is None:
                delta = just_broken(net, part, labels, delta, ball)
            x_adv = ball.rounded_points(delta, part)
            sizes = ball if limit else Ball(norm, ball.norms(x_adv.double() - part.double()), box)
            name = f"foolbox-{type(attacker).__name__}"
            result = result.merged(rows, verified(net, part, labels, x_adv, sizes, name))
            done += len(rows)
            bar.done(done)
    return result


def _attacker(library: Any, attack: object, options: Mapping[str, Any] | None, norm: str) -> Any:
    kinds = library.attacks
    rule = "be an attack of foolbox, or the name of a class in foolbox.attacks"
    if isinstance(attack, str):
        kind: Any = getattr(kinds, attack, None)
        known = isinstance(kind, type) and issubclass(kind, kinds.Attack)
        _check.require(known, "attack", rule, attack)
        attack = kind(**(options or {}))
    else:
        _check.instance("attack", attack, kinds.Attack, rule)
        _check.require(options is None, "options", "come with the name of an attack", options)
    own = getattr(_distance(attack), "p", NORM_ORDERS[norm])
    rule = f"be of the norm {norm}"
    _check.require(own == NORM_ORDERS[norm], "attack", rule, f"one of order {own:g}")
    return attack


def _distance(attack: Any) -> Any:
    """The distance that an attack is made for, None where it leaves that open."""
    try:
        return attack.distance
    except ValueError:
        return None


def _library() -> Any:
    # Its zoo imports GitPython, which without this refuses to load where there is no git.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it names an old part of scipy
        return optional_library("foolbox", "foolbox_attack", "foolbox")
