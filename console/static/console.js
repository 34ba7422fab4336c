// The console's own script: live parts that change in place, and keys. Pages are read without it.
"use strict";

// Change only what differs: text that is selected stays selected, rows keep their place, nothing flickers.

function sameKind(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
}

function keyOf(node) {
  return node.nodeType === 1 ? node.id || node.dataset.key || "" : "";
}

function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.dataset.still !== undefined && old.dataset.still === fresh.dataset.still) return;
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const isOurs = name === "open" || (name === "class" && old.classList.contains("here"));
    if (!fresh.hasAttribute(name) && !isOurs) old.removeAttribute(name);
  }
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    let found = place;
    const key = keyOf(wanted);
    if (key && keyed.has(key)) found = keyed.get(key);
    else while (found && keyOf(found) && keyOf(found) !== key) found = found.nextSibling;
    if (found && sameKind(found, wanted)) {
      if (found !== place) old.insertBefore(found, place);
      else place = place.nextSibling;
      morph(found, wanted);
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

htmx.defineExtension("calm", {
  isInlineSwap: (style) => style === "calm",
  handleSwap(style, target, fragment) {
    if (style !== "calm") return false;
    morphChildren(target, fragment);
    document.dispatchEvent(new Event("calm:changed"));
    return [target];
  },
});

// A page in the background asks nothing.
document.addEventListener("htmx:confirm", (event) => {
  if (document.hidden && event.detail.triggeringEvent?.type !== "submit") event.preventDefault();
});

// The broker restarts: say so, go on asking.
document.addEventListener("htmx:sendError", () => document.body.classList.add("away"));
document.addEventListener("htmx:afterOnLoad", () => document.body.classList.remove("away"));

// Keys

let lastKey = "";

function rows() {
  return [...document.querySelectorAll("[data-rows] tbody tr")];
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const here = all.findIndex((row) => row.classList.contains("here"));
  const next = all[Math.min(Math.max(here + by, 0), all.length - 1)];
  if (here >= 0) all[here].classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
}

function toggleKeys() {
  const dialog = document.getElementById("keys");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const before = lastKey;
  lastKey = event.key;
  if (before === "g") {
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    lastKey = "";
    return;
  }
  if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) {
      filter.focus();
      filter.select();
      event.preventDefault();
    }
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "Enter") document.querySelector("tr.here a")?.click();
  else if (event.key === "?") toggleKeys();
});

const help = document.querySelector(".help");
help.hidden = false;
help.addEventListener("click", toggleKeys);
