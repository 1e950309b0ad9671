"""Radii on the mixture from both sides, with the rays that its centres suggest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from extremal import attack, certify
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import check_bracket
from extremal.experiments.papers.shared.robust_numbers import Bracket

_FAR = 2.0  # length of the first rays, where nothing shorter is known
_PASSES = ((0.0, 0.05), (0.8, 0.01), (0.99, 0.0005))  # of the rays: first share, and step
_SHARES = 20


def strongest(
    net: nn.Module, data: Dataset, generator: torch.Generator, rays: Sequence[Tensor] = ()
) -> attack.AttackResult:
    """The smallest perturbation found for each point of a mixture's data.

    `attack.minimal`; then `rays` (n, dim), such as what broke another classifier, and those from
    each own centre to each opposing one, searched ever more finely. For p >= 5 gradients toward far
    neurons vanish so fast that attacks which follow them end at places where several opposing
    centres share the way, up to a quarter too far.
    """
    mixture, group = data.source, data.group
    assert isinstance(mixture, OrthonormalMixture)
    assert group is not None
    found = attack.minimal(net, data.x, data.y, generator=generator)
    for first, step in _PASSES:
        ball = attack.Ball("l2", found.radius.clamp(max=_FAR))
        shares = [first + step * i for i in range(1, _SHARES + 1)]
        ways = chain(rays, attack.center_directions(mixture, group, dtype=data.x.dtype))
        tried = attack.ray_attack(net, data.x, data.y, ways, ball, fractions=shares, name="rays")
        found = attack.worst([found, tried])
    return found


def both_sides(
    net: nn.Module,
    data: Dataset,
    generator: torch.Generator,
    certified: int | None = None,
    rays: Sequence[Tensor] = (),
) -> Bracket:
    """Each point's attacked radius, and the certified one of the first `certified`, or of all."""
    found = strongest(net, data, generator, rays)
    few = slice(certified)
    lower = certify.radius(net, data.x[few], data.y[few], attacked=found.x_adv[few])
    check_bracket(lower, found.radius[few], "l2, on the mixture")
    return Bracket(found.radius, lower)
