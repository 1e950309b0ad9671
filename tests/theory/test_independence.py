"""`theory` uses the standard library, torch and the checks of arguments, no other part of ours."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from extremal import theory

FOLDER = Path(theory.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))


def imported(path):
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_nothing_else_of_the_package(path):
    for module in imported(path):
        top = module.split(".")[0]
        ours = module.startswith("extremal.theory") or module == "extremal._check"
        assert ours or top == "torch" or top in sys.stdlib_module_names, module


def test_every_public_name_exists_and_is_documented():
    assert len(FILES) > 8
    for name in theory.__all__:
        thing = getattr(theory, name)
        assert isinstance(thing, float) or thing.__doc__, name
