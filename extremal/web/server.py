"""Serve the explorer on this machine."""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import Callable
from pathlib import Path

from werkzeug.serving import BaseWSGIServer, make_server

from extremal import _check
from extremal.web.answer_pool import Pool
from extremal.web.app import create_app

WAITING = 1024  # connections that may wait to be let in


def make(host: str, port: int, out: str | Path, pool: Pool | None = None) -> BaseWSGIServer:
    """A server that listens already, with a thread for each request; port 0 takes a free one."""
    _check.integer("port", port, minimum=0)
    _check.require(port < 65536, "port", "be below 65536", port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for each request
    app = create_app(out, host=host, pool=pool)
    try:
        server = make_server(host, port, app.server, threaded=True)
        server.socket.listen(WAITING)
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
    server = make(host, port, out)
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
