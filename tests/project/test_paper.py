"""The paper: its length, its references, and numbers that are those of the stored files."""

import json
import re

from extremal.experiments import load_summary
from tools.doc_tables import ROOT

TEXT = (ROOT / "paper" / "paper.md").read_text()
HEAD, BODY = TEXT.split("---\n", 2)[1:]


def bench(name):
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def rows(name):
    return {row["quantity"]: row for row in load_summary(ROOT / "results" / name)["rows"]}


def test_it_has_at_most_a_thousand_words():
    assert len(re.sub(r"<!--.*?-->", "", BODY, flags=re.S).split()) <= 1000


def test_references_are_those_of_the_bibliography():
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "extremal" / "references.bib").read_text(), re.M)
    assert len(entries) == len(set(entries))
    assert set(re.findall(r"@(\w+)", BODY)) == set(entries)


def test_every_number_names_a_file():
    numbers = BODY.split("# What it does, in numbers")[1].split("# Design")[0]
    for item in numbers.split("\n- ")[1:]:
        files = " ".join(re.findall(r"<!-- (.*?) -->", item)).split()
        assert files
        assert all((ROOT / file).is_file() for file in files)


def test_numbers_of_attacks():
    figures = bench("attack")["figures"]
    found = [each for name, each in figures.items() if re.match(r"p = \d, l", name)]
    kinds = ("ours", "autoattack")
    assert all(each["ours"]["accuracy"] <= each["autoattack"]["accuracy"] for each in found)
    ours, theirs = (figures["seconds in total"][kind] for kind in kinds)
    text = (
        f"{len(found)} combinations of network, norm and radius, in {ours:.0f} seconds of one core"
    )
    assert f"{text} where AutoAttack takes {theirs:.0f}." in " ".join(BODY.split())


def test_numbers_of_certificates_and_of_the_flow():
    name = "certified over attacked radius, quantile 0.5, mnist, p = "
    for p in (1, 2, 3, 4):
        assert f"is {bench('certify')['ratios'][f'{name}{p}']:.3f} for every" in BODY
    ratios = bench("flow")["ratios"]
    flushed = [value for name, value in ratios.items() if "denormals flushed" in name]
    assert f"between {min(flushed):.0f} and {max(flushed):.0f} times" in BODY


def test_what_agrees_and_what_does_not():
    assert all(row["ok"] for row in rows("min-vidal-2024/figure-2/paper.json").values())
    table = rows("min-vidal-2024/table-1/paper.json")
    assert sum(row["rule"] == "near" for row in table.values()) == 28
    differ = [quantity for quantity, row in table.items() if not row["ok"]]
    assert differ == [f"p = {p}: APGD-CE at l1 10" for p in (2, 3, 4)]
    found = rows("open-questions/algorithm/paper.json")
    ours = [found[f"{name}: median radius, p = 1"]["ours"] for name in ("adam 1e-3", "flow")]
    assert "is {:.4g} in place of {:.4g}".format(*ours) in BODY
    attacks = rows("li-li-2025/table-2/paper.json").items()
    led = [row for quantity, row in attacks if quantity.startswith("standard NRF-PGD")]
    assert led
    assert all(row["ours"] <= row["published"] / 10 for row in led)
