"""The README's example runs as it stands, and its numbers are those of results/."""

import re
from pathlib import Path

import pytest

from tools.doc_tables import ROOT, rendered

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_the_python_example_runs_and_shows_what_it_says(capsys):
    code = EXAMPLES[0]
    assert len(code.splitlines()) <= 12
    exec(compile(code, "README.md", "exec"), {})
    unfollowed, accuracy = capsys.readouterr().out.split("\n")[:2]
    assert unfollowed == "()"
    assert float(accuracy) > 0.9
    exec(compile(code.replace("p=3.0", "p=1.0", 1), "README.md", "exec"), {})
    assert float(capsys.readouterr().out.split("\n")[1]) == 0.0


def test_the_head_is_accurate_and_has_a_radius(capsys):
    exec(compile(EXAMPLES[1], "README.md", "exec"), {})
    printed = [float(word) for word in capsys.readouterr().out.split()]
    said = [float(number) for number in re.findall(r"#\s*(\d+\.\d+)", EXAMPLES[1])]
    assert printed == pytest.approx(said, rel=0.02)


def test_the_tables_are_those_of_the_stored_results():
    assert rendered(README) == README


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_within_the_repo_lead_somewhere(link):
    assert "://" in link or (Path(ROOT) / link).exists()
