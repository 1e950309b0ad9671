"""Files of stored runs, to take along."""

from __future__ import annotations

from dash import Dash
from flask import Response, abort, request

from extremal.web.callback_errors import guarded
from extremal.web.pages.runs_page import Runs
from extremal.web.stored_runs import KINDS, file_name


def add_download(app: Dash, runs: Runs) -> None:
    """Serve the files at /download; other sites' pages can't have this machine draw them."""

    def send() -> Response:
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            abort(403)
        return _answer(runs, *(request.args.get(name) for name in ("name", "scale", "kind")))

    app.server.add_url_rule("/download", "download", send)


def _answer(runs: Runs, name: str | None, scale: str | None, kind: str | None) -> Response:
    """A file, or a sentence where there is none."""

    def failed(words: str) -> Response:
        return Response(words + "\n", status=404, mimetype="text/plain")

    def made() -> Response:
        response = Response(runs.file(name, scale, kind), mimetype=KINDS[str(kind)])
        named = f"attachment; filename={file_name(str(name), str(scale), str(kind))}"
        response.headers["Content-Disposition"] = named
        return response

    answer: Response = guarded(failed)(made)()
    return answer
