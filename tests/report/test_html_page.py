"""The page: complete, accessible, safe against its own text, and without any outside reference."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from extremal.report import save_figure, write_page, write_report
from extremal.report.html_page import ASSETS_FOLDER, report_html
from extremal.report.plotly_panels import plotly_figures
from tests.report.helpers_summaries import line_panel, make_summary

STYLE, SCRIPT = (ASSETS_FOLDER.joinpath(f"report.{end}").read_text() for end in ("css", "js"))

VOID = {"meta", "img", "link", "br", "hr", "input"}


class Outline(HTMLParser):
    """Every element with its attributes, every text with the elements around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def inside(self, tag: str) -> str:
        return " ".join(text for around, text in self.texts if tag in around)


@pytest.fixture(scope="module")
def text() -> str:
    return report_html(make_summary(), picture=b"png")


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    return Outline(text)


def test_nothing_is_loaded_from_outside(outline: Outline) -> None:
    for tag, attributes in outline.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:"), (tag, name, value)
    assert not outline.named("link")
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_the_browser_is_told_to_load_nothing(outline: Outline) -> None:
    policy = next(m["content"] for m in outline.named("meta") if "http-equiv" in m)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_no_button_sends_the_data_away() -> None:
    assert "showSendToCloud: false" in SCRIPT
    assert 'plotlyServerURL: ""' in SCRIPT
    assert "Cloud" not in "".join(re.findall(r"Buttons = (\[.*\]);", SCRIPT))


def test_plotly_is_inside_once_and_panels_are_the_figures(text: str) -> None:
    assert text.count("* plotly.js v") == 1
    found = re.search(r'<script type="application/json" id="panels">(.*?)</script>', text, re.S)
    assert found is not None
    assert json.loads(found[1]) == plotly_figures(make_summary())


def test_the_page_says_everything(outline: Outline) -> None:
    said = " ".join(outline.inside("main").split())
    summary = make_summary()
    for part in (summary["title"], summary["source"], summary["notes"], summary["experiment"]):
        assert part in said
    assert "2 of 4 rows agree with the source (1 differs, 1 not run)." in said
    assert "28 of 30 trials done, 2 failed; 1 h 12 min of computing in all." in said
    assert "extremal run min-vidal-2024/figure-2 --scale quick" in outline.inside("code")
    for failure in summary["failures"]:
        assert failure["reason"] in said
    assert "p = 3.0, spread = 0.3" in said
    for mark, meaning in summary["marks"].items():
        assert f"{mark} : {meaning}" in said
    assert "[0.01, 0.1, 0.3]" in said


def test_a_table_row_for_each_claim_setting_and_failure(text: str) -> None:
    tables = re.findall(r"<tbody.*?</tbody>", text, re.S)
    summary = make_summary()
    counts = [len(summary[name]) for name in ("rows", "settings", "failures")]
    assert [table.count("<tr") for table in tables] == counts
    rows = tables[0].split("<tr")[1:]
    for row, claim, word in zip(
        rows, summary["rows"], ("agrees", "differs", "agrees", "not run"), strict=True
    ):
        assert escape(claim["quantity"]) in row
        assert word in row
    assert "≤ 0.1" in rows[2]


def test_headings_language_captions_and_descriptions(outline: Outline) -> None:
    assert outline.named("html") == [{"lang": "en"}]
    assert len(outline.named("h1")) == 1
    assert len(outline.named("caption")) == len(outline.named("table")) == 3
    plots = [a for a in outline.named("div") if (a.get("id") or "").startswith("panel-")]
    assert len(plots) == len(make_summary()["panels"])
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert all(image["alt"] for image in outline.named("img"))
    assert all(cell["scope"] in ("col", "row") for cell in outline.named("th"))
    assert any(meta.get("name") == "viewport" for meta in outline.named("meta"))


def test_hostile_text_stays_text() -> None:
    bad = "</script><img src=x onerror=alert(1)>\"'&"
    summary = make_summary()
    panel = line_panel()
    panel["series"][0]["label"] = panel["title"] = panel["ylabel"] = bad
    summary |= dict.fromkeys(("title", "source", "notes", "experiment", "scale"), bad)
    summary |= {"panels": [panel], "marks": {"S": bad}}
    for row in summary["rows"]:
        row["quantity"] = row["source"] = bad
    for row in summary["settings"]:
        row["name"] = row["value"] = row["note"] = bad
    for row in summary["failures"]:
        row["reason"], row["params"] = bad, {bad: bad}
    hostile = Outline(report_html(summary, picture=b"png"))
    assert [image.get("onerror") for image in hostile.named("img")] == [None]
    assert len(hostile.named("script")) == 3
    assert bad in hostile.inside("h1")


def test_without_claims_and_failures_their_tables_are_absent() -> None:
    text = report_html({**make_summary(), "rows": [], "failures": []}, picture=b"png")
    assert "Ours against published" not in text
    assert "No published value to compare with" in text
    assert text.count("<table") == 1


def test_bands_are_explained_where_there_are_any(text: str) -> None:
    summary = make_summary()
    for panel in summary["panels"]:
        for series in panel.get("series", ()):
            series["n"] = 1
    assert "bands and bars from minimum" in text
    assert "bands and bars from minimum" not in report_html(summary, picture=b"png")


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2: (L1 + 0.05) / (L2 + 0.05) with relative luminances L1 >= L2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_light_and_in_dark() -> None:
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in STYLE.split("@media")[:2]]
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    for theme in themes:
        for name in ("ink", "soft", "good", "bad", "link"):
            for ground in ("paper", "raised"):
                assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)


def test_files_of_a_report(summary: dict[str, Any], tmp_path: Path) -> None:
    summary["panels"] = [line_panel()]
    files = write_report(summary, tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["figure.png", "figure.pdf", "report.html"]
    assert files[0].read_bytes() == save_figure(summary, tmp_path)[0].read_bytes()
    alone = write_page(summary, tmp_path / "alone.html")
    assert alone.read_bytes() == files[2].read_bytes()
