"""Install a wheel into an empty environment, with what it declares and no more, and try it there.

    python tools/try_wheel.py dist

The environment is a new one without the packages of this one; pip fetches the declared
dependencies at the versions of constraints.txt. The demo then runs in an empty folder, where
nothing of the repo can be found, and so do `--version`, `show` on a stored result, `bench`, which
must say that it needs a checkout, and an import of every part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PARTS = (
    "import extremal, extremal.sklearn, extremal.experiments, extremal.report;"
    "print(extremal.__file__)"
)


def main() -> None:
    (wheel,) = Path(sys.argv[1]).resolve().glob("extremal-*.whl")
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = installed(wheel, Path(folder) / "venv")
        empty = Path(folder) / "elsewhere"
        empty.mkdir()
        tried(bin_folder, empty)
    print(f"{wheel.name}: installs and runs on its own")


def installed(wheel: Path, venv: Path) -> Path:
    """A new environment with the wheel; its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    constraints = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    environment = _clean() | constraints
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], env=environment, check=True)
    return venv / "bin"


def tried(bin_folder: Path, empty: Path) -> None:
    """Run what a user runs first, in an empty folder."""
    where = _said(bin_folder, empty, "python", "-c", _PARTS)
    if not Path(where.strip()).is_relative_to(bin_folder.parent):
        raise SystemExit(f"the package was found elsewhere: {where}")
    print(_said(bin_folder, empty, "extremal", "--version").strip())
    shown = json.loads(_said(bin_folder, empty, "extremal", "show", "demo", "--json"))
    print(f"show: {len(shown['rows'])} stored rows of {shown['experiment']}, {shown['scale']}")
    refused = subprocess.run(
        [str(bin_folder / "extremal"), "bench", "flow"],
        cwd=empty,
        env=_clean(),
        capture_output=True,
        text=True,
        check=False,
    )
    if refused.returncode != 2 or "checkout" not in refused.stderr:
        raise SystemExit(f"bench should say that it needs a checkout: {refused.stderr}")
    demo = json.loads(_said(bin_folder, empty, "extremal", "demo", "--json"))
    agree = sum(row["ok"] is True for row in demo["rows"])
    print(f"demo: {agree} of {len(demo['rows'])} rows agree; {len(demo['files'])} files")
    if agree != len(demo["rows"]):
        raise SystemExit("the demo's rows do not all agree")


def _said(bin_folder: Path, empty: Path, command: str, *words: str) -> str:
    done = subprocess.run(
        [str(bin_folder / command), *words],
        cwd=empty,
        env=_clean(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _clean() -> dict[str, str]:
    """The environment without what could lead back to the repo."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


if __name__ == "__main__":
    main()
