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
