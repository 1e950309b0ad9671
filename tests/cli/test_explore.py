"""`extremal explore`: its mistakes and its warning."""

from __future__ import annotations

import importlib.util
import socket

import pytest


def test_without_dash_one_line_says_how_to_install_it(extremal, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "dash" else found(name, *rest),
    )
    code, out, err = extremal("explore")
    assert (code, out) == (2, "")
    assert err == "error: the explorer needs Dash; install it: pip install 'extremal[explore]'\n"


def test_a_port_that_is_taken_is_one_line(extremal):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = extremal("explore", "--no-open", "--port", str(port))
    assert code == 2
    assert f"port must be free on 127.0.0.1, got {port}" in err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none(extremal, port):
    code, _, err = extremal("explore", "--no-open", "--port", port)
    assert code == 2
    assert err.startswith("error: port must be")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_beyond_this_machine_it_warns(extremal, monkeypatch, host, warned):
    from extremal import web

    asked = []
    monkeypatch.setattr(web, "serve", lambda *given, **more: asked.append((given, more)))
    code, _, err = extremal("explore", "--no-open", "--host", host)
    assert code == 0
    assert asked[0][0][0] == host
    assert asked[0][1]["browse"] is False
    assert ("there is no password" in err) == warned
