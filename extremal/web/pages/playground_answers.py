"""What the playground answers: drawings and sentences for a set-up, and for a point of a plane."""

from __future__ import annotations

import functools
from typing import Any

from dash import html

from extremal.web.answer_pool import Pool, place_of
from extremal.web.playground_charts import draw_curve, draw_plane, draw_time
from extremal.web.playground_settings import Setup, read_probe, read_setup, read_turn
from extremal.web.playground_space import EXACT, PROJECTED, draw_space, track
from extremal.web.playground_training import Trained, survive, train_flow
from extremal.web.probing import regions
from extremal.web.recipe import recipe
from extremal.web.theme import Theme, empty, theme
from extremal.web.words import broken, followed, headline, told_regions


class Playground:
    """The callbacks of the playground; each takes what a browser sent, whatever that is."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def trained(self, setup: Setup, asker: object, turn: int) -> list[Trained]:
        """The trained networks of a set-up: one, or two to compare."""
        found = []
        for place, one in enumerate(setup.problems()):
            who = place_of(asker, f"flow {place}")
            work = functools.partial(train_flow, one)
            found.append(self._pool.ask(one, work, asker=who, turn=turn))
        return found

    def show(self, values: Any, look: Any, asker: Any) -> tuple[Any, ...]:
        """Everything that follows from the training alone."""
        chosen, setup, turn = theme(look), read_setup(values), read_turn(values)
        found = self.trained(setup, asker, turn)
        # Drawing costs as much as a small training: it, too, waits for a thread, and is kept.
        drawn: tuple[Any, ...] = self._pool.ask(
            ("drawn", setup, chosen),
            lambda _: _drawn(setup, found, chosen),
            asker=place_of(asker, "drawn"),
            turn=turn,
        )
        return drawn

    def survive(self, values: Any, look: Any, asker: Any) -> tuple[Any, ...]:
        """How far the test points hold: it comes after the training."""
        chosen, setup, turn = theme(look), read_setup(values), read_turn(values)
        found = []
        for place, trained in enumerate(self.trained(setup, asker, turn)):
            work = functools.partial(survive, trained)
            who = place_of(asker, f"radii {place}")
            key = ("radii", trained.setup)
            found.append(self._pool.ask(key, work, asker=who, turn=turn))
        return draw_curve(found, chosen), [html.P(broken(answer)) for answer in found], ""

    def probe(self, values: Any, point: Any, look: Any, asker: Any) -> tuple[Any, ...]:
        """The plane of two centres for each network, and what is said of the point."""
        chosen, setup = theme(look), read_setup(values)
        probe = read_probe(point, setup)
        turn = max(read_turn(values), read_turn(point))
        found = []
        for place, trained in enumerate(self.trained(setup, asker, read_turn(values))):
            work = functools.partial(regions, trained, probe)
            who = place_of(asker, f"plane {place}")
            found.append(self._pool.ask((trained.setup, probe), work, asker=who, turn=turn))
        powers = [each.p for each in setup.problems()]
        figures = [draw_plane(one, p, chosen) for one, p in zip(found, powers, strict=True)]
        told = [html.P(told_regions(one, p)) for one, p in zip(found, powers, strict=True)]
        return figures[0], figures[1] if len(figures) > 1 else empty(""), told, ""


def _drawn(setup: Setup, found: list[Trained], look: Theme) -> tuple[Any, ...]:
    """What `Playground.show` puts on the page."""
    several = len(found) > 1
    spaces = [draw_space(trained, look) for trained in found]
    return (
        spaces[0],
        spaces[1] if several else empty(""),
        "stage two" if several else "stage",
        draw_time(found, look),
        [_table(trained) for trained in found],
        [html.P(headline(trained)) for trained in found],
        recipe(setup),
        "",
        [track(trained) for trained in found],
        EXACT if setup.dim == 3 else PROJECTED.format(dim=setup.dim),
    )


def _table(trained: Trained) -> Any:
    rows = followed(trained)
    top = [html.Th(name, scope="col") for name in ("Direction", "Neurons", "Share", "Least cosine")]
    body = [
        html.Tr(
            [
                html.Th(row.name, scope="row"),
                html.Td(str(row.neurons)),
                html.Td(f"{100.0 * row.share:.0f} %"),
                html.Td(f"{row.lowest:.3f}"),
            ]
        )
        for row in rows
    ]
    about = f"p = {trained.setup.p:g}: the neurons that carry 99 % of the network"
    return html.Table([html.Caption(about), html.Thead(html.Tr(top)), html.Tbody(body)])
