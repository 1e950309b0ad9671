"""The server of the explorer: what it lets in and out, the files of runs, and where it listens."""

from __future__ import annotations

import io
import logging
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dash import Dash
from flask import Response, abort, request, send_file
from werkzeug.exceptions import HTTPException
from werkzeug.serving import BaseWSGIServer, make_server

from extremal import _check
from extremal.report.html_page import CONTENT_POLICY
from extremal.web.answer_pool import AnswerPool
from extremal.web.app import dash_app
from extremal.web.callback_errors import errors_as_text
from extremal.web.pages.runs_page import RunPages
from extremal.web.stored_runs import FILE_KINDS, file_name

_log = logging.getLogger(__name__)
# Names by which this machine calls itself.
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
# Bytes of a request: a model file, in the browser's encoding, and some more.
REQUEST_BYTES = 24_000_000
# The report's own policy; the frame that it is shown in is ours, and it may not act as one of us.
REPORT_POLICY = f"{CONTENT_POLICY}; frame-ancestors 'self'; sandbox allow-scripts allow-downloads"
# Connections that may wait to be let in.
CONNECTIONS_WAITING = 1024


def add_files(app: Dash, runs: RunPages) -> None:
    """Serve files at /download and reports at /report; other sites' pages can't have them made."""

    def asked(*names: str) -> list[str | None]:
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            abort(403)
        return [request.args.get(name) for name in names]

    def download() -> Response:
        name, scale, kind = asked("name", "scale", "kind")

        def found() -> Response:
            mimetype, _ = FILE_KINDS.get(str(kind), ("", ""))
            named = file_name(str(name), str(scale), str(kind))
            return _sent(runs.file(name, scale, kind), mimetype, named)

        return _or_sentence(found)

    def report() -> Response:
        name, scale = asked("name", "scale")
        response = _or_sentence(lambda: _sent(runs.report(name, scale), "text/html"))
        response.headers["Content-Security-Policy"] = REPORT_POLICY
        return response

    app.server.add_url_rule("/download", "download", download)
    app.server.add_url_rule("/report", "report", report)


def _sent(content: Path | bytes, mimetype: str, name: str | None = None) -> Response:
    """A file or bytes as a response; with a name as a file to keep."""
    whole = io.BytesIO(content) if isinstance(content, bytes) else content
    return send_file(whole, mimetype, as_attachment=name is not None, download_name=name)


def _or_sentence(found: Callable[[], Response]) -> Response:
    """A response, or a sentence where there is none."""

    def failed(words: str) -> Response:
        return Response(words + "\n", status=404, mimetype="text/plain")

    answer: Response = errors_as_text(failed)(found)()
    return answer


def _protect(app: Dash, host: str) -> None:
    """Bounds on requests, and headers that keep everything on this server."""
    server: Any = app.server
    server.config["MAX_CONTENT_LENGTH"] = REQUEST_BYTES
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )

    def check_host() -> None:
        name = request.host.rsplit(":", 1)[0].strip("[]")
        if host in LOOPBACK_NAMES and name not in LOOPBACK_NAMES:
            abort(403)

    def add_headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", policy)
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


def create_app(
    out: str | Path = "runs", *, host: str = "127.0.0.1", pool: AnswerPool | None = None
) -> Dash:
    """The explorer as a Dash application; `out` is the folder that holds the runs.

    On a loopback `host` only requests to a loopback name are answered, so that no other site's page
    can reach it through a name of its own.
    """
    torch.set_num_threads(1)  # one for each of the pool's threads
    pool = pool or AnswerPool()
    stored = RunPages(pool, Path(out))
    app = dash_app(pool, stored)
    add_files(app, stored)
    _protect(app, host)
    return app


def listening_server(
    host: str, port: int, out: str | Path, pool: AnswerPool | None = None
) -> BaseWSGIServer:
    """A server that listens already, with a thread for each request; port 0 takes a free one."""
    _check.integer("port", port, minimum=0)
    _check.require(port < 65536, "port", "be below 65536", port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for each request
    app = create_app(out, host=host, pool=pool)
    try:
        server = make_server(host, port, app.server, threaded=True)
        server.socket.listen(CONNECTIONS_WAITING)
        return server
    except SystemExit as error:  # what werkzeug makes of a port that is taken
        raise ValueError(f"port must be free on {host}, got {port}") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(f"host must be an address of this machine, got {host} ({why})") from error


def serve(
    host: str, port: int, out: str | Path, *, browse: bool, tell: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C; `tell` is told the address, and with `browse` a browser is."""
    server = listening_server(host, port, out)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{server.server_port}/"
    tell(f"{address}  (Ctrl-C ends it)")
    if browse:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        tell("ended")
    finally:
        server.server_close()
