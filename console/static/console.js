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
  const keyed = new Map(); // to all that have a key, in their order: two clients may have one name
  for (const child of old.children) {
    const key = keyOf(child);
    if (key && !keyed.has(key)) keyed.set(key, []);
    if (key) keyed.get(key).push(child);
  }
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    let found = place;
    const key = keyOf(wanted);
    if (keyed.get(key)?.length) found = keyed.get(key).shift();
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
const away = document.getElementById("away");
document.addEventListener("htmx:sendError", () => (away.hidden = false));
document.addEventListener("htmx:afterOnLoad", (event) => (away.hidden = event.detail.xhr.status < 500));

// What is shown is gone, or may no longer be seen: the page that says so takes its place.
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status < 500) location.reload();
});

// Records: a search that streams what it finds, and a tail that shows what comes

const MOST_ROWS = 1000;
const finder = document.querySelector("[data-finder]");

function startStreams() {
  const results = document.getElementById("results");
  const status = document.getElementById("status");
  const table = results.querySelector("table");
  const body = document.getElementById("rows");
  const tailButton = finder.querySelector("[data-tail]");
  const searchButton = finder.querySelector("button[type=submit]");
  let source = null;

  function end(text) {
    if (source) source.close();
    source = null;
    searchButton.textContent = "Search";
    tailButton.textContent = "Watch live";
    tailButton.setAttribute("aria-pressed", "false");
    if (text !== undefined) status.textContent = text;
  }

  function clear() {
    results.querySelectorAll("[data-nothing], .more, .banner").forEach((each) => each.remove());
    body.replaceChildren();
    table.hidden = true;
  }

  function rowsOf(html) {
    const holder = document.createElement("template");
    holder.innerHTML = `<table><tbody>${html}</tbody></table>`;
    return [...holder.content.querySelectorAll("tr")];
  }

  function open(path, query, atTop) {
    let shown = 0;
    source = new EventSource(`${finder.dataset.finder}/${path}?${query}`);
    source.addEventListener("records", (event) => {
      const fresh = rowsOf(event.data);
      shown += fresh.length;
      table.hidden = false;
      if (atTop) body.prepend(...fresh);
      else body.append(...fresh);
      while (atTop && body.children.length > MOST_ROWS) body.lastElementChild.remove();
    });
    source.addEventListener("progress", (event) => {
      const isCut = atTop && shown > MOST_ROWS;
      status.textContent = event.data + (isCut ? `; the newest ${MOST_ROWS} are shown` : "");
    });
    source.addEventListener("started", () => (status.textContent = "Watching: nothing has come yet."));
    source.addEventListener("done", (event) => end(event.data));
    source.addEventListener("problem", (event) => end(event.data));
    source.addEventListener("more", (event) => {
      const line = document.createElement("p");
      line.className = "more";
      const link = document.createElement("a");
      link.className = "button";
      link.textContent = "Search on";
      link.href = `${finder.dataset.finder}?${event.data}`;
      link.addEventListener("click", (click) => {
        click.preventDefault();
        line.remove();
        begin("search", event.data, false);
      });
      line.append(link);
      results.append(line);
    });
    source.onerror = () => end("The console does not answer; what was found so far stays.");
  }

  function begin(path, query, atTop) {
    open(path, query, atTop);
    if (atTop) {
      tailButton.textContent = "Stop";
      tailButton.setAttribute("aria-pressed", "true");
    } else {
      searchButton.textContent = "Stop";
    }
  }

  const fields = () => new URLSearchParams([...new FormData(finder)].filter(([, value]) => value !== ""));

  tailButton.hidden = false;
  tailButton.addEventListener("click", () => {
    if (source) return end("Stopped.");
    status.textContent = "Watching …";
    begin("tail", fields(), true);
  });
  finder.addEventListener("submit", (event) => {
    event.preventDefault();
    if (source) return end(`Stopped. ${status.textContent}`);
    const query = fields();
    history.replaceState(null, "", `?${query}`);
    clear();
    status.textContent = "Searching …";
    begin("search", query, false);
  });
  window.addEventListener("pagehide", () => end());
}

if (finder) startStreams();

// Charts: the data are an attribute that the live part renews; the drawing stays in place

const charts = new WeakMap();
const WHOLE = [...Array(16).keys()].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power)); // records have no halves

function drawCharts() {
  if (typeof uPlot === "undefined") return;
  for (const holder of document.querySelectorAll("[data-chart]")) {
    const data = JSON.parse(holder.dataset.chart);
    const known = charts.get(holder);
    if (known) {
      known.setData(data);
      continue;
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--ink-quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const size = () => ({ width: holder.clientWidth, height: holder.clientHeight });
    const drawn = new uPlot(
      {
        ...size(),
        cursor: { y: false },
        legend: { show: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, space: 90, size: 30, values: (_, ticks) => ticks.map((each) => new Date(each * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 70, incrs: WHOLE, values: (_, ticks) => ticks.map((each) => each.toLocaleString("en").replaceAll(",", "\u202f")) }],
        series: [{}, { label: holder.dataset.label, stroke: colour("--accent"), width: 1.5, fill: `${colour("--accent")}1c`, points: { show: false } }],
      },
      data,
      holder.querySelector("[data-still]"),
    );
    charts.set(holder, drawn);
    addEventListener("resize", () => drawn.setSize(size()));
  }
}

document.addEventListener("calm:changed", drawCharts);
document.addEventListener("DOMContentLoaded", drawCharts);

// Keys

let lastKey = "";

function rows() {
  return [...document.querySelectorAll("[data-rows] tbody tr")];
}

function step(by) {
  const all = rows();
  const beside = document.querySelector(`[data-step="${by > 0 ? "j" : "k"}"]`);
  if (beside) beside.click();
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
  else if (event.key === "Enter" && event.target === document.body) document.querySelector("tr.here a")?.click();
  else if (event.key === "?") toggleKeys();
});

const help = document.querySelector(".help");
help.hidden = false;
help.addEventListener("click", toggleKeys);
