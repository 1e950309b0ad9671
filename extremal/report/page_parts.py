"""The page's style sheet and script. Both are part of the page: it loads nothing."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --raised: #f5f6f8; --ink: #1c1f23;
  --soft: #52585f; --rule: #d4d8dd; --grid: #e3e6ea; --good: #0a6640; --bad: #a3330a;
  --link: #00568a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --raised: #1e2327; --ink: #e8eaed;
  --soft: #aab1b9; --rule: #3b4249; --grid: #2c3238; --good: #5fd39b; --bad: #ff9b70;
  --link: #7cc4f4; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0.2rem 0 0.5rem; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 0.75rem; padding-top: 0.75rem;
  border-top: 1px solid var(--rule); }
p, ul { max-width: 46rem; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 0.92em; }
pre { background: var(--raised); border: 1px solid var(--rule); border-radius: 0.4rem;
  padding: 0.8rem 1rem; overflow-x: auto; max-width: 46rem; }
.kicker, .soft, caption, figcaption small { color: var(--soft); }
.kicker { margin: 0; }
.verdict { font-size: 1.1rem; font-weight: 600; margin: 1rem 0; padding: 0.7rem 1rem;
  background: var(--raised); border-left: 0.3rem solid var(--soft); }
.verdict.good { border-color: var(--good); } .verdict.bad { border-color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0 0 0.5rem; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.8rem 0.45rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { border-bottom: 2px solid var(--rule); white-space: nowrap; }
tbody th { font-weight: 500; }
td.word { white-space: nowrap; font-weight: 600; }
.agrees { color: var(--good); } .differs, .undefined { color: var(--bad); }
.panels { display: grid; gap: 1.5rem 1.25rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--least)), 1fr)); }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; min-height: 1.6em; }
.plot { width: 100%; height: 21rem; }
.plot.scene { height: 27rem; }
details { margin-top: 1.25rem; } summary { cursor: pointer; color: var(--link); }
details img { max-width: 100%; height: auto; background: #ffffff; margin-top: 0.75rem; }
.marks { padding-left: 1.2rem; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
@media (max-width: 44rem) {
  main { padding: 1.25rem 1rem 3rem; } h1 { font-size: 1.4rem; }
  table, caption, tbody, tr, th, td { display: block; width: 100%; }
  thead { position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden; }
  tr { padding: 0.6rem 0; border-bottom: 1px solid var(--rule); }
  tbody th, td { border: 0; padding: 0.1rem 0; }
  tbody th { font-weight: 600; }
  td { display: grid; grid-template-columns: 7.5rem 1fr; gap: 0.5rem; }
  td:empty { display: none; }
  td::before { content: attr(data-label); color: var(--soft); font-weight: 400; }
  .plot { height: 19rem; }
}
@media print { .plot { break-inside: avoid; } details { display: none; } }
"""

SCRIPT = """
"use strict";
const panels = JSON.parse(document.getElementById("panels").textContent);
const root = document.documentElement;
// On a touch screen a finger on a panel scrolls the page; it does not zoom the panel.
const coarse = matchMedia("(pointer: coarse)").matches;
// Buttons are named one by one: by default there is one that sends the data to a server.
const config = { responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
  showSendToCloud: false, plotlyServerURL: "" };
const flatButtons = [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]];
const sceneButtons = [["toImage"], ["resetCameraDefault3d"]];

function themed(layout) {
  const style = getComputedStyle(root);
  const ink = style.getPropertyValue("--ink").trim();
  const soft = style.getPropertyValue("--soft").trim();
  const grid = style.getPropertyValue("--grid").trim();
  const copy = structuredClone(layout);
  Object.assign(copy, { autosize: true, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink } });
  if (coarse && !copy.scene) { copy.dragmode = false; }
  const flat = ["xaxis", "yaxis"].filter((name) => copy[name]);
  for (const name of flat) {
    Object.assign(copy[name], { gridcolor: grid, linecolor: soft, tickcolor: soft });
  }
  if (copy.scene) {
    for (const name of ["xaxis", "yaxis", "zaxis"]) {
      Object.assign(copy.scene[name], { gridcolor: grid, zerolinecolor: soft, color: soft });
    }
  }
  return copy;
}

function show() {
  panels.forEach((panel, index) => {
    const place = document.getElementById("panel-" + index);
    const modeBarButtons = panel.layout.scene ? sceneButtons : flatButtons;
    const options = { ...config, modeBarButtons };
    Plotly.react(place, panel.data, themed(panel.layout), options).catch(() => {
      place.textContent = "This browser cannot draw it: see the figure as printed below.";
    });
  });
}

show();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
"""
