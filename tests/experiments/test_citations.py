"""BibTeX of what an experiment rests on."""

import re

import pytest

import extremal as ex
from extremal.experiments import citation, names


def keys(text):
    return re.findall(r"^@\w+\{(\w+),$", text, flags=re.M)


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_its_papers_in_whole_entries(name):
    text = citation(name)
    found = keys(text)
    assert found[0] == "extremal"
    assert len(found) >= 3
    assert text.count("{") == text.count("}")
    year = re.search(r"20\d\d", name)
    assert year is None or year[0] in "".join(found)


def test_without_a_name_it_is_the_package_and_the_five_papers():
    assert keys(ex.citation()) == [
        *("extremal", "min2024", "li2022", "li2025averaging", "li2025adversarial", "min2025")
    ]
    assert f"version = {{{ex.__version__}}}" in ex.citation()


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="unknown experiment"):
        citation("figure-2")
