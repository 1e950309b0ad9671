"use strict";
// What the browser does with answers: which panels are old or awaited, and the paint of drawings.
window.dash_clientside = window.dash_clientside || {};
(function () {
  const keep = window.dash_clientside;

  // A server that has ended answers nothing: then no panel may go on to say that it is computed.
  const LOST = "The explorer gives no answer: has it been ended? What is old stays old. " +
    "Start it again (extremal explore) and move a control.";
  let lost = false;
  function tell(now) {
    if (now === lost) { return; }
    lost = now;
    keep.set_props("lost", { children: now ? LOST : "" });
  }

  // A browser has few connections to a server, and a question that waits holds one: a later question
  // for the same places ends it here, so that the later one can be asked at once. Dash is told what
  // the server says of a question that was given up: nothing.
  const fetched = window.fetch;
  const under = new Map(); // the places of a question under way, and how to end it
  async function ask(places, address, options) {
    const way = new AbortController();
    if (under.has(places)) { under.get(places).abort(); }
    under.set(places, way);
    try {
      const answer = await fetched.call(window, address, { ...options, signal: way.signal });
      tell(!answer.ok);
      return answer;
    } catch (error) {
      if (way.signal.aborted) { return new Response(null, { status: 204 }); }
      tell(true);
      throw error;
    } finally {
      if (under.get(places) === way) { under.delete(places); }
    }
  }
  window.fetch = function (address, options) {
    const body = String(address).includes("_dash-update-component") && options && options.body;
    const places = typeof body === "string" && body.slice(0, 5000).match(/"output":"([^"]+)"/);
    return places ? ask(places[1], address, options) : fetched.call(window, address, options);
  };

  // A part of a figure in other colours, with text and margins of another size.
  function painted(part, swap, ratio) {
    if (typeof part === "string") { return swap[part] || part; }
    if (Array.isArray(part)) { return part.map((one) => painted(one, swap, ratio)); }
    if (part === null || typeof part !== "object") { return part; }
    const made = {};
    for (const [name, value] of Object.entries(part)) {
      made[name] = painted(value, swap, ratio);
      if (name.endsWith("font") && value.size) { made[name].size = Math.round(ratio * value.size); }
      if (name !== "margin") { continue; }
      for (const [side, wide] of Object.entries(value)) { made[name][side] = Math.round(ratio * wide); }
    }
    return made;
  }

  // The server draws in the colours of day: those of the theme take their places here.
  function paint(drawn, theme, looks) {
    if (!drawn || !theme) { return keep.no_update; }
    const swap = {};
    for (const [name, colour] of Object.entries(looks.light)) { swap[colour] = looks[theme.name][name]; }
    return painted(drawn, swap, theme.text / looks.text);
  }

  keep.answers = {
    paint: paint,
    repaint: (theme, drawn, looks) => paint(drawn, theme, looks),

    // By turns alone, not by when a request ends: one that was given up ends early, and what is
    // awaited is the answer to the last move.
    marks: function (...values) {
      const groups = values[values.length - 1];
      const context = keep.callback_context;
      const known = { ...context.inputs, ...context.states };
      const data = (store) => known[store + ".data"];
      const gone = known["lost.children"];
      const old = [];
      const computed = [];
      for (const [name, group] of Object.entries(groups)) {
        const wanted = Math.max(...group.asked.map((store) => (data(store) || { turn: 0 }).turn));
        const shown = data("shown-" + name);
        if (typeof shown === "number" && shown !== wanted) { old.push(name); }
        if (!gone && data("answered-" + name) !== wanted) { computed.push(name); }
      }
      const words = computed.length ? groups[computed[0]].words : "";
      return [old.join(" "), computed.join(" "), !computed.length, words];
    },
  };
})();
