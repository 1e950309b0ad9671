"""Which question an answer belongs to, so that a page never passes an old answer off as a new one.

Every move on a page has a turn, which rises. An answer brings the turn of its question along, into
two stores of its group: what is shown, and what was answered last, be it by an error. The browser
holds both against the turn of the last move (assets/answers.js) and marks groups that show another
question's answer as old, and those that wait for one as being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from extremal.web.callback_errors import errors_as_text
from extremal.web.playground_settings import read_turn


@dataclass(frozen=True)
class Group:
    """Panels that are answered together."""

    asked: tuple[str, ...]  # the stores that hold its question; the highest of their turns counts
    words: str  # what is said while it is computed


def group_stores(groups: Mapping[str, Group]) -> list[Any]:
    """What the browser knows of the groups of a page, and the turns of what each shows."""
    turns = [dcc.Store(id=f"{kind}-{one}") for one in groups for kind in ("shown", "answered")]
    return [
        dcc.Store(id="groups", data={name: asdict(one) for name, one in groups.items()}),
        *turns,
    ]


def old_line(ident: str) -> Any:
    """Says of which settings a panel is while it is old; `of-ident` holds them."""
    return html.P([html.B("Old: "), html.Span(id=f"of-{ident}")], className="old")


def badge(root: str) -> Any:
    """Says what is being computed on a page, by the words of the first group that is."""
    return html.Div(id=f"busy-{root}", className="busy", role="status", hidden=True)


def add_answer(
    app: Dash,
    group: str,
    callback: Callable[..., dict[str, Any]],
    outputs: Mapping[str, Output],
    inputs: Sequence[Input],
) -> None:
    """Connect a callback with its group's outputs, stores and place for a message.

    The callback returns a value for each name of `outputs`. Where it fails, what is shown stays,
    and counts as old.
    """
    places = {
        "shown": Output(f"shown-{group}", "data"),
        "answered": Output(f"answered-{group}", "data"),
        "message": Output(f"message-{group}", "children"),
    }

    def failed(words: str) -> dict[str, Any]:
        return {**dict.fromkeys((*outputs, "shown"), no_update), "message": words}

    guarded = errors_as_text(failed)(callback)

    def answer(*values: Any) -> dict[str, Any]:
        turn = max(map(read_turn, values))
        return {"shown": turn, "message": "", "answered": turn, **guarded(*values)}

    app.callback(
        output={**outputs, **places},
        inputs=list(inputs),
        state=[State("session", "data")],
        prevent_initial_call=True,
    )(answer)


def add_marks(app: Dash, root: str, groups: Mapping[str, Group]) -> None:
    """Have the browser mark a page's root with the groups that are old and those that are computed.

    It does so twice, at a move and at an answer: Dash holds back what waits for an answer's output
    until that has come, and a move must be marked before.
    """
    asked = list(dict.fromkeys(store for one in groups.values() for store in one.asked))
    turns = [f"{kind}-{group}" for group in groups for kind in ("shown", "answered")]
    places = [(root, "data-old"), (root, "data-computing")]
    places += [(f"busy-{root}", "hidden"), (f"busy-{root}", "children")]
    mark, known = ClientsideFunction("answers", "marks"), State("groups", "data")
    app.clientside_callback(
        mark,
        *(Output(*place) for place in places),
        Input("lost", "children"),
        *(Input(store, "data") for store in asked),
        *(State(store, "data") for store in turns),
        known,
    )
    app.clientside_callback(
        mark,
        *(Output(*place, allow_duplicate=True) for place in places),
        *(Input(store, "data") for store in turns),
        State("lost", "children"),
        *(State(store, "data") for store in asked),
        known,
        prevent_initial_call=True,
    )


def add_paint(app: Dash, graph: str) -> None:
    """Have the browser paint what was drawn for a graph, in its theme.

    A switch of the theme is a callback of its own: it must not wait for a drawing either.
    """
    drawn, looks = f"{graph}-drawn", State("looks", "data")
    app.clientside_callback(
        ClientsideFunction("answers", "paint"),
        Output(graph, "figure"),
        Input(drawn, "data"),
        State("theme", "data"),
        looks,
    )
    app.clientside_callback(
        ClientsideFunction("answers", "repaint"),
        Output(graph, "figure", allow_duplicate=True),
        Input("theme", "data"),
        State(drawn, "data"),
        looks,
        prevent_initial_call=True,
    )
