"""The results that the repo ships belong to the records as they are now."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from extremal.experiments import get, load_summary
from extremal.experiments.experiment import AGAINST
from tools.doc_tables import stored_rows
from tools.store_results import ROOT

STORED = sorted((ROOT / "results").rglob("*.json"))
# A row of a table of stored runs: the experiment, the scale, and the rest.
_TABLE_ROW = re.compile(r"^\| `(.+?)` \| (\w+) \| (.+) \|$", re.M)


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(ROOT / "results")))
def test_a_stored_summary_is_of_the_record_as_it_is(path: Path) -> None:
    summary = load_summary(path)
    experiment, scale = get(summary["experiment"]), summary["scale"]
    assert path == ROOT / "results" / experiment.name / f"{scale}.json"
    assert summary["version"] == experiment.version
    assert path.with_suffix(".png").is_file()
    assert path.with_suffix(".gif").is_file() == (experiment.movie is not None)
    assert summary["settings"] == json.loads(json.dumps(experiment.provenance(scale)))
    assert summary["trials"] == {
        "done": len(experiment.trials(scale)),
        "failed": 0,
        "total": len(experiment.trials(scale)),
    }
    settings = experiment.at(scale)
    claims = [claim for claim in experiment.claims if scale in claim.scales]
    assert len(claims) == len(summary["rows"])
    for claim, row in zip(claims, summary["rows"], strict=True):
        assert (row["quantity"], row["rule"]) == (claim.quantity, claim.rule)
        if isinstance(claim.published, Mapping):  # other trials: their range, or their mean
            assert row["tolerance"] > 0 or claim.rule != "near"
            continue
        expected = claim.published(settings) if callable(claim.published) else claim.published
        assert row["published"] == pytest.approx(expected)
        assert row["tolerance"] == claim.tolerance
    assert [panel["title"] for panel in summary["panels"]] == [p.title for p in experiment.panels]
    assert all(panel["kind"] != "missing" for panel in summary["panels"])


def test_there_are_results() -> None:
    assert STORED


def _table(against: str) -> dict[tuple[str, str], str]:
    """By experiment and scale: the rest of each row of one table of docs/results.md."""
    page = (ROOT / "docs" / "results.md").read_text()
    (table,) = re.findall(rf"<!-- verdicts: {against} -->\n(.*?)<!-- end of", page, re.S)
    return {(name, scale): rest for name, scale, rest in _TABLE_ROW.findall(table)}


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(ROOT / "results")))
def test_every_stored_row_is_counted_in_exactly_one_table(path: Path) -> None:
    run = str(path.parent.relative_to(ROOT / "results")), path.stem
    rows = {against: stored_rows(path, against) for against in AGAINST}
    stored = load_summary(path)["rows"]
    assert sum(map(len, rows.values())) == len(stored)
    for row in stored:
        assert sum(row in kind for kind in rows.values()) == 1
    for against in ("published", "theory"):
        assert all(row["rule"] != "reported" for row in rows[against])
        told = _table(against).get(run)
        assert (told is None) == (not rows[against])
        if told is not None:
            agree = sum(row["ok"] is True for row in rows[against])
            assert told.startswith(f"{agree} of {len(rows[against])} | ")
    answer = _table("question").get(run)
    asks = bool(rows["question"]) or not stored or run[0].startswith("open-questions/")
    assert (answer is not None) == asks
    assert not re.search(r"agrees|\d+ of \d+", answer or "")


def test_an_answer_is_that_of_the_finding_which_shows_the_run() -> None:
    answers = _table("question")
    found = "[Which p?](findings/which-p.md)"
    assert f" | {found} Between 2.25 and 4: " in answers["open-questions/p-sweep", "paper"]
    assert (
        f" | {found} (of the run at paper scale) | " in answers["open-questions/p-sweep", "quick"]
    )
    none = answers["min-vidal-2024/flow-fidelity", "quick"]
    assert " | [the figure](../results/min-vidal-2024/flow-fidelity/quick.png) | " in none
