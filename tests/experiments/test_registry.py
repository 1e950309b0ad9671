from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from extremal.experiments import Experiment, get, names, register, registry

RECORD = """
from extremal.experiments import Experiment

experiment = Experiment({name!r}, "T", "S", "m:f", {{}}, (), ())
"""


def _record(name: str) -> Experiment:
    return Experiment(name, "T", "S", "m:f", {}, (), ())


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of records in place of the package's own."""
    package = f"papers_of_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / package
    for path, text in {
        "__init__.py": "",
        "demo.py": RECORD.format(name="demo"),
        "_shared.py": "raise ImportError",
        "min_vidal_2024/__init__.py": "",
        "min_vidal_2024/_common.py": "raise ImportError",
        "min_vidal_2024/figure_2.py": RECORD.format(name="min-vidal-2024/figure-2"),
        "min_vidal_2024/figure_3.py": "raise ImportError",
        "min_vidal_2024/table_1.py": "experiment = 3",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_FOLDER", folder)
    monkeypatch.setattr(registry, "_PACKAGE", package)
    monkeypatch.setattr(registry, "_registered", {})
    return folder


def test_names_come_from_paths_and_import_nothing(papers: Path) -> None:
    assert names() == [
        "demo",
        "min-vidal-2024/figure-2",
        "min-vidal-2024/figure-3",
        "min-vidal-2024/table-1",
    ]
    assert not [module for module in sys.modules if module.startswith(papers.name)]


def test_only_what_is_asked_for_is_imported(papers: Path) -> None:
    assert get("min-vidal-2024/figure-2").name == "min-vidal-2024/figure-2"
    assert get("demo").name == "demo"
    assert f"{papers.name}.min_vidal_2024.figure_3" not in sys.modules
    with pytest.raises(ValueError, match="table_1 must be an Experiment, got 3"):
        get("min-vidal-2024/table-1")


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("demmo", ": did you mean demo?"),
        ("figure-2", ": did you mean min-vidal-2024/figure-2?"),
        ("min_vidal_2024/figure_3", ": did you mean min-vidal-2024/figure-3?"),
        ("min-vidal-2024/table-2", ": did you mean min-vidal-2024/table-1"),
        ("xyz", "; see `extremal list`"),
        ("", "; see `extremal list`"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(papers: Path, asked: str, hint: str) -> None:
    message = f"^unknown experiment {asked!r}{re.escape(hint)}"
    with pytest.raises(ValueError, match=message) as caught:
        get(asked)
    assert str(caught.value).endswith("; see `extremal list`")


def test_own_experiments_can_be_registered_and_replaced(papers: Path) -> None:
    first, second = _record("mine/one"), _record("mine/one")
    register(first)
    assert "mine/one" in names()
    assert get("mine/one") is first
    register(second)
    assert get("mine/one") is second


def test_shipped_names_are_taken(papers: Path) -> None:
    with pytest.raises(ValueError, match=r"name must differ .*, got demo"):
        register(_record("demo"))


def test_each_record_of_the_package_is_named_by_its_path() -> None:
    for name in names():
        assert get(name).name == name
