"""The docs' tables are those of the stored benches, and their links lead somewhere."""

import re

import pytest

from tools.benches import ROOT, rendered

PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]


def test_the_table_of_the_flow_is_that_of_the_stored_bench():
    text = (ROOT / "docs" / "gradient-flow.md").read_text()
    assert rendered(text) == text
    assert "| p = 3, plain x and y |" in text


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_within_the_repo_lead_somewhere(page, link):
    assert "://" in link or (page.parent / link).exists()
