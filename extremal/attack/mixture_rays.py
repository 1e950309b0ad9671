"""The attack directions that Min & Vidal 2024 write down, and the search along given rays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar
from extremal._tensors import batches
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    attack_in_batches,
    check_attack,
    worst,
)
from extremal.attack.ball import Ball
from extremal.attack.surrogate import stopping_margin, surrogate_network
from extremal.data import Box, Dataset, GaussianClusters
from extremal.models import margin

# These shares of the radius are tried along a ray.
RADIUS_FRACTIONS = (0.25, 0.5, 0.75, 0.9, 1.0)
# Where nothing shorter is known, rays are as long as so many times the longest centre.
_FIRST_RAY_CENTRES = 2.0
# Each pass along the rays looks at shares of the radius known, from the first on by the step.
_FIRST_SHARE_AND_STEP = ((0.0, 0.05), (0.8, 0.01), (0.99, 0.0005))
# A pass looks at so many shares, the last of which is the radius known.
_SHARES_OF_A_PASS = 20


def average_direction(mixture: GaussianClusters) -> Tensor:
    """d_0 along the sum of the positive centres minus that of the negative ones, (dim,), of norm 1.

    Zero where these sums are the same, so that there is no such direction.
    The attack on (x, y) is x - y r d_0; it breaks the average classifier F of an orthonormal
    mixture near r = 1/sqrt(K) (Min & Vidal 2024, Theorem 1), and averaged features in general (Li
    et al. 2025: epsilon along -sum over J_+ + sum over J_-).

    Arguments:

    - `mixture`: `GaussianClusters` with both classes -1 and +1; anything else is a ValueError.
    """
    _check_mixture(mixture)
    toward = mixture.labels.double() @ mixture.centers
    return nn.functional.normalize(toward, dim=0)


def center_directions(
    mixture: GaussianClusters, group: Tensor, *, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """-mu_k + mu_l, of norm 1, for each point's own centre k and each opposing l in turn.

    Each item is (n, dim). Min & Vidal 2024, Section C.4; it breaks the subclass classifier F^(p),
    p >= 2, near r = sqrt(2)/2. The classes may differ in size: the smaller one's points then meet
    some l twice.

    Arguments:

    - `mixture`: `GaussianClusters` with both classes -1 and +1; anything else is a ValueError.
    - `group`: each point's own cluster k, integers (n,) in 0..K-1.
    - `dtype`: of the directions; float64 by default.
    """
    group = _checked_group(mixture, group)
    centers = mixture.centers.to(group.device, dtype)
    labels = mixture.labels.to(group.device)
    plus, minus = (torch.nonzero(labels == sign).squeeze(1) for sign in (1, -1))
    own_positive = labels[group] == 1
    opposing = (
        torch.where(own_positive, minus[j % len(minus)], plus[j % len(plus)])
        for j in range(max(len(plus), len(minus)))
    )
    return (nn.functional.normalize(centers[other] - centers[group]) for other in opposing)


def ray_attack(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    directions: Tensor | Iterable[Tensor],
    ball: Ball,
    *,
    fractions: Sequence[float] = RADIUS_FRACTIONS,
    name: str = "ray",
    batch: int = ATTACK_BATCH_POINTS,
) -> AttackResult:
    """Attack along rays: x + s radius u/||u|| for each direction u and each fraction s.

    ||u|| is the ball's norm, and the step is cut by the box. Kept is the shortest step that breaks
    the point, else the one of least margin. One direction is in memory at a time.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `directions`: one (dim,) or (n, dim) tensor, or an iterable of them; their lengths do not
      count.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `fractions`: of the radius that are tried, one or more in (0, 1]; five by default, 0.25 to 1.
    - `name`: of the attack in the result; "ray" by default.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    """
    y = check_attack(net, x, y, ball, batch)
    _check.instance("fractions", fractions, Collection, "be a sequence of numbers")
    _check.require(len(fractions) > 0, "fractions", "hold at least one number", fractions)
    shares = sorted(_check.number("fractions", s, above=0.0, maximum=1.0) for s in fractions)
    rule = "be a tensor, or tensors one after the other"
    _check.instance("directions", directions, Iterable, rule)
    twin = surrogate_network(net, x)
    with torch.no_grad():
        start = torch.cat([margin(twin, x[at], y[at]) for at in batches(len(x), batch)])
        best = BestPerturbations.begin(torch.zeros_like(x), stopping_margin(start))
        for direction in [directions] if isinstance(directions, Tensor) else directions:
            _check_direction(direction, x)
            for at in batches(len(x), batch):
                ray = direction if direction.ndim == 1 else direction[at]
                rows = torch.arange(at.start, at.stop, device=x.device)
                _try_ray(twin, x, y, ray, ball, shares, best, rows)

    def search(rows: slice) -> Tensor:
        return ball.take(rows).project(best.delta[rows], x[rows])

    bar = Bar(name, len(x), progress=False)
    return attack_in_batches(search, net, x, y, ball, name, batch, bar)


def mixture_attack(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    mixture: GaussianClusters,
    group: Tensor | None,
    ball: Ball,
    *,
    batch: int = ATTACK_BATCH_POINTS,
) -> AttackResult:
    """The worst of both closed forms; without the subclasses `group`, of d_0 alone.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), -1 / +1; others are a ValueError.
    - `mixture`: `GaussianClusters` with both classes -1 and +1; anything else is a ValueError.
    - `group`: each point's cluster in `mixture`, integers (n,) in 0..K-1 of the class `y`, or None.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    """
    y = check_attack(net, x, y, ball)
    signed = bool((y.abs() == 1).all())
    _check.require(signed, "y", "be -1 or +1 with a mixture", "other labels")
    away = -y.unsqueeze(1).to(x.dtype) * average_direction(mixture).to(x)
    result = ray_attack(net, x, y, away, ball, name="average", batch=batch)
    if group is None:
        return result
    group = _checked_group(mixture, group).to(x.device)
    matched = len(group) == len(x) and bool((mixture.labels.to(x.device)[group] == y).all())
    rule = "hold each point's subclass, which must be one of its own class"
    _check.require(matched, "group", rule, group.tolist())
    centers = center_directions(mixture, group, dtype=x.dtype)
    return worst([result, ray_attack(net, x, y, centers, ball, name="center", batch=batch)])


def shortened_along_rays(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    found: AttackResult,
    rays: Sequence[Tensor] = (),
    *,
    mixture: GaussianClusters | None = None,
    group: Tensor | None = None,
    norm: str = "l2",
    box: Box | None = None,
    batch: int = ATTACK_BATCH_POINTS,
) -> AttackResult:
    """What was found, or what is shorter along rays: those given, and those of the mixture.

    The latter lead from each point's own centre to each opposing one or, without `group`, along the
    classes' averages. Each pass looks at shares of the smallest radius known, ever more finely.
    """
    away = []
    if mixture is not None and group is None:
        away = [-y.unsqueeze(1).to(x.dtype) * average_direction(mixture).to(x)]
    longest = max((float(ray.norm(dim=-1).max()) for ray in rays), default=0.0)
    if mixture is not None:
        longest = _FIRST_RAY_CENTRES * float(mixture.centers.norm(dim=1).max())
    for first, step in _FIRST_SHARE_AND_STEP:
        ball = Ball(norm, found.radius.clamp(max=longest), box)
        shares = [first + step * i for i in range(1, _SHARES_OF_A_PASS + 1)]
        centers = (
            center_directions(mixture, group, dtype=x.dtype)
            if mixture is not None and group is not None
            else ()
        )
        ways = chain(rays, away, centers)
        tried = ray_attack(net, x, y, ways, ball, fractions=shares, name="rays", batch=batch)
        found = worst([found, tried])
    return found


def _try_ray(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ray: Tensor,
    ball: Ball,
    shares: Sequence[float],
    best: BestPerturbations,
    rows: Tensor,
) -> None:
    """Try growing shares of the radius along a ray (dim,) or (m, dim) from the points at `rows`.

    A zero ray stays zero. Perturbations are compared by the share of the radius that they take.
    """
    part, inner = x[rows], ball.take(rows)
    ray = ray.to(x).expand_as(part)
    length = inner.norms(ray)
    scale = inner.radii(part) / torch.where(length > 0, length, 1.0)
    full = scale.to(x.dtype).unsqueeze(1) * ray
    bounds = inner.bounds(part)
    for share in shares:
        left = torch.nonzero(best.size[rows] > share).squeeze(1)
        if len(left) == 0:
            return
        delta = share * full[left]
        if bounds is not None:
            delta = torch.clamp(delta, bounds[0][left], bounds[1][left])
        some = rows[left]
        value = margin(net, x[some] + delta, y[some])
        best.note_better(some, value, delta, torch.full_like(value, share, dtype=torch.float64))


def _check_direction(direction: Tensor, x: Tensor) -> None:
    rule = f"be floating-point tensors of shape {tuple(x.shape[1:])} or {tuple(x.shape)}"
    _check.instance("directions", direction, Tensor, rule)
    shape = x.shape[1:] if direction.ndim == 1 else x.shape
    _check.tensor("directions", direction, tuple(shape), rule=rule)


def known_clusters(data: Dataset) -> GaussianClusters | None:
    """What made the data, where it has the closed forms and the data have their labels.

    Arguments:

    - `data`: a `Dataset`; None is returned unless its `source` is `GaussianClusters` with classes
      -1 and +1 in as many coordinates, and its labels are -1 / +1.
    """
    if not two_classes(data.source) or not data.signed:
        return None
    clusters: GaussianClusters = data.source
    return clusters if clusters.dim == data.dim else None


def two_classes(source: object) -> bool:
    """Whether this is something that the closed forms are for: clusters of classes -1 and +1."""
    return isinstance(source, GaussianClusters) and set(source.labels.tolist()) == {-1, 1}


def _check_mixture(mixture: object) -> None:
    rule = "be GaussianClusters of two classes, -1 and +1"
    _check.instance("mixture", mixture, GaussianClusters, rule)
    _check.require(two_classes(mixture), "mixture", rule, mixture)


def _checked_group(mixture: GaussianClusters, group: Tensor) -> Tensor:
    _check_mixture(mixture)
    rule = f"be an integer (n,) tensor with entries in 0..{mixture.count - 1}"
    _check.tensor("group", group, ("n",), whole=True, rule=rule)
    inside = int(group.min()) >= 0 and int(group.max()) < mixture.count
    _check.require(inside, "group", rule, f"{int(group.min())}..{int(group.max())}")
    return group.to(torch.int64)
