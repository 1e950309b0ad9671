"""What the documentation site is made of: links, names, pictures, navigation."""

import re

import griffe
import pytest
import yaml
from matplotlib.image import imread

import extremal as ex
from tools import draw_doc_pictures
from tools.doc_tables import ROOT
from tools.site import hooks
from tools.site.docstrings import Docstrings, escaped

PARTS = sorted(set(ex.__all__) - {"Robustness", "__version__", "citation"})
CONFIG = (ROOT / "mkdocs.yml").read_text()


@pytest.fixture(scope="module")
def package():
    """The package as the reference sees it."""
    extensions = griffe.Extensions(Docstrings())
    return griffe.load("extremal", search_paths=[ROOT], extensions=extensions, resolve_aliases=True)


@pytest.mark.parametrize("part", PARTS)
def test_every_public_name_is_in_the_reference_with_a_docstring(part, package):
    assert f"::: extremal.{part}\n" in "".join(
        page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")
    )
    module = package.modules[part]
    for name in module.exports:
        found = module.members[str(name)]
        assert not found.is_module, f"{part}.{name} would be shown as a file"
        assert found.docstring is not None, f"{part}.{name} would not be shown"


def test_a_field_has_its_comment_as_docstring(package):
    field = package["certify.Certificate.method"]
    assert field.docstring.value == "(n,) int64"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<x, w_j> * 2", "&#60;x, w&#95;j&#62; &#42; 2"),
        ("`a_b < c` and d_e", "`a_b < c` and d&#95;e"),
        ("first\n\n    code_block <x>\n\nlast_", "first\n\n    code_block <x>\n\nlast&#95;"),
        ("- a list\n- of two", "- a list\n- of two"),
    ],
)
def test_formulas_are_escaped_and_code_is_not(text, shown):
    assert escaped(text) == shown


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load(CONFIG.split("\nnav:", 1)[1].join(["nav:", ""]))["nav"]
    listed = set(re.findall(r"[\w/.-]+\.md", str(nav)))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in hooks.DOCS.rglob("*.md")}
    lessons = {f"lessons/{path.stem}.md" for path in hooks.NOTEBOOKS}
    kept = {f"repo/{name}" for name in hooks.ALWAYS}
    assert listed == written | lessons | kept


def test_nothing_is_asked_of_another_host():
    assert "font: false" in CONFIG
    assert "://" not in CONFIG
    assert "://" not in (ROOT / "docs" / "site.css").read_text()


def test_links_out_of_the_docs_lead_to_the_copy_in_the_site():
    class Page:
        class file:  # noqa: N801 - mkdocs calls it so
            src_uri = "theory/alignment.md"

    for text, led in (
        ("![a](../../results/demo/quick.png)", "![a](../repo/results/demo/quick.png)"),
        ("[b](../glossary.md#x)", "[b](../glossary.md#x)"),
        ("[c](https://example.org/d)", "[c](https://example.org/d)"),
        ("[d](nowhere.md)", "[d](nowhere.md)"),  # which mkdocs then complains of
        (r"1 \<\< 2", "1 &lt;&lt; 2"),
    ):
        assert hooks.on_page_markdown(text, Page) == led


def test_the_command_reference_has_every_command():
    text = hooks.commands()
    for name in ("demo", "list", "run", "show", "evaluate", "certify", "bench", "data fetch"):
        assert f"## `extremal {name}`\n" in text
    assert "| `--scale, -s` | smoke (seconds)" in text
    assert "| `NAME` | An experiment (`extremal list`), a file of yours with a record" in text


def test_the_pictures_are_those_of_their_script(tmp_path):
    draw_doc_pictures.write(tmp_path)
    kept = sorted(path.name for path in draw_doc_pictures.FOLDER.glob("*.png"))
    assert kept == sorted(path.name for path in tmp_path.glob("*.png"))
    for name in kept:
        made, stored = (imread(folder / name) for folder in (tmp_path, draw_doc_pictures.FOLDER))
        assert made.shape == stored.shape
        assert abs(made - stored).mean() < 1e-3, name
