"""Every experiment at smoke scale on two commits: are the summaries the same, byte for byte?

Usage: python -m tools.compare_smoke OLD [NEW]   (NEW is the working tree unless said)

Each commit is checked out into a folder of its own and run from there with this environment's
Python. Compared are the summaries, and the numbers and arrays of all trials, but for what is
measured on the machine: seconds, peak memory, and the panel that draws seconds. Exit code 1 where
something differs, with the names of the files that do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What the machine decides, or what is derived from that: not compared.
MEASURED = {"seconds", "peak_memory", "checksum", "versions"}
# Panels of a summary that draw such a number, by the label of their axis.
MEASURED_PANELS = {"seconds of the processor"}
RUN = (
    "import os, sys; sys.path.insert(0, os.getcwd()); import extremal; "
    "assert extremal.__file__.startswith(os.getcwd()); "
    "from extremal.cli.main import main; main()"
)
# The files of each experiment, by its name, and their contents.
Results = dict[str, dict[str, bytes]]


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
        print(f"{name}: {'equal' if same else _differing(before, after, name)}", flush=True)
    print(f"{len(before.keys() | after.keys()) - different} equal, {different} different")
    return 1 if different else 0


def _differing(before: Results, after: Results, name: str) -> str:
    if name not in before or name not in after:
        return "only in one of the two"
    one, other = before[name], after[name]
    files = [file for file in sorted(one.keys() | other.keys()) if one.get(file) != other.get(file)]
    return f"DIFFERENT: {', '.join(files)}"


def _checked_out(commit: str, folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
    return folder


def smoke_results(tree: Path, out: Path) -> Results:
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
    trials = place / "trials"
    found = {_name(path, place): path.read_bytes() for path in trials.rglob("*.safetensors")}
    for path in place.rglob("*.json"):
        content = json.loads(path.read_text())
        for part in (content, content.get("numbers", {})):
            for name in MEASURED & part.keys():
                del part[name]
        panels = content.get("panels", [])
        content["panels"] = [
            panel for panel in panels if panel.get("ylabel") not in MEASURED_PANELS
        ]
        found[_name(path, place)] = json.dumps(content, sort_keys=True).encode()
    if not any(trials.rglob("*.json")) or not any(place.rglob("summary.json")):
        raise RuntimeError(f"no trials or no summary in {place}: there is nothing to compare")
    return found


def _name(path: Path, place: Path) -> str:
    return str(path.relative_to(place))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
