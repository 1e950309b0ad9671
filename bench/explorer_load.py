"""Many people at once: users who move sliders of an explorer on loopback, and what comes of it.

python bench/explorer_load.py --users 50 --seconds 60 --store

`extremal bench explorer_load` prints the same in the form of all benches.
Every move sends what a browser sends: all callbacks that depend on the set-up. Networks differ in
p, seed, width and number of subclasses, so that there are more than are kept. With --store the
result goes to bench/results/load.json. The exit code is 1 where there was an error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from extremal.web.answer_pool import KEPT_BYTES

STORED = Path(__file__).parents[1] / "bench" / "results" / "load.json"
PAUSE = 1.0  # seconds between two moves of a user, on average
LONGEST = 300.0  # seconds that anybody waits
# A server of its own, which says how much it keeps for every line that it reads.
SERVER = """
import json, sys, threading
from extremal.web import listening_server
from extremal.web.answer_pool import AnswerPool
pool = AnswerPool(most=int(sys.argv[2]))
server = listening_server("127.0.0.1", 0, sys.argv[1], pool)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
for _ in sys.stdin:
    print(json.dumps(pool.counts()), flush=True)
"""
POWERS = [round(1.0 + 0.1 * k, 1) for k in range(31)]
CHOICES: dict[str, list[Any]] = {
    "p": POWERS,
    "seed": [0, 1, 2],
    "width": [40, 60, 80],
    "positive": [1, 2, 3],
    "negative": [2, 3],
}


@dataclass
class Count:
    """What came of the moves of one user."""

    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    networks: set[str] = field(default_factory=set)
    given_up: int = 0


class Callback:
    """One callback of the page, as the server describes it."""

    def __init__(self, described: dict[str, Any]) -> None:
        self._output = described["output"]
        self._inputs, self._state = described["inputs"], described["state"]

    def body(self, values: dict[str, Any]) -> bytes:
        """What the browser sends; `values` by the names of the components."""
        names = self._output.strip(".").split("...")
        pairs = [name.split("@")[0].rsplit(".", 1) for name in names]
        outputs = [{"id": ident, "property": part} for ident, part in pairs]
        inputs, state = (
            [{**wire, "value": values[wire["id"]]} for wire in wires]
            for wires in (self._inputs, self._state)
        )
        sent = {"output": self._output, "outputs": outputs, "inputs": inputs, "state": state}
        return json.dumps({**sent, "changedPropIds": ["setup.data"]}).encode()

    @staticmethod
    def message(response: dict[str, Any]) -> str:
        """What an answer says is wrong, or ''."""
        told = (part for name, part in response.items() if name.startswith("message"))
        return "".join(str(part.get("children") or "") for part in told)


def callbacks(address: str) -> list[Callback]:
    """What a browser asks when the set-up changes."""
    with urllib.request.urlopen(f"{address}_dash-dependencies", timeout=LONGEST) as answer:
        described = json.loads(answer.read())
    setup = {"id": "setup", "property": "data"}
    asked = [one for one in described if one["clientside_function"] is None]
    return [Callback(one) for one in asked if setup in one["inputs"]]


class User(threading.Thread):
    """Somebody who moves a slider about once a second, without waiting for the last answer."""

    def __init__(self, address: str, asked: list[Callback], number: int, end: float) -> None:
        super().__init__(daemon=True)
        self._address, self._asked, self._end = address, asked, end
        self._random = random.Random(number)
        self._name = f"user-{number}"
        self._setup: dict[str, Any] = {"width": 60, "seed": 0}
        self.count = Count()

    def run(self) -> None:
        moves = []
        turn = 0
        while time.monotonic() < self._end:
            turn += 1
            values = self._moved(turn)
            for one in self._asked:
                move = threading.Thread(target=self._ask, args=(one, values), daemon=True)
                move.start()
                moves.append(move)
            time.sleep(self._random.uniform(0.5 * PAUSE, 1.5 * PAUSE))
        for move in moves:
            move.join(LONGEST)
            if move.is_alive():
                self.count.errors.append(f"no answer in {LONGEST:.0f} s")

    def _moved(self, turn: int) -> dict[str, Any]:
        """One control somewhere else; p three times as often as each of the others."""
        name = self._random.choice(["p", "p", *CHOICES])
        self._setup[name] = self._random.choice(CHOICES[name])
        self.count.networks.add(json.dumps(self._setup, sort_keys=True))
        setup, probe = {**self._setup, "turn": turn}, {"first": 1, "turn": 0}
        return {"setup": setup, "probe": probe, "session": self._name}

    def _ask(self, callback: Callback, values: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"{self._address}_dash-update-component",
            data=callback.body(values),
            headers={"Content-Type": "application/json"},
        )
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=LONGEST) as answer:
                content = answer.read()
                if answer.status == 204:  # nobody waits for it any more
                    self.count.given_up += 1
                    return
            words = callback.message(json.loads(content)["response"])
        except (OSError, ValueError, KeyError) as error:
            self.count.errors.append(repr(error))
            return
        if words:
            self.count.messages.append(words)
        else:
            self.count.waits.append(time.monotonic() - begun)


class Server:
    """An explorer in a process of its own."""

    def __init__(self, out: str, most: int) -> None:
        command = [sys.executable, "-c", SERVER, out, str(most)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.address = self._line()

    def kept(self) -> dict[str, int]:
        """What the server's pool holds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counts: dict[str, int] = json.loads(self._line())
        return counts

    def resident(self) -> float:
        """Its resident size in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1e3

    def close(self) -> None:
        with self._process as process:
            process.terminate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the server has ended"
        return line


def load(users: int, seconds: float, out: str = "runs", most: int = KEPT_BYTES) -> dict[str, Any]:
    """Start a server that keeps at most `most` bytes, let users at it, and count."""
    server = Server(out, most)
    try:
        asked = callbacks(server.address)
        first = User(server.address, asked, -1, 0.0)
        for one in asked:  # what is imported and allocated once
            first._ask(one, first._moved(1))
        before, begun = server.resident(), time.monotonic()
        people = [User(server.address, asked, k, begun + seconds) for k in range(users)]
        for person in people:
            person.start()
        time.sleep(seconds / 2.0)
        sizes = {"before": before, "at half": server.resident()}
        for person in people:
            person.join()
        sizes["at the end"] = server.resident()
        kept = server.kept()
    finally:
        server.close()
    return told([first.count, *(person.count for person in people)], seconds, sizes, kept)


def told(
    counts: list[Count], seconds: float, sizes: dict[str, float], kept: dict[str, int]
) -> dict[str, Any]:
    """The counts as plain numbers."""
    waits = sorted(wait for one in counts for wait in one.waits)
    messages = [words for one in counts for words in one.messages]
    return {
        "load": "explore",
        "users": len(counts) - 1,
        "seconds": seconds,
        "load average": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "networks": len(set().union(*(one.networks for one in counts))),
        "answers": len(waits),
        "given up for a later move": sum(one.given_up for one in counts),
        "errors": [error for one in counts for error in one.errors],
        "messages": {words: messages.count(words) for words in sorted(set(messages))},
        "busy": sum("busy" in words for words in messages),
        "median wait, s": statistics.median(waits) if waits else None,
        "95 % of waits below, s": waits[int(0.95 * (len(waits) - 1))] if waits else None,
        "resident, MB": sizes,
        "growth in the second half, MB": sizes["at the end"] - sizes["at half"],
        "kept": kept,
    }


SETTINGS: dict[str, Any] = {"users": 50, "seconds": 60.0}


def measure() -> dict[str, Any]:
    """Fifty people for a minute: how uneven their waits are, and how far the server grows."""
    found = load(**SETTINGS)
    sizes, middle = found["resident, MB"], found["median wait, s"]
    ratios = {"resident size, at the end over before": sizes["at the end"] / sizes["before"]}
    if middle:
        late = found["95 % of waits below, s"]
        ratios["95 % of waits over their median"] = late / middle
    return {"bench": "explorer_load", "ratios": ratios, "figures": found, "settings": SETTINGS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=SETTINGS["users"])
    parser.add_argument("--seconds", type=float, default=SETTINGS["seconds"])
    parser.add_argument("--store", action="store_true", help=f"write {STORED.name}")
    asked = parser.parse_args()
    result = load(asked.users, asked.seconds)
    text = json.dumps(result, indent=2)
    print(text)
    if asked.store:
        STORED.write_text(text + "\n")
    sys.exit(1 if result["errors"] else 0)


if __name__ == "__main__":
    main()
