"""Many people at once: users who move sliders of an explorer on loopback, and what comes of it.

python tools/load.py --users 50 --seconds 60
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

PAUSE = 1.0  # seconds between two moves of a user, on average
START = """
import sys
from extremal.web import serve
serve("127.0.0.1", 0, sys.argv[1], browse=False, tell=lambda line: print(line, flush=True))
"""
OUTPUTS = (
    "..space-0.figure...space-1.figure...stage.className...over-time.figure...curve.figure..."
    "followed.children...headline.children...code.children...message.children...tracks.data..."
    "moment.max...moment.value...view.children.."
)


def body(setup: dict[str, Any], user: str) -> bytes:
    """What the browser sends when a slider of the playground was moved."""
    outputs = [
        dict(zip(("id", "property"), name.rsplit(".", 1), strict=True))
        for name in OUTPUTS.strip(".").split("...")
    ]
    return json.dumps(
        {
            "output": OUTPUTS,
            "outputs": outputs,
            "inputs": [
                {"id": "setup", "property": "data", "value": setup},
                {"id": "theme", "property": "data", "value": "light"},
            ],
            "state": [{"id": "session", "property": "data", "value": user}],
            "changedPropIds": ["setup.data"],
        }
    ).encode()


class User(threading.Thread):
    """Somebody who moves a slider about once a second, without waiting for the last answer."""

    def __init__(self, address: str, number: int, end: float) -> None:
        super().__init__(daemon=True)
        self._address, self._end = address, end
        self._random = random.Random(number)
        self._name = f"user-{number}"
        self.waits: list[float] = []
        self.errors: list[str] = []
        self.messages: list[str] = []
        self.given_up = 0

    def run(self) -> None:
        moves = []
        while time.monotonic() < self._end:
            move = threading.Thread(target=self._move, daemon=True)
            move.start()
            moves.append(move)
            time.sleep(self._random.uniform(0.5 * PAUSE, 1.5 * PAUSE))
        for move in moves:
            move.join(300.0)
            if move.is_alive():
                self.errors.append("no answer in 300 s")

    def _move(self) -> None:
        setup = {"p": round(self._random.uniform(1, 4), 1)}
        request = urllib.request.Request(
            f"{self._address}_dash-update-component",
            data=body(setup, self._name),
            headers={"Content-Type": "application/json"},
        )
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                content = answer.read()
                if answer.status == 204:  # nobody waits for it any more
                    self.given_up += 1
                    return
        except OSError as error:
            self.errors.append(repr(error))
            return
        self.waits.append(time.monotonic() - begun)
        told = json.loads(content)["response"]
        words = told.get("message", {}).get("children", "")
        if words:
            self.messages.append(words)
        elif "headline" not in told:
            self.errors.append(f"no headline in {content[:200]!r}")


def resident(pid: int) -> float:
    """The resident size of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def load(users: int, seconds: float, out: str = "runs") -> dict[str, Any]:
    """Start a server of its own, let users at it, and count."""
    command = [sys.executable, "-c", START, out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            before = resident(server.pid)
            end = time.monotonic() + seconds
            people = [User(address, number, end) for number in range(users)]
            sizes = []
            for person in people:
                person.start()
            while any(person.is_alive() for person in people):
                sizes.append(resident(server.pid))
                time.sleep(1.0)
            for person in people:
                person.join()
        finally:
            server.terminate()
    return told(people, before, sizes, seconds)


def told(people: list[User], before: float, sizes: list[float], seconds: float) -> dict[str, Any]:
    """The counts as plain numbers."""
    waits = sorted(wait for person in people for wait in person.waits)
    half = sizes[len(sizes) // 2 :]
    return {
        "users": len(people),
        "seconds": seconds,
        "answers": len(waits),
        "given up for a later move": sum(person.given_up for person in people),
        "errors": [error for person in people for error in person.errors],
        "messages": [words for person in people for words in person.messages],
        "median wait, s": statistics.median(waits) if waits else None,
        "longest wait, s": waits[-1] if waits else None,
        "resident before, MB": before,
        "resident at most, MB": max(sizes),
        "growth in the second half, MB": half[-1] - half[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    result = load(asked.users, asked.seconds)
    print(json.dumps(result, indent=2))
    sys.exit(1 if result["errors"] else 0)


if __name__ == "__main__":
    main()
