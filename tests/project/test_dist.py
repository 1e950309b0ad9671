"""What is released: version, citation, and what the wheel holds; `make dist-test` installs it."""

import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
import typer
import yaml

import extremal as ex
from extremal.cli import main
from tools.doc_tables import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of what it is built from, made by the backend that pip would call."""
    place, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("extremal", "results", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (place / name).symlink_to(ROOT / name)
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "extremal").rglob("*.py")}
    networks = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "extremal/models/networks").iterdir()
    }
    stored = (path.relative_to(ROOT).as_posix() for path in (ROOT / "results").rglob("*.json"))
    summaries = {f"extremal/{name}" for name in stored}
    assets = {
        path.relative_to(ROOT).as_posix()
        for part in ("report", "web")
        for path in (ROOT / "extremal" / part / "assets").iterdir()
    }
    assert summaries
    assert assets
    others = {"py.typed", "references.bib", "data/fetching/registry.txt"}
    others = {f"extremal/{name}" for name in others}
    assert names == code | networks | summaries | assets | others


def test_the_stored_summaries_are_where_show_looks(wheel, monkeypatch, tmp_path, capsys):
    from extremal.cli import experiment_commands
    from extremal.experiments import saved_results

    wheel.extractall(tmp_path / "site")
    file = tmp_path / "site" / "extremal" / "experiments" / "saved_results.py"
    inside = [file.parents[up] / "results" for up in (2, 1)]
    assert [path.name for path in saved_results.SHIPPED_FOLDERS] == ["results"] * 3
    assert saved_results.SHIPPED_FOLDERS[1:] == tuple(
        (ROOT / "extremal" / "experiments" / "saved_results.py").parents[up] / "results"
        for up in (2, 1)
    )
    monkeypatch.setattr(saved_results, "SHIPPED_FOLDERS", tuple(inside))
    experiment_commands.show("demo", None, tmp_path / "runs", True)
    assert '"rows"' in capsys.readouterr().out


def test_the_wheel_declares_version_command_and_extras(wheel):
    (info,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = wheel.read(info).decode()
    assert f"\nVersion: {ex.__version__}\n" in metadata
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.M))
    assert extras == set(PROJECT["optional-dependencies"])
    entry = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "extremal = extremal.cli.main:main" in entry


def test_every_extra_is_documented():
    start = (ROOT / "docs" / "index.md").read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert f"`{extra}`" in start


def test_the_version_is_in_one_place_and_told_by_the_command(capsys):
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {ex.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == ex.__version__
    with pytest.raises(typer.Exit):
        main._version(True)
    assert capsys.readouterr().out == f"extremal {ex.__version__}\n"


def test_the_citation_names_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    papers = citation["references"]
    assert [paper["year"] for paper in papers] == [2024, 2025, 2022, 2025, 2025]
    numbers = [paper.get("identifiers", [{"value": ""}])[0]["value"] for paper in papers]
    known = ["2405.15942", "2205.13863", "2410.10322", "2410.08503"]
    assert [number.removeprefix("arXiv:") for number in numbers if number] == known
