"""The results that the repo ships belong to the records as they are now."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from extremal.experiments import get, load_summary
from tools.store_results import ROOT

STORED = sorted((ROOT / "results").rglob("*.json"))


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
