"""The Dash application: one page around the others, and what it loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from extremal.web import controls
from extremal.web.answer_pool import AnswerPool
from extremal.web.callback_errors import errors_as_text
from extremal.web.pages import images_page, playground_answers, playground_page, runs_page
from extremal.web.theme import looks

# The pages by their addresses.
PAGE_NAMES = {"/": "Playground", "/images": "Images", "/runs": "Runs"}
# The document around the pages, which Dash fills in.
INDEX_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title>
{%favicon%}
{%css%}
</head>
<body>
<noscript>The explorer needs JavaScript; extremal demo and extremal show NAME do not.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>
"""


def dash_app(pool: AnswerPool, stored: runs_page.RunPages) -> Dash:
    """All pages with their callbacks, without what protects the server."""
    app = Dash(
        __name__,
        title="extremal explorer",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        suppress_callback_exceptions=True,
        serve_locally=True,
        index_string=INDEX_HTML,
    )
    app.layout = _layout()
    app.callback(
        Output("page", "children"),
        Output("nav", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
    )(errors_as_text(_not_found)(_Pages(stored)))
    for name, joined in (
        (
            "theme",
            (
                Output("theme", "data"),
                Output("switch", "title"),
                Input("switch", "n_clicks"),
                State("theme", "data"),
            ),
        ),
        ("session", (Output("session", "data"), Input("session", "data"))),
        ("arrived", (Output("nav", "title"), Input("nav", "children"))),
    ):
        app.clientside_callback(ClientsideFunction("explorer", name), *joined)
    playground_page.add_callbacks(app, playground_answers.Playground(pool))
    images_page.add_callbacks(app, images_page.Images(pool))
    runs_page.add_callbacks(app, stored)
    return app


class _Pages:
    """The page for an address."""

    def __init__(self, stored: runs_page.RunPages) -> None:
        self._pages = {"/": playground_page.page, "/images": images_page.page, "/runs": stored.page}

    def __call__(self, path: Any, search: Any) -> tuple[Any, Any]:
        place = path if isinstance(path, str) else "/"
        page = self._pages.get(place)
        if page is None:
            return _not_found(f"There is no page {place[:80]}.")
        return page(search), _nav(place)


def _not_found(words: str) -> tuple[Any, Any]:
    return html.Div([html.H1("Not here"), html.P(words, role="alert")], className="plain"), _nav("")


def _nav(current: str) -> Any:
    return [
        dcc.Link(name, href=path, className="current" if path == current else "")
        for path, name in PAGE_NAMES.items()
    ]


def _layout() -> Any:
    return html.Div(
        [
            html.A("Skip to the content", href="#page", className="skip"),
            html.Header(
                [
                    dcc.Link("extremal", href="/", className="brand"),
                    html.Nav(_nav(""), id="nav", **controls.aria(label="Pages")),
                    html.Button(
                        "◐", id="switch", type="button", **controls.aria(label="Dark or light")
                    ),
                ]
            ),
            controls.message("lost"),
            html.Main(id="page", tabIndex="-1"),
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme"),
            dcc.Store(id="looks", data=looks()),
            dcc.Store(id="session"),
            dcc.Store(id="typed"),
        ]
    )
