// The key browser: search, list, prefix tree. A search continues by itself until it ends or is stopped.
"use strict";

import { $, el, fill, guarded, segments, toast } from "./page.js";
import { exact, plural, show, span } from "./format.js";
import { call, isError, run } from "./server.js";
import { known } from "./overview.js";
import { choose, create, forgetChoice } from "./values.js";

// Names that one search keeps before it pauses.
const KEPT = 20000;
const ROWS = 200;
const state = { search: 0, cursor: null, found: [], seen: new Set(), looked: 0, size: 0, isOn: false, rows: ROWS, layout: "list", open: new Set() };
const chosenDb = () => Number($("scan-db").value || 0);

export function setDatabases() {
  for (const id of ["scan-db", "survey-db"]) {
    if ($(id).options.length) continue;
    fill(id, ...Array.from({ length: known.databases }, (_, at) => el("option", { value: String(at) }, String(at))));
  }
}

/* ---- the search ---- */

const hasGlob = (text) => /[*?[\]]/.test(text);
const escaped = (text) => text.replace(/[\\*?[\]^]/g, "\\$&");

export async function search() {
  const number = ++state.search;
  const text = $("scan-match").value;
  Object.assign(state, { cursor: "0", found: [], seen: new Set(), looked: 0, isOn: true, rows: ROWS, db: chosenDb(), type: $("scan-type").value });
  state.pattern = text === "" ? null : hasGlob(text) ? text : `*${escaped(text)}*`;
  state.most = KEPT;
  render();
  await guarded(async () => {
    const { replies: [size, type] } = await run([["DBSIZE"], ["TYPE", text]], state.db);
    if (number !== state.search) return;
    state.size = Number(size) || 0;
    // The key of exactly this name comes first, however long the search takes.
    if (text !== "" && !isError(type) && show(type) !== "none" && (!state.type || state.type === show(type))) {
      add(text);
      render();
    }
  });
  await proceed(number);
}

function add(key) {
  const id = JSON.stringify(key);
  if (state.seen.has(id)) return;
  state.seen.add(id);
  state.found.push({ key, id, name: show(key), db: state.db });
}

// Searches on until the end, a stop, or as many names as are kept.
async function proceed(number) {
  const words = [];
  if (state.pattern) words.push("MATCH", state.pattern);
  if (state.type) words.push("TYPE", state.type);
  const each = 1000;
  let drawn = 0;
  try {
    while (state.cursor !== null && state.isOn && state.found.length < state.most) {
      const reply = await call(["SCAN", state.cursor, ...words, "COUNT", each], state.db);
      if (number !== state.search) return;
      state.cursor = show(reply[0]) === "0" ? null : reply[0];
      state.looked += each;
      reply[1].forEach(add);
      // The list is drawn again a few times a second at most.
      if (performance.now() - drawn > 250) { render(); drawn = performance.now(); }
    }
  } catch (error) {
    if (number !== state.search) return;
    toast(error.message);
  }
  if (number !== state.search) return;
  state.isOn = false;
  render();
}

export function stop() { state.isOn = false; }

function progress() {
  const part = state.cursor === null ? 1 : state.size ? Math.min(0.99, state.looked / state.size) : 0;
  const found = plural(state.found.length, "key", "keys");
  const looked = exact(Math.min(state.looked, state.size));
  $("key-state").textContent = state.isOn ? `${found}; searched ${looked} of ${exact(state.size)}`
    : state.cursor === null ? (state.found.length ? `${found} found` : "No key matches.")
    : state.found.length >= state.most ? `Paused at ${found}; searched ${looked} of ${exact(state.size)}`
    : `Stopped; ${found} among ${looked} of ${exact(state.size)}`;
  $("key-stop").hidden = !state.isOn;
  $("key-more").hidden = state.isOn || state.cursor === null;
  $("key-meter").hidden = !state.isOn;
  $("key-meter").firstElementChild.style.width = `${part * 100}%`;
}

/* ---- list and tree ---- */

function render() {
  progress();
  const isTree = state.layout === "tree";
  $("separator-field").hidden = !isTree;
  const items = isTree ? branch(treeOf(), "") : state.found.slice(0, state.rows).map(keyRow);
  // What has the focus keeps it.
  const focus = document.activeElement?.dataset?.id;
  fill("key-list", ...items);
  if (focus) [...$("key-list").querySelectorAll("[data-id]")].find((one) => one.dataset.id === focus)?.focus();
  $("key-rest").hidden = isTree || state.found.length <= state.rows;
  $("key-rest").textContent = `Show more (${exact(state.found.length - state.rows)} left)`;
  describe(isTree ? shownKeys : state.found.slice(0, state.rows));
}

let shownKeys = [];

function treeOf() {
  const separator = $("separator").value || ":";
  const root = { names: new Map(), keys: [], n: 0 };
  for (const one of state.found) {
    const parts = one.name.split(separator);
    let node = root;
    node.n++;
    for (const part of parts.slice(0, -1)) {
      if (!node.names.has(part)) node.names.set(part, { names: new Map(), keys: [], n: 0 });
      node = node.names.get(part);
      node.n++;
    }
    node.keys.push(one);
  }
  shownKeys = [];
  return root;
}

function branch(node, path) {
  const separator = $("separator").value || ":";
  const folders = [...node.names].sort(([a], [b]) => a.localeCompare(b)).slice(0, 1000);
  const items = folders.map(([name, child]) => {
    const own = path + name + separator;
    const isOpen = state.open.has(own);
    const toggle = el("button", { type: "button", class: "folder", ariaExpanded: String(isOpen), "data-id": "folder " + own, on: { click: () => {
      if (isOpen) state.open.delete(own); else state.open.add(own);
      render();
    } } }, el("span", { class: "twist", ariaHidden: "true" }), el("span", { class: "name" }, name + separator), el("span", { class: "ttl" }, exact(child.n)));
    return el("li", {}, toggle, isOpen ? el("ul", {}, ...branch(child, own)) : null);
  });
  const keys = node.keys.slice(0, 500);
  shownKeys.push(...keys);
  items.push(...keys.map(keyRow));
  const hidden = node.keys.length - keys.length + Math.max(0, node.names.size - folders.length);
  if (hidden > 0) items.push(el("li", { class: "note" }, `${exact(hidden)} more: search for ${path || "a prefix"}…`));
  return items;
}

function keyRow(one) {
  const isChosen = state.chosen === one.id && state.chosenDb === one.db;
  const row = el("button", { type: "button", title: one.name, "data-id": one.id, on: { click: () => pick(one) } },
    el("span", { class: `chip ${one.type || ""}` }, label(one.type)), el("span", { class: "name" }, one.name),
    el("span", { class: "ttl" }, one.ttl >= 0 ? span(one.ttl / 1000) : ""));
  if (isChosen) row.setAttribute("aria-current", "true");
  one.row = row;
  return el("li", {}, row);
}

const label = (type) => ({ zset: "sorted set", "ReJSON-RL": "JSON", "TSDB-TYPE": "time series" }[type] || type || "…");

// Asks for the types and times of rows that are shown.
async function describe(list) {
  const missing = list.filter((one) => !one.type && !one.isAsked).slice(0, 1000);
  missing.forEach((one) => { one.isAsked = true; });
  for (let at = 0; at < missing.length; at += 200) {
    const part = missing.slice(at, at + 200);
    await guarded(async () => {
      const { replies } = await run(part.flatMap(({ key }) => [["TYPE", key], ["PTTL", key]]), part[0].db);
      part.forEach((one, i) => {
        one.type = show(replies[i * 2]);
        one.ttl = replies[i * 2 + 1];
        if (one.type === "none") return one.row?.parentElement.remove();
        if (!one.row) return undefined;
        const [chip, , ttl] = one.row.children;
        chip.className = `chip ${one.type}`;
        chip.textContent = label(one.type);
        ttl.textContent = one.ttl >= 0 ? span(one.ttl / 1000) : "";
        return undefined;
      });
    });
  }
}

function pick(one) {
  state.chosen = one.id;
  state.chosenDb = one.db;
  document.querySelectorAll("#key-list [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
  one.row.setAttribute("aria-current", "true");
  choose(one);
  if (innerWidth <= 720) $("detail").scrollIntoView({ behavior: "smooth", block: "start" });
}

/* ---- what the editor tells the list ---- */

const gone = (key) => {
  state.found = state.found.filter((one) => one.id !== JSON.stringify(key));
  state.seen.delete(JSON.stringify(key));
};
const hooks = {
  created(key, db) {
    if (db !== state.db) return;
    gone(key);
    add(key);
    state.found.unshift(state.found.pop());
    render();
    pick(state.found[0]);
  },
  removed(key) { gone(key); render(); },
  renamed(key, next, db) { gone(key); hooks.created(next, db); },
  changed(one) { one.type = null; one.isAsked = false; describe([one]); },
};

// Opens a key from another page.
export function open(key, db) {
  location.hash = "#keys";
  $("scan-db").value = String(db);
  $("scan-match").value = typeof key === "string" ? key : "";
  state.search++;
  Object.assign(state, { cursor: null, found: [], seen: new Set(), looked: 0, size: 0, isOn: false, rows: ROWS, db, pattern: null, most: KEPT });
  add(key);
  render();
  pick(state.found[0]);
}

export function enter() {
  if (state.cursor === null && !state.found.length) search();
}

export function start() {
  segments("layouts", [["list", "List"], ["tree", "Tree"]], "list", (layout) => { state.layout = layout; render(); });
  $("separator").addEventListener("input", () => { state.open.clear(); render(); });
  const again = () => { forgetChoice(); search(); };
  $("scan").addEventListener("submit", (event) => { event.preventDefault(); again(); });
  $("scan-db").addEventListener("change", again);
  $("scan-type").addEventListener("change", again);
  $("key-stop").addEventListener("click", stop);
  $("key-more").addEventListener("click", () => { state.most = state.found.length + KEPT; state.isOn = true; proceed(state.search); });
  $("key-rest").addEventListener("click", () => { state.rows += 1000; render(); });
  $("key-new").addEventListener("click", () => create(chosenDb(), hooks));
}
export { hooks };
