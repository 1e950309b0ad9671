"""Every experiment at smoke scale on two commits: are the summaries the same, byte for byte?

Usage: python -m tools.compare_smoke OLD [NEW]   (NEW is the working tree unless said)

Each commit is checked out into a folder of its own and run from there with this environment's
Python. Compared are the summaries but for "seconds", and the numbers and arrays of all trials.
Exit code 1 where something differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = (
    "import os, sys; sys.path.insert(0, os.getcwd()); import extremal; "
    "assert extremal.__file__.startswith(os.getcwd()); "
    "from extremal.cli.main import main; main()"
)


def main(old: str, new: str | None = None) -> int:
    """Compare two commits, and say of each experiment whether it is equal."""
    with tempfile.TemporaryDirectory() as folder:
        before = smoke_results(_checked_out(old, Path(folder) / "old"), Path(folder) / "runs-old")
        tree = ROOT if new is None else _checked_out(new, Path(folder) / "new")
        after = smoke_results(tree, Path(folder) / "runs-new")
    different = 0
    for name in sorted(before.keys() | after.keys()):
        same = name in before and before[name] == after.get(name)
        different += not same
        print(f"{name}: {'equal' if same else 'DIFFERENT'}", flush=True)
    print(f"{len(before.keys() | after.keys()) - different} equal, {different} different")
    return 1 if different else 0


def _checked_out(commit: str, folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
    return folder


def smoke_results(tree: Path, out: Path) -> dict[str, dict[str, bytes]]:
    """What each experiment of a source tree writes at smoke scale: files and their contents."""
    told = _extremal(tree, "list", "--json")
    found = {}
    for record in json.loads(told):
        name, place = record["name"], out / record["name"].replace("/", "+")
        _extremal(tree, "run", name, "--scale", "smoke", "--jobs", "2", "--out", str(place))
        found[name] = _contents(place)
    return found


def _extremal(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout


def _contents(place: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (place / "trials").rglob("*.safetensors")}
    for path in place.rglob("*.json"):
        content = json.loads(path.read_text())
        for changing in ("seconds", "checksum", "versions"):
            content.pop(changing, None)
        found[path.name] = json.dumps(content, sort_keys=True).encode()
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
