"""The direction of imports that DESIGN and CONTRIBUTING state: each part sees those to its left."""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import extremal
from extremal.experiments import registry

ROOT = Path(extremal.__file__).parent
SHARED = {"_check", "_files", "_progress", "_tensors", "_version"}
ORDER = {
    "data": set(),
    "models": {"data"},
    "attack": {"data", "models"},
    "measure": {"data", "models"},
    "certify": {"data", "models", "attack", "measure"},
    "train": {"data", "models", "attack", "measure", "certify"},
    "evaluate": {"data", "models", "attack", "measure", "certify", "train"},
    "theory": set(),
}
ORDER["report"] = set(ORDER)
ORDER["experiments"] = set(ORDER)
ORDER["web"] = set(ORDER)
ORDER["cli"] = set(ORDER)
FACE = {"__init__", "sklearn"}  # the first imports all parts


def parts_imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "extremal":
            names = [f"extremal.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names = [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("extremal.")}
    return found


def test_every_part_is_in_the_order():
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ORDER)


def test_every_file_beside_the_parts_is_known():
    files = {path.stem for path in ROOT.glob("*.py")}
    assert files == SHARED | FACE


@pytest.mark.parametrize("part", ORDER)
def test_a_part_imports_only_those_to_its_left(part):
    allowed = ORDER[part] | {part} | (SHARED if part != "theory" else {"_check"})
    for path in sorted((ROOT / part).rglob("*.py")):
        extra = parts_imported(path) - allowed
        assert not extra, f"{path.relative_to(ROOT)} imports {sorted(extra)}"


def test_the_estimator_knows_no_experiments():
    assert parts_imported(ROOT / "sklearn.py") <= ORDER["evaluate"] | {"evaluate"} | SHARED


def test_the_check_would_notice():
    wrong = ROOT / "report" / "figure.py"
    assert not parts_imported(wrong) <= ORDER["data"]
    assert parts_imported(ROOT / "report" / "result_plots.py") >= {"evaluate"}
    assert parts_imported(ROOT / "cli" / "model_commands.py") >= {"evaluate"}
    assert not parts_imported(ROOT / "evaluate" / "evaluation_task.py") <= ORDER["certify"]


CORE = sorted(set(ORDER) - {"experiments", "report", "web", "cli"})


def defined(path: Path) -> set[str]:
    """The classes that a file defines, without a leading underscore."""
    body = ast.parse(path.read_text()).body
    names = {node.name for node in body if isinstance(node, ast.ClassDef)}
    return {name.strip("_") for name in names}


@pytest.mark.parametrize("part", CORE)
def test_no_module_has_the_name_of_something_that_its_part_exports(part):
    """Else the function hides the module, and only `sys.modules` finds it.

    A module in a folder of the part, such as `train/flow/gradient_flow.py`, is hidden by nothing.
    """
    exported = set(importlib.import_module(f"extremal.{part}").__all__)
    inside = {path.stem for path in (ROOT / part).iterdir()}
    assert not inside & exported


def test_a_file_name_and_a_class_name_have_one_meaning():
    files = sorted(ROOT.rglob("*.py"))
    stems = Counter(path.stem for path in files if path.stem != "__init__")
    assert [name for name, count in stems.items() if count > 1] == []
    classes = Counter(name for path in files for name in defined(path))
    assert [name for name, count in classes.items() if count > 1] == []


def test_the_check_of_names_would_notice(tmp_path):
    file = tmp_path / "two.py"
    file.write_text("class Found:\n    pass\n\nclass _Task:\n    pass\n")
    assert defined(file) == {"Found", "Task"}


def test_a_paper_imports_of_papers_only_what_they_share():
    papers = ROOT / "experiments" / "papers"
    for path in sorted(papers.rglob("*.py")):
        own = path.relative_to(papers).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and module.startswith(
                "extremal.experiments.papers."
            ):
                assert module.split(".")[3] in (own, "shared"), f"{path}: {module}"


def deep_imports(path: Path) -> list[str]:
    """What a file imports from inside of another part of the core, past its `__init__`."""
    own, found = path.relative_to(ROOT).parts[0], []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        before = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
        for alias in node.names:
            names = [*before, *alias.name.split(".")]
            if names[0] != "extremal" or len(names) < 3 or names[1] not in {*CORE} - {own}:
                continue
            inside = ROOT.joinpath(*names[1:])
            module = inside.is_dir() or inside.with_suffix(".py").exists()
            if len(names) > 3 or (len(names) == 3 and module):
                found.append(".".join(names))
    return found


def test_a_part_of_the_core_is_imported_through_its_init():
    """So that what others use of a part is what it exports."""
    files = sorted(ROOT.rglob("*.py"))
    assert {str(path): deep_imports(path) for path in files if deep_imports(path)} == {}


def test_the_check_of_deep_imports_would_notice(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.project.test_imports.ROOT", tmp_path)
    (tmp_path / "attack").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset.py").touch()
    file = tmp_path / "attack" / "ball.py"
    file.write_text(
        "from extremal.data import Dataset\n"
        "from extremal.data.dataset import Dataset\n"
        "from extremal.data import dataset\n"
        "import extremal.data.dataset as sets\n"
        "from extremal.attack.projection import project_l1\n"
    )
    dataset = "extremal.data.dataset"
    assert deep_imports(file) == [f"{dataset}.Dataset", dataset, dataset]


LATE = """
import sys

def loaded(*names):
    return [name for name in names if any(f"{key}.".startswith(f"{name}.") for key in sys.modules)]

from extremal.experiments import names
print(len(names()), loaded("extremal.experiments.papers"))
import extremal.cli.experiment_commands, extremal.report
print(loaded("dask", "distributed", "pyarrow"))
import extremal.cli.main, extremal.sklearn, extremal.cli.tool_commands
extremal.report, extremal.experiments
print(loaded("dash", "flask", "werkzeug"))
"""


def test_records_and_extras_are_imported_when_they_are_needed():
    """Names need no record, commands no Dask and no Arrow, and only the explorer needs Dash."""
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{len(registry.RECORDS)} []", "[]", "[]"]


@pytest.mark.parametrize("part", [extremal, extremal.report], ids=lambda part: part.__name__)
def test_names_that_are_imported_late_are_those_that_type_checkers_see(part):
    """Each name of `__all__` is there, and is what the file imports for type checkers alone."""
    found = {name: getattr(part, name) for name in part.__all__}
    assert set(part.__all__) <= set(dir(part))
    tree = ast.parse(Path(part.__file__).read_text())
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name: node.module for node in seen.body for alias in node.names}
    assert imported.keys() == found.keys() - {"__version__"}
    for name, module in imported.items():
        held = importlib.import_module(module)
        assert found[name] is getattr(held, name, None) or found[name].__name__.endswith(name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        part.nothing  # noqa: B018
