"""The docs' tables are those of the stored benches, and their links and files exist."""

import re

import pytest

from tools.doc_tables import ROOT, rendered

PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]

# Files of the repo in inline code, `certify/parabolas.py`, and names beside them,
# `L2Problem` (`certify/l2_radius.py`).
_FILE = re.compile(r"`((?:[a-z_]+/)+\w+\.(?:py|json|ipynb))`")
_NAMED = re.compile(r"`(\w+)`\s\(`((?:[a-z_]+/)+\w+\.py)`\)")
FILES = [(page, file) for page in PAGES for file in sorted(set(_FILE.findall(page.read_text())))]
NAMED = [(page, *found) for page in PAGES for found in _NAMED.findall(page.read_text())]


def whole(file):
    """A file of the repo, of the package or of one of its parts."""
    package = ROOT / "extremal"
    places = [ROOT / file, package / file, *(part / file for part in package.iterdir())]
    return next((place for place in places if place.is_file()), ROOT / file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_stored_benches(page):
    text = page.read_text()
    assert rendered(text) == text


def test_the_tables_are_there():
    text = (ROOT / "docs" / "costs.md").read_text()
    assert "| p = 3, plain x and y |" in text


def test_some_rows_of_a_run_can_be_chosen():
    begin, end = "<!-- rows: results/demo/quick.json: ", " -->\n<!-- end of rows -->"
    lines = rendered(f"{begin}^p = 1: median{end}").splitlines()
    assert lines[1] == "| quantity | published | ours | [low, high] | verdict |"
    assert [line.split(" | ")[0] for line in lines[3:-1]] == [
        "| p = 1: median attacked radius",
        "| p = 1: median certified radius",
    ]
    with pytest.raises(ValueError, match=r"no row of demo has 'nothing' in its quantity"):
        rendered(f"{begin}nothing{end}")


def test_every_finding_is_in_the_index():
    folder = ROOT / "docs" / "findings"
    index = (folder / "index.md").read_text()
    for page in set(folder.glob("*.md")) - {folder / "index.md"}:
        title = page.read_text().splitlines()[0].removeprefix("# ")
        assert f"| [{title}]({page.name}) |" in index


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_within_the_repo_lead_somewhere(page, link):
    assert "://" in link or (page.parent / link).exists()


@pytest.mark.parametrize(("page", "file"), FILES)
def test_files_that_pages_name_exist(page, file):
    assert file.startswith("runs/") or whole(file).is_file()


@pytest.mark.parametrize(("page", "name", "file"), NAMED)
def test_what_a_page_finds_in_a_file_is_there(page, name, file):
    assert re.search(rf"^(class |def |){name}\b", whole(file).read_text(), re.M)


def test_pages_name_files_and_what_is_in_them():
    assert ("L2Problem", "certify/l2_radius.py") in [found[1:] for found in NAMED]
    assert len(FILES) > 20


# Where networks come from the flow that is told the clusters: stored runs, and tables of speed.
_OF_KNOWN_CLUSTERS = re.compile(
    r"results/min-vidal-2024/(figure-[25]/paper|flow-fidelity/|fidelity-by-spread/)"
    r"|results/open-questions/p-sweep/|<!-- bench: flow -->|<!-- headlines: bench"
)
SHOWING_THEM = [
    page
    for page in (ROOT / "README.md", ROOT / "paper" / "paper.md", *PAGES)
    if _OF_KNOWN_CLUSTERS.search(page.read_text())
]


@pytest.mark.parametrize("page", SHOWING_THEM, ids=lambda page: page.name)
def test_pages_say_that_the_flow_was_told_the_clusters(page):
    assert "told the cluster" in " ".join(page.read_text().split())


def test_the_pages_that_show_such_flows_are_found():
    assert len(SHOWING_THEM) >= 7
