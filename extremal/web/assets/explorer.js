"use strict";
// What the browser does by itself: the state in the link, time, the theme, copying.
window.dash_clientside = window.dash_clientside || {};
(function () {
  const keep = window.dash_clientside;
  const root = document.documentElement;

  // Dash keeps the caret of its fields where it was, but a range control has none and throws.
  const select = HTMLInputElement.prototype.setSelectionRange;
  HTMLInputElement.prototype.setSelectionRange = function (...range) {
    if (this.type !== "range") { select.apply(this, range); }
  };

  function trigger() {
    const context = keep.callback_context;
    return context && context.triggered.length ? context.triggered[0].prop_id : "";
  }

  let shown = null; // the flows whose neurons are on the page

  // A page's moves are counted, so that the server knows which of two questions is the later one.
  let turn = 0;
  function next() {
    turn += 1;
    return turn;
  }

  // The number in a field. Dash makes nothing of one that the field's bounds don't allow: then its
  // text, as it stands, so that the server can say what is wrong with it.
  function number(value, id) {
    const known = value !== null && value !== undefined && value !== "";
    if (known && Number.isFinite(Number(value))) { return Number(value); }
    const field = document.getElementById(id);
    return field ? field.value : "";
  }

  // To Dash one bad number is like another, and it tells nobody of the second: this does.
  document.addEventListener("input", function (event) {
    const field = event.target;
    if (field.type !== "number" || field.checkValidity()) { return; }
    const words = field.id + " " + field.value;
    window.setTimeout(() => keep.set_props("typed", { data: words }), 200);
  });

  document.addEventListener("click", function (event) {
    const summary = event.target instanceof Element && event.target.closest("#intro > summary");
    if (!summary) { return; }
    const state = summary.parentElement.open ? "closed" : "open"; // it is not yet what it becomes
    window.localStorage.setItem("extremal-introduction", state);
  });

  // Write what was chosen into the address, unless a number in it is none.
  function address(values, usual) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) {
      const numeric = typeof usual[name] !== "string" && value !== null;
      if (numeric && !(typeof value === "number" && Number.isFinite(value))) { return; }
      if (value !== null && value !== usual[name]) { query.set(name, value); }
    }
    const text = query.toString();
    const path = window.location.pathname + (text ? "?" + text : "");
    window.history.replaceState(window.history.state, "", path);
  }

  // The centres of the plane where there are `count`: a second one that was the usual one is the
  // usual one again, and both are among those that there are.
  function centres(first, second, setup, before) {
    const count = setup.positive + setup.negative;
    const usual = setup.positive + 1;
    if (!Number.isFinite(count)) { return [keep.no_update, keep.no_update, keep.no_update]; }
    const follows = before && second === before.positive + 1;
    const one = Math.min(first, count);
    let other = follows ? usual : Math.min(second, count);
    if (one === other) { other = one === usual ? 1 : usual; }
    const changed = (next, now) => Number.isFinite(next) && next !== now ? next : keep.no_update;
    return [changed(one, first), changed(other, second), count];
  }

  function plot(id) {
    const place = document.getElementById(id);
    const drawn = place && place.querySelector(".js-plotly-plot");
    return drawn && drawn.data && window.Plotly ? drawn : null;
  }

  // The last recorded frame that is not later than a time.
  function frameAt(times, time) {
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (times[middle] <= time * 1.0001) { low = middle; } else { high = middle - 1; }
    }
    return low;
  }

  // A new figure comes with a camera of its own, and plotly's uirevision does not keep a scene's:
  // what a user turned it to is noted here and set again. It also comes with the last frame, and
  // perhaps after the time control was heard: the frame that is wanted is set again, too.
  function watch(drawn) {
    if (drawn.explorerWatched) { return; }
    drawn.explorerWatched = true;
    let kept = null;
    drawn.on("plotly_afterplot", function () {
      if (drawn.explorerAgain) { drawn.explorerAgain(); }
    });
    drawn.on("plotly_relayout", function (change) {
      if (change && change["scene.camera"]) { kept = change["scene.camera"]; }
    });
    drawn.on("plotly_afterplot", function () {
      const scene = drawn.layout.scene;
      if (!kept || !scene || !scene.camera) { return; }
      const now = scene.camera.eye;
      const same = ["x", "y", "z"].every((axis) => Math.abs(now[axis] - kept.eye[axis]) < 1e-9);
      if (!same) { window.Plotly.relayout(drawn, { "scene.camera": kept }); }
    });
  }

  function moved(track, frame) {
    const change = { rays: {}, tips: {} };
    for (const axis of ["x", "y", "z"]) {
      const at = track[axis][frame];
      const rays = new Array(3 * at.length);
      const tips = new Array(at.length);
      for (let j = 0; j < at.length; j += 1) {
        tips[j] = at[j] / 1000;
        rays[3 * j] = 0;
        rays[3 * j + 1] = tips[j];
        rays[3 * j + 2] = null;
      }
      change.rays[axis] = [rays];
      change.tips[axis] = [tips];
    }
    return change;
  }

  function setFrame(drawn, track, frame) {
    const tips = drawn.data[1];
    if (!tips || tips.x.length !== track.x[0].length) { return; }
    const there = ["x", "y", "z"].every((axis) => track[axis][frame].every(
      (value, j) => Math.abs(tips[axis][j] - value / 1000) < 1e-3));
    if (there) { return; }
    const change = moved(track, frame);
    window.Plotly.restyle(drawn, change.rays, [0]);
    window.Plotly.restyle(drawn, change.tips, [1]);
  }

  function setCursor(chart, time) {
    const shapes = chart.layout.shapes || [];
    const last = shapes.length - 1;
    if (last < 0 || shapes[last].x0 === time) { return; }
    const name = "shapes[" + last + "]";
    window.Plotly.relayout(chart, { [name + ".x0"]: time, [name + ".x1"]: time });
  }

  function phase(track, time) {
    if (time < track.turn) { return "alignment"; }
    return time < track.fit ? "between the phases" : "fitting";
  }

  // The theme, and the size of the page's text, which the drawings follow.
  function applied(theme) {
    root.dataset.theme = theme;
    const size = parseFloat(window.getComputedStyle(root).fontSize);
    return { name: theme, text: Math.round(0.86 * size) };
  }

  function wanted() {
    const stored = window.localStorage.getItem("extremal-theme");
    if (stored === "light" || stored === "dark") { return stored; }
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  applied(wanted());

  async function copied(text, what) {
    try {
      await navigator.clipboard.writeText(text);
      return what + " copied.";
    } catch (error) {
      return "This browser does not let a page copy; select it by hand.";
    }
  }

  keep.explorer = {
    theme: function (clicks, current) {
      if (!clicks) { return [applied(wanted()), "Dark or light"]; }
      const next = current && current.name === "dark" ? "light" : "dark";
      window.localStorage.setItem("extremal-theme", next);
      return [applied(next), "Dark or light"];
    },

    // Which page it is, for whoever has many and for whoever can't see.
    arrived: function () {
      window.setTimeout(function () {
        for (const one of document.querySelectorAll("nav a")) {
          const here = one.classList.contains("current");
          if (here) { one.setAttribute("aria-current", "page"); }
          else { one.removeAttribute("aria-current"); }
          if (here) { document.title = one.textContent + " · extremal explorer"; }
        }
      }, 0);
      return keep.no_update;
    },

    // The introduction is open until somebody closes it; other settings where there is room.
    unfold: function () {
      const closed = window.localStorage.getItem("extremal-introduction") === "closed";
      return [!closed, window.matchMedia("(min-width: 64.01rem)").matches];
    },

    session: function (known) {
      if (known) { return keep.no_update; }
      const random = new Uint32Array(4);
      window.crypto.getRandomValues(random);
      return Array.from(random, (part) => part.toString(16)).join("");
    },

    collect: function (
      p, secondP, positive, negative, spread, init, width, seed, loss, on, typed,
      first, second, before
    ) {
      const setup = {
        p: number(p, "c-p"), second_p: on ? number(secondP, "c-second_p") : null,
        positive: number(positive, "c-positive"), negative: number(negative, "c-negative"),
        spread: number(spread, "c-spread"), init: number(init, "c-init"),
        width: number(width, "c-width"), seed: number(seed, "c-seed"), loss: loss, turn: next(),
      };
      const shown = [p, secondP, positive, negative, spread, "1e" + init, width];
      const [one, other, count] = centres(first, second, setup, before);
      return [setup].concat(shown.map(String), [one, other, count, count]);
    },

    aim: function (first, second, across, up, typed) {
      return { first: number(first, "c-first"), second: number(second, "c-second"),
        across: number(across, "c-across"), up: number(up, "c-up"), turn: next() };
    },

    link: function (setup, probe, usual) {
      if (!setup || !probe) { return keep.no_update; }
      const { turn: _, ...chosen } = { ...setup, ...probe };
      address(chosen, { ...usual, second: setup.positive + 1 });
      return keep.no_update;
    },

    compare: function (clicks, on) {
      const pressed = trigger().startsWith("compare");
      const next = pressed ? !on : on;
      const words = next ? "One network alone" : "p = 1 beside p = 3";
      const p = pressed && next ? 1 : keep.no_update;
      return [next, p, pressed && next ? 3 : keep.no_update, !next, String(next), words];
    },

    click: function (first, second) {
      const click = trigger().startsWith("plane-1") ? second : first;
      if (!click || !click.points || !click.points.length) {
        return [keep.no_update, keep.no_update];
      }
      const at = click.points[0];
      return [Number(at.x.toFixed(2)), Number(at.y.toFixed(2))];
    },

    // A new flow is shown as it ends; the same one, asked for again, where it was.
    arrive: function (tracks, moment) {
      const last = Math.max(...tracks.map((track) => track.last));
      const now = tracks.map((track) => track.of).join(" ");
      const same = now === shown && Number(moment) <= last;
      shown = now;
      return [last, same ? keep.no_update : last];
    },

    move: function (moment, tracks, grid) {
      if (!tracks || !tracks.length) { return keep.no_update; }
      const time = grid[Math.min(Number(moment), grid.length - 1)];
      tracks.forEach(function (track, index) {
        const drawn = plot("space-" + index);
        if (!drawn) { return; }
        watch(drawn);
        drawn.explorerAgain = () => setFrame(drawn, track, frameAt(track.times, time));
        drawn.explorerAgain();
      });
      const chart = plot("over-time");
      if (chart) {
        watch(chart);
        chart.explorerAgain = () => setCursor(chart, time);
        chart.explorerAgain();
      }
      const words = tracks.map(function (track) {
        const frame = frameAt(track.times, time);
        const whose = tracks.length > 1 ? "p = " + track.p + ": " : "";
        return whose + "loss " + track.loss[frame].toPrecision(2) + ", " + phase(track, time);
      });
      const told = ["t = " + Number(time.toPrecision(3)), ...words].join(" · ");
      document.getElementById("moment").setAttribute("aria-valuetext", told);
      return told;
    },

    play: function (clicks, ticks, disabled, moment, last) {
      const at = Number(moment);
      if (trigger().startsWith("play")) {
        if (!disabled) { return [true, "Play", keep.no_update, "polite"]; }
        return [false, "Pause", at >= last ? 0 : keep.no_update, "off"];
      }
      if (disabled) { return Array(4).fill(keep.no_update); }
      if (at >= last) { return [true, "Play", keep.no_update, "polite"]; }
      return [keep.no_update, keep.no_update, at + 1, keep.no_update];
    },

    shoot: function (data, index, norm, radius, own, typed, known, before) {
      const other = before && before.norm !== norm;
      const far = other ? known.usual[norm] : number(radius, "i-radius");
      const shot = { data: data, index: number(index, "i-index"), norm: norm, radius: far };
      address(shot, { data: "", norm: "" });
      shot.own = own || null;
      shot.turn = next();
      return [shot, other ? far : keep.no_update, known.largest[norm]];
    },

    order: function (...values) {
      const names = ["name", "title", "scale", "status", "done", "agree"];
      const now = values[names.length];
      const by = trigger().split(".")[0].replace("sort-", "");
      if (!names.includes(by)) { return [keep.no_update].concat(names.map(() => keep.no_update)); }
      const down = now.by === by ? !now.down : false;
      const words = names.map((name) => name !== by ? "none" : down ? "descending" : "ascending");
      return [{ by: by, down: down }].concat(words);
    },

    copy: function (copies, shares, code) {
      if (trigger().startsWith("share")) { return copied(window.location.href, "Link"); }
      return copied(code, "Python");
    },
  };
})();
