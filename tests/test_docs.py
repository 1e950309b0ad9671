"""The docs' tables are those of the stored benches, and their links lead somewhere."""

import re

import pytest

from tools.tables import ROOT, rendered

PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_stored_benches(page):
    text = page.read_text()
    assert rendered(text) == text


def test_the_tables_are_there():
    text = (ROOT / "docs" / "choose-a-training.md").read_text()
    assert "| p = 3, plain x and y |" in text


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_within_the_repo_lead_somewhere(page, link):
    assert "://" in link or (page.parent / link).exists()
