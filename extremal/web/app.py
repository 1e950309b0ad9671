"""The application: one page around the others, what it loads, and what it lets in and out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from flask import Response, abort, request
from werkzeug.exceptions import HTTPException

from extremal.web import controls, downloads, wires
from extremal.web.answer_pool import Pool
from extremal.web.callback_errors import guarded
from extremal.web.pages import images_page, playground_answers, playground_page, runs_page

_log = logging.getLogger(__name__)
PAGES = {"/": "Playground", "/images": "Images", "/runs": "Runs"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LARGEST = 24_000_000  # bytes of a request: a model file, in the browser's encoding, and some more
_INDEX = """<!DOCTYPE html>
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


def create_app(
    out: str | Path = "runs", *, host: str = "127.0.0.1", pool: Pool | None = None
) -> Dash:
    """The explorer as a Dash application; `out` is the folder that holds the runs.

    On a loopback `host` only requests to a loopback name are answered, so that no other site's page
    can reach it through a name of its own.
    """
    torch.set_num_threads(1)  # one for each of the pool's threads
    pool = pool or Pool()
    app = Dash(
        __name__,
        title="extremal explorer",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        suppress_callback_exceptions=True,
        serve_locally=True,
        index_string=_INDEX,
    )
    app.layout = _layout()
    stored = runs_page.Runs(pool, Path(out))
    app.callback(
        Output("page", "children"),
        Output("nav", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
    )(guarded(_not_found)(_Pages(stored)))
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
    wires.add_callbacks(app, playground_answers.Playground(pool))
    images_page.add_callbacks(app, images_page.Images(pool))
    runs_page.add_callbacks(app, stored)
    downloads.add_download(app, stored)
    _protect(app, host)
    return app


class _Pages:
    """The page for an address."""

    def __init__(self, stored: runs_page.Runs) -> None:
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
        for path, name in PAGES.items()
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
            html.Main(id="page", tabIndex="-1"),
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme"),
            dcc.Store(id="session"),
            dcc.Store(id="typed"),
        ]
    )


def _protect(app: Dash, host: str) -> None:
    """Bounds on requests, and headers that keep everything on this server."""
    server: Any = app.server
    server.config["MAX_CONTENT_LENGTH"] = LARGEST
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )

    def check_host() -> None:
        name = request.host.rsplit(":", 1)[0].strip("[]")
        if host in LOOPBACK and name not in LOOPBACK:
            abort(403)

    def add_headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    def refused(error: Exception) -> Response:
        """One line for what went wrong; what fails outside of our guards is no question."""
        words, status = "something went wrong here; the server's log says what", 500
        if isinstance(error, HTTPException):
            words, status = error.name, error.code or 500
        else:
            _log.error("a request to %s failed: %.200r", request.path, error)
            if request.path.endswith("_dash-update-component"):
                words, status = "this is no question that the explorer knows", 400
        return Response(f"{words}\n", status=status, mimetype="text/plain")

    server.register_error_handler(Exception, refused)
    server.before_request(check_host)
    server.after_request(add_headers)
