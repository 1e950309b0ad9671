"""The report of an experiment: one HTML page that works from a file, without a network.

Its sections are made as HTML, where all text goes through `escape`; its style sheet and script are
files of `assets/`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from extremal._files import write_whole
from extremal.report.figure import checked_panels, png_bytes
from extremal.report.panel_description import describe
from extremal.report.panel_style import has_band, headings, panels_of
from extremal.report.plotly_panels import plotly_figures
from extremal.report.verdict_table import (
    duration,
    interval,
    number,
    published,
    run_command,
    setting,
    tally,
    tolerance,
    verdict,
)

Summary = Mapping[str, Any]
# The folder of the page's style sheet and script.
ASSETS_FOLDER = Path(__file__).parent / "assets"
# A sign before each verdict, for readers who see no colour.
VERDICT_SIGNS = {"agrees": "✓", "differs": "✗", "reported": "·", "not run": "–", "undefined": "?"}
# What stands above curves that are means over several trials.
BANDS_EXPLAINED = (
    '<p class="soft">Curves are means over trials, bands and bars from minimum to maximum.</p>\n'
)
# The least width of a panel as CSS, by the number of columns of the figure.
LEAST_PANEL_WIDTHS = {1: "100%", 2: "28rem"}


def head_section(summary: Summary) -> str:
    """Title, source, verdict and notes."""
    words = {verdict(row) for row in summary["rows"]}
    tone = "bad" if words & {"differs", "undefined"} else "good" if "agrees" in words else ""
    notes = f"<p>{escape(summary['notes'])}</p>\n" if summary["notes"] else ""
    return f"""<header>
<p class="kicker"><code>{escape(summary["experiment"])}</code>, {escape(summary["scale"])} scale</p>
<h1>{escape(summary["title"])}</h1>
<p class="soft">Source: {escape(summary["source"])}</p>
</header>
<p class="verdict {tone}">{escape(tally(summary))}</p>
{notes}"""


def claims_section(summary: Summary) -> str:
    """Ours against published, one row for each claim."""
    if not summary["rows"]:
        return ""
    names = ("Quantity", "Published", "Ours", "Range", "Tolerance", "Verdict", "Trials", "Source")
    body = [_claim(row) for row in summary["rows"]]
    about = "Ours is the mean over the trials; the range is from their minimum to their maximum."
    return _section("Ours against published", _table(about, names, body))


def _claim(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    word = verdict(row)
    return [
        ("", row["quantity"]),
        ("", published(row)),
        ("", number(row["ours"])),
        ("", interval(row)),
        ("", tolerance(row)),
        (f"word {word.replace(' ', '-')}", f"{VERDICT_SIGNS[word]} {word}"),
        ("", str(row["n"])),
        ("", row["source"]),
    ]


def figure_section(summary: Summary, png: bytes) -> str:
    """A place for each interactive panel, with its description, and the figure as printed."""
    panels = panels_of(summary)
    places = []
    for index, (panel, title) in enumerate(zip(panels, headings(panels), strict=True)):
        about = escape(describe(panel), quote=True)
        places.append(
            f"<figure>\n<figcaption>{escape(title)}</figcaption>\n"
            f'<div class="plot {escape(panel["kind"])}" id="panel-{index}" role="img" '
            f'aria-label="{about}"></div>\n</figure>\n'
        )
    least = LEAST_PANEL_WIDTHS.get(min(int(summary["columns"]), len(panels)), "20rem")
    bands = any(has_band(series) for panel in panels for series in panel.get("series", ()))
    picture = base64.b64encode(png).decode()
    about = " ".join(f"{t}: {describe(p)}" for p, t in zip(panels, headings(panels), strict=True))
    return _section(
        "Figure",
        f"{BANDS_EXPLAINED if bands else ''}"
        "<noscript><p>The panels need JavaScript; the figure as printed does not.</p></noscript>\n"
        f'<div class="panels" style="--least: {least}">\n{"".join(places)}</div>\n'
        "<details>\n<summary>The figure as printed</summary>\n"
        f'<img src="data:image/png;base64,{picture}" alt="{escape(about, quote=True)}">\n'
        "</details>\n",
    )


def settings_section(summary: Summary) -> str:
    """Every setting with its value and where it comes from."""
    names = ("Setting", "Value", "From", "Note")
    body = [
        [("", row["name"]), ("", setting(row["value"])), ("", row["mark"]), ("", row["note"])]
        for row in summary["settings"]
    ]
    legend = "".join(
        f"<li><strong>{escape(mark)}</strong>: {escape(meaning)}</li>\n"
        for mark, meaning in summary["marks"].items()
    )
    about = "The column From says where a value comes from; the marks are explained below."
    return _section("Settings", _table(about, names, body) + f'<ul class="marks">\n{legend}</ul>\n')


def trials_section(summary: Summary) -> str:
    """How many trials there are, what they cost, which failed and why, and how to run them."""
    count = summary["trials"]
    text = (
        f"<p>{count['done']} of {count['total']} trials done, {count['failed']} failed; "
        f"{duration(summary['seconds'])} of computing in all. Made by:</p>\n"
        f"<pre><code>{escape(run_command(summary))}</code></pre>\n"
    )
    if summary["failures"]:
        names = ("Parameters", "Seed", "Reason")
        body = [
            [("", _parameters(row["params"])), ("", str(row["seed"])), ("", row["reason"])]
            for row in summary["failures"]
        ]
        text += _table("Trials that failed; the next run tries them again.", names, body)
    return _section("Trials", text)


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in params.items())


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}</section>\n"


def _table(about: str, names: Sequence[str], body: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A table of (class, text) cells; the first of each row is its heading.

    The roles repeat what the elements say, since on a phone they are displayed as blocks.
    """
    top = "".join(f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in names)
    lines = []
    for (_, title), *cells in body:
        line = f'<th scope="row" role="rowheader">{escape(title)}</th>'
        for name, (kind, text) in zip(names[1:], cells, strict=True):
            shape = f' class="{kind}"' if kind else ""
            line += f'<td role="cell" data-label="{name}"{shape}>{escape(text)}</td>'
        lines.append(f'<tr role="row">{line}</tr>\n')
    return (
        f'<table role="table">\n<caption>{escape(about)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{top}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{"".join(lines)}</tbody>\n</table>\n'
    )


# The browser itself refuses whatever is not in the page.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write_page(
    summary: Mapping[str, Any], path: str | Path, *, picture: bytes | None = None
) -> Path:
    """Write the report as one HTML file, whole or not at all, and return its path.

    `picture` is the figure as PNG, which is drawn anew where it is not given.
    """
    write_whole(path, report_html(summary, picture=picture).encode(), make_folders=True)
    return Path(path)


def report_html(summary: Mapping[str, Any], *, picture: bytes | None = None) -> str:
    """The HTML text of the report."""
    checked_panels(summary)
    png = png_bytes(summary) if picture is None else picture
    sections = [head_section(summary), claims_section(summary), figure_section(summary, png)]
    sections += [settings_section(summary), trials_section(summary)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">
<title>{escape(str(summary["title"]))}</title>
<style>
{_asset("report.css")}</style>
</head>
<body>
<main>
{"".join(sections)}</main>
<script>{_plotly()}</script>
<script type="application/json" id="panels">{_inline(plotly_figures(summary))}</script>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    """The style sheet or the script: both become part of the page, which loads nothing."""
    return (ASSETS_FOLDER / name).read_text(encoding="utf-8")


def _plotly() -> str:
    # Imported here, because a figure or a table alone does not need it.
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _inline(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")
