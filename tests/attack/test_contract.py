"""One contract for every attack: what it returns holds in float64, whatever the network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import extremal.attack
from extremal.attack import (
    AttackResult,
    Ball,
    apgd,
    auto_attack,
    boundary,
    foolbox_attack,
    linear_steps,
    minimal,
    mixture_attack,
    pgd,
    published_pgd,
    radii_pgd,
    random_search,
    ray_attack,
    run,
    shortest,
)
from extremal.data import OrthonormalMixture
from extremal.models import Grouped, Kaiming, PReLUNet, Preparation
from tests.attack.balls import BOXES, NORMS, make_box, make_points

DIM, COUNT = 16, 6
RADII = {"l1": 1.5, "l2": 0.5, "linf": 0.15}


@dataclass(frozen=True)
class Case:
    """An attack with its settings: what it can do, and whether chance has a part in it."""

    attack: Callable[..., AttackResult]
    settings: dict
    norms: tuple[str, ...] = NORMS
    boxes: tuple[str, ...] = BOXES
    by_ball: bool = True
    radius: bool = True
    random: bool = False
    seeded: bool = True  # takes a generator, be it for nothing
    shallow: bool = False  # shallow networks alone
    one_radius: bool = False  # and not one for each point
    shared: bool = True  # takes `batch`
    told: bool = True  # takes `progress`
    models: tuple[str, ...] | None = None  # all, if none is named
    slow: bool = False  # tried at one norm and box of each model

    def __call__(self, net, x, y, norm, box, generator, radius=None, **others):
        radius = RADII[norm] if radius is None else radius
        settings = {**self.settings, **others}
        if self.seeded:
            settings["generator"] = generator
        if self.by_ball:
            return self.attack(net, x, y, ball=Ball(norm, radius, box), **settings)
        if self.radius:
            settings["radius"] = radius
        return self.attack(net, x, y, norm=norm, box=box, **settings)

    @property
    def home(self):
        """The model of tests that need one alone."""
        return "ten-class" if self.models is None else self.models[0]

    def takes(self, model):
        known = self.models is None or model in self.models
        return known and (model in SHALLOW or not self.shallow)


def fmn(net, x, y, *, norm, **settings):
    """The minimising attack of foolbox for each norm."""
    name = {"l1": "L1FMNAttack", "l2": "L2FMNAttack", "linf": "LInfFMNAttack"}[norm]
    return foolbox_attack(net, x, y, attack=name, options={"steps": 10}, norm=norm, **settings)


def as_published(net, x, y, *, norm, box, **settings):
    return published_pgd(net, x, y, **settings)


def at_radii(net, x, y, *, norm, box, radius, **settings):
    """Half of a radius first, and then all of it."""
    return radii_pgd(net, x, y, radii=[0.5 * radius, radius], steps=20, step=0.1, **settings)


def at_rays(net, x, y, *, ball, **settings):
    """Both ways along every other axis."""
    axes = torch.eye(DIM)[::2]
    return ray_attack(net, x, y, [*axes, *-axes], ball, **settings)


def by_closed_forms(net, x, y, *, ball, **settings):
    """The directions of a mixture, of which no more than the first is known of these points."""
    mixture = OrthonormalMixture(DIM, 2, 2, 0.1)
    return mixture_attack(net, x, y, mixture, None, ball, **settings)


PLAIN = {"norms": ("l2",), "boxes": ("none",)}
ATTACKS = {
    "pgd": Case(pgd, {"steps": 10, "step": 0.1}, seeded=False),
    "published-pgd": Case(as_published, {}, by_ball=False, seeded=False, **PLAIN),
    "radii-pgd": Case(at_radii, {}, by_ball=False, seeded=False, one_radius=True, **PLAIN),
    "linear-steps": Case(linear_steps, {}, seeded=False, shallow=True),
    "shortest": Case(shortest, {}, by_ball=False, radius=False, seeded=False, shallow=True),
    "minimal": Case(minimal, {"steps": 10}, by_ball=False, radius=False),
    "along": Case(at_rays, {}, seeded=False, told=False),
    "structured": Case(by_closed_forms, {}, seeded=False, told=False, models=("one-logit",)),
    "run": Case(run, {"steps": 10}, by_ball=False, random=True),
    "apgd": Case(apgd, {"steps": 10}),
    "apgd-random": Case(
        apgd,
        {"steps": 8, "objective": "cross-entropy", "start": "random", "restarts": 2},
        random=True,
    ),
    "apgd-targeted": Case(apgd, {"steps": 10, "objective": "dlr", "targets": 3}),
    "random-search": Case(random_search, {"steps": 25}, random=True),
    "boundary": Case(boundary, {"steps": 10, "targets": 2}, by_ball=False, radius=False),
    "autoattack": Case(
        auto_attack, {"version": "apgd-ce"}, by_ball=False, random=True, one_radius=True, slow=True
    ),
    "autoattack-square": Case(
        auto_attack,
        {"version": "square", "queries": 10},
        by_ball=False,
        random=True,
        one_radius=True,
    ),
    "foolbox-fmn": Case(fmn, {}, by_ball=False, radius=False),
}


def shallow(outputs: int, **settings) -> PReLUNet:
    generator = torch.Generator().manual_seed(3)
    return PReLUNet(DIM, 20, 3.0, outputs, init=Kaiming(), generator=generator, **settings)


def prepared(outputs: int) -> PReLUNet:
    middle = Preparation(scale=1.5, center=torch.full((DIM,), 0.4), normalize=2 / 3)
    return shallow(outputs, bias=True, hidden_bias=True, preparation=middle)


def layers(*parts: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(4)
    net = nn.Sequential(*parts)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return net


MODELS = {
    "one-logit": lambda: shallow(1, preparation=Preparation(center=torch.full((DIM,), 0.4))),
    "two-class": lambda: prepared(2),
    "ten-class": lambda: prepared(10),
    "grouped": lambda: Grouped(prepared(6), torch.tensor([0, 1, 2, 0, 1, 2])),
    "mlp": lambda: layers(nn.Linear(DIM, 12), nn.Tanh(), nn.Linear(12, 4)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        layers(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
    ),
}


SHALLOW = ("one-logit", "two-class", "ten-class", "grouped")


def scene(model: str, box: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Points that the network gets right, but for the last one."""
    net = MODELS[model]()
    x = make_points(box, COUNT, DIM, torch.Generator().manual_seed(5)).float()
    with torch.no_grad():
        out = net(x)
    if out.ndim == 1:
        y = torch.where(out > 0, 1, -1)
        y[-1] *= -1
    else:
        y = out.argmax(1)
        y[-1] = (y[-1] + 1) % out.shape[1]
    return net, x, y


def float_box(kind: str) -> tuple[float, float] | tuple[Tensor, Tensor] | None:
    box = make_box(kind, DIM)
    return tuple(end.float() for end in box) if kind == "tensors" else box


def margins(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        out = net.double()(x.double())
    if out.ndim == 1:
        return y * out
    own = out.gather(1, y[:, None]).squeeze(1)
    others = [out[i, torch.arange(out.shape[1]) != y[i]].max() for i in range(len(y))]
    return own - torch.stack(others)


def sizes(norm: str, x: Tensor, x_adv: Tensor) -> Tensor:
    order = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}[norm]
    return torch.linalg.vector_norm(x_adv.double() - x.double(), order, dim=1)


def places(case: Case, model: str) -> list[tuple[str, str]]:
    """Two norms and boxes for each of the first three models, one for each other: all nine."""
    turn = list(MODELS).index(model)
    mine = [(norm, BOXES[(i + turn) % 3]) for i, norm in enumerate(NORMS)]
    last = mine.pop(turn % 3)
    mine = [last] if turn >= 3 else mine[: 1 if case.slow else 2]
    allowed = [(norm, box) for norm, box in mine if norm in case.norms and box in case.boxes]
    return allowed or [(case.norms[0], case.boxes[0])]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_returned_holds_in_float64(name, model):
    case = ATTACKS[name]
    if not case.takes(model):
        return
    for norm, kind in places(case, model):
        net, x, y = scene(model, kind)
        before, box = x.clone(), float_box(kind)
        result = case(net, x, y, norm, box, torch.Generator().manual_seed(0))
        assert torch.equal(x, before)
        assert result.x_adv.shape == x.shape
        assert result.x_adv.dtype == x.dtype
        assert bool(torch.isfinite(result.x_adv).all())
        size = sizes(norm, x, result.x_adv)
        if case.radius:
            assert bool((size <= RADII[norm] * (1 + 1e-5)).all())
        if box is not None:
            assert bool(((result.x_adv >= box[0]) & (result.x_adv <= box[1])).all())
        found = margins(net, result.x_adv, y)
        assert torch.equal(result.success, found <= 0)
        torch.testing.assert_close(result.margin, found)
        wanted = torch.where(result.success, size, torch.inf)
        torch.testing.assert_close(result.radius, wanted)
        assert float(result.radius[-1]) == 0.0
        assert result.name[-1] == "clean"
        assert torch.equal(result.x_adv[-1], x[-1])


@pytest.mark.parametrize("model", [model for model in MODELS if model not in SHALLOW])
@pytest.mark.parametrize("name", [name for name, case in ATTACKS.items() if case.shallow])
def test_attacks_that_know_the_network_refuse_others(name, model):
    net, x, y = scene(model, "none")
    with pytest.raises(ValueError, match="net must be a PReLUNet or a Grouped one for an attack"):
        ATTACKS[name](net, x, y, "l2", None, torch.Generator())


@pytest.mark.parametrize("name", ATTACKS)
def test_far_enough_something_breaks(name):
    """So that the contract is about more than points that stand."""
    case, broken = ATTACKS[name], 0
    for norm in case.norms:
        net, x, y = scene("one-logit", "none")
        result = case(net, x, y, norm, None, torch.Generator().manual_seed(0), 4 * RADII[norm])
        broken += int(result.success[:-1].sum())
    assert broken >= 2 * len(case.norms)


@pytest.mark.parametrize("name", [name for name in ATTACKS if "published" not in name])
def test_one_seed_gives_the_same_bytes(name):
    case = ATTACKS[name]
    net, x, y = scene(case.home, case.boxes[-1])
    norm, box = case.norms[-1], float_box(case.boxes[-1])
    seeds = (1, 1) if case.random else (1, 1, 2)
    first, *others = (
        case(net, x, y, norm, box, torch.Generator().manual_seed(seed), 0.1).x_adv for seed in seeds
    )
    for other in others:
        assert first.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize(
    "name", [name for name, case in ATTACKS.items() if case.shared and not case.random]
)
def test_batches_do_not_change_what_is_found(name):
    case = ATTACKS[name]
    net, x, y = scene(case.home, case.boxes[-1])
    x, norm, box = x.double(), case.norms[-1], float_box(case.boxes[-1])
    whole = case(net, x, y, norm, box, torch.Generator().manual_seed(1))
    parts = case(net, x, y, norm, box, torch.Generator().manual_seed(1), batch=4)
    assert whole.name == parts.name
    torch.testing.assert_close(whole.margin, parts.margin, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ATTACKS)
def test_per_sample_radii(name):
    case = ATTACKS[name]
    if not case.radius or case.one_radius:
        return
    net, x, y = scene("mlp" if case.takes("mlp") else case.home, case.boxes[-1])
    norm, box = case.norms[-1], float_box(case.boxes[-1])
    radius = RADII[norm] * torch.linspace(0.0, 2.0, COUNT, dtype=torch.float64)
    result = case(net, x, y, norm, box, torch.Generator().manual_seed(0), radius)
    assert bool((sizes(norm, x, result.x_adv) <= radius * (1 + 1e-5)).all())
    assert not bool(result.success[0])


@pytest.mark.parametrize("name", ATTACKS)
def test_bad_input_is_named(name):
    case = ATTACKS[name]
    net, x, y = scene(case.home, "none")
    labelled = "y must lie in 0..9" if case.home == "ten-class" else "y must be -1 or"
    norm, generator = case.norms[-1], torch.Generator()
    hole = x.clone()
    hole[2, 3] = torch.nan
    for said, points, labels in [
        ("x must be finite", hole, y),
        ("x must be a floating-point tensor of shape", x[0], y),
        ("x must be a floating-point tensor of shape", x.long(), y),
        ("y must have shape", x, y[:3]),
        (labelled, x, y + 9),
        ("y must be whole numbers", x, y + 0.5),
    ]:
        with pytest.raises(ValueError, match=said):
            case(net, points, labels, norm, None, generator)
    with pytest.raises(ValueError, match=r"net must be a torch\.nn\.Module"):
        case(lambda x: x, x, y, norm, None, generator)
    if case.shared:
        with pytest.raises(ValueError, match="batch must be an integer >= 1"):
            case(net, x, y, norm, None, generator, batch=0)
    if case.told:
        with pytest.raises(ValueError, match="progress must be True, False or a function"):
            case(net, x, y, norm, None, generator, progress=3)
    if len(case.boxes) > 1:
        with pytest.raises(ValueError, match=r"x must lie in the box|box must contain every"):
            case(net, x + 2.0, y, norm, (0.0, 1.0), generator)
    if case.seeded and case.random:
        with pytest.raises(ValueError, match=r"generator must be a torch\.Generator"):
            case(net, x, y, norm, None, 3)


@pytest.mark.parametrize("model", ["ten-class", "mlp"])
@pytest.mark.parametrize("name", [name for name, case in ATTACKS.items() if case.told])
def test_progress_goes_on_by_batches_to_its_end(name, model):
    case, said = ATTACKS[name], []
    if not case.takes(model):
        return
    net, x, y = scene(model, "none")
    norm, generator = case.norms[-1], torch.Generator().manual_seed(0)
    radius = 1e-3  # so small that all points are met by all parts
    told = {"batch": 2, "progress": lambda *words: said.append(words)}
    case(net, x, y, norm, None, generator, radius, **told)
    (total,) = {total for _, _, total in said}
    counts = [done for _, done, _ in said]
    assert total % COUNT == 0
    assert counts == sorted(counts)
    assert counts[-1] == total
    assert len(set(counts)) >= 3 * total // COUNT  # three batches for each attack


def test_every_public_attack_is_here():
    """All functions of the package that attack points, by their signature."""
    points = ("net", "x", "y")
    public = {
        name: value
        for name, value in vars(extremal.attack).items()
        if name in extremal.attack.__all__ and inspect.isfunction(value)
    }
    attacks = {
        name
        for name, value in public.items()
        if tuple(inspect.signature(value).parameters)[:3] == points
    }
    attacks.remove("verified")  # which measures what an attack returns
    here = {
        word for case in ATTACKS.values() for word in inspect.getclosurevars(case.attack).globals
    } | {case.attack.__name__ for case in ATTACKS.values()}
    assert attacks <= here, attacks - here
