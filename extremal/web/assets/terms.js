"use strict";
// Explanations of words: while a pointer is on one, while it has the focus, or after a tap.
(function () {
  const HOLD = 200; // ms that a pointer may take from a word to its explanation
  const GAP = 8; // px between an explanation and the window's edge
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  let word = null;
  let closing = 0;

  function close() {
    window.clearTimeout(closing);
    if (word) { word.removeAttribute("aria-describedby"); }
    word = null;
    tip.hidden = true;
  }

  // Below the word, or above it where there is more room; never beyond the window.
  function open(term) {
    close();
    word = term;
    tip.textContent = term.dataset.explained;
    tip.hidden = false;
    term.setAttribute("aria-describedby", tip.id);
    const at = term.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = Math.min(at.left, wide - tip.offsetWidth - GAP);
    const below = at.bottom + tip.offsetHeight + GAP <= window.innerHeight;
    tip.style.left = Math.max(GAP, left) + "px";
    tip.style.top = (below ? at.bottom : Math.max(0, at.top - tip.offsetHeight)) + "px";
  }

  function termOf(event) {
    return event.target instanceof Element ? event.target.closest(".term") : null;
  }

  document.addEventListener("DOMContentLoaded", () => document.body.append(tip));
  if (document.body) { document.body.append(tip); }
  for (const kind of ["focusin", "click", "pointerover"]) {
    document.addEventListener(kind, function (event) {
      const term = termOf(event);
      if (term && term !== word) { open(term); }
      if (term || tip.contains(event.target)) { window.clearTimeout(closing); }
    });
  }
  document.addEventListener("pointerout", function (event) {
    const kept = word && word === document.activeElement;
    if (!word || kept || event.pointerType !== "mouse") { return; }
    closing = window.setTimeout(close, HOLD);
  });
  document.addEventListener("focusout", (event) => { if (termOf(event) === word) { close(); } });
  document.addEventListener("pointerdown", function (event) {
    if (word && !termOf(event) && !tip.contains(event.target)) { close(); }
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { close(); } });
  document.addEventListener("scroll", close, { capture: true, passive: true });
})();
