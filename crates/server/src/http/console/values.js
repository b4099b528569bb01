// One key: its facts, its value in pieces, and every change, each confirmed where it cannot be undone.
"use strict";

import { ask, button, confirm, el, fill, guarded, toast } from "./page.js";
import { bytes, day, exact, fromEscapes, isBinary, pretty, show, span } from "./format.js";
import { isError, run } from "./server.js";
import { NEW, TYPES, checked, typeName } from "./types.js";
import { hooks } from "./keys.js";

// Bytes of a string that are shown, and that can be edited.
const TEXT_BYTES = 65536;
let chosen = null;

export function forgetChoice() {
  chosen = null;
  fill("detail", el("p", { class: "empty" }, "Choose a key to see its value."));
}

export function choose(one) {
  chosen = one;
  return guarded(() => detail(one));
}

const refresh = () => chosen && choose(chosen);

async function detail(one) {
  const { replies: [type, ttl, encoding, usage] } = await run(
    [["TYPE", one.key], ["PTTL", one.key], ["OBJECT", "ENCODING", one.key], ["MEMORY", "USAGE", one.key]], one.db);
  if (chosen !== one) return;
  if (isError(type)) throw new Error(type.error);
  one.type = show(type);
  one.ttl = ttl;
  if (one.type === "none") {
    hooks.removed(one.key);
    fill("detail", el("p", { class: "empty" }, `The key ${one.name} does not exist any more.`));
    return;
  }
  const way = TYPES[one.type];
  let length = null;
  if (way && way.length) ({ replies: [length] } = await run([[way.length, one.key]], one.db));
  one.length = length;
  const facts = [
    length !== null && !isError(length) ? [exact(length), way.units[length === 1 ? 0 : 1]] : null,
    ttl >= 0 ? [span(ttl / 1000), `to live, until ${day(Date.now() + ttl)}`] : ["No TTL:", "the key does not expire"],
    isError(usage) || usage === null ? null : [bytes(usage), "of memory"],
    isError(encoding) ? null : [show(encoding), "encoding"],
  ].filter(Boolean);
  const body = el("div");
  fill("detail",
    el("header", {}, el("span", { class: `chip ${one.type}` }, typeName(one.type)), el("h2", { class: "title" }, one.name)),
    el("p", { class: "meta" }, ...facts.map(([number, unit]) => el("span", {}, el("b", {}, number), " " + unit))),
    tools(one), body);
  await value(one, body);
}

/* ---- the key as a whole ---- */

function tools(one) {
  return el("div", { class: "tools" },
    button("Refresh", "small", refresh),
    button("Rename", "small writes", () => rename(one)),
    button(one.ttl >= 0 ? "Change TTL" : "Set TTL", "small writes", () => setTtl(one)),
    one.ttl >= 0 ? button("Remove TTL", "small writes", () => change(one, ["PERSIST", one.key])) : null,
    button("Delete", "small danger writes", () => remove(one)));
}

async function change(one, command, check) {
  await guarded(async () => {
    const reply = await once(one, command);
    if (check) check(reply);
  });
  hooks.changed(one);
  await refresh();
}

async function once(one, command) {
  const { replies: [reply] } = await run([command], one.db);
  return checked(reply);
}

function remove(one) {
  const way = TYPES[one.type];
  const size = way && way.length ? ` with ${exact(one.length)} ${way.units[one.length === 1 ? 0 : 1]}` : "";
  confirm({
    title: `Delete ${one.name}?`, text: `The ${typeName(one.type)}${size} is deleted.`, action: "Delete the key",
    submit: async () => {
      await once(one, ["UNLINK", one.key]);
      hooks.removed(one.key);
      forgetChoice();
      toast(`${one.name} is deleted.`);
    },
  });
}

function rename(one) {
  ask({
    title: "Rename the key", action: "Rename",
    fields: [{ name: "name", label: "New name", value: one.name, required: true }, { name: "replace", label: "Replace a key that has this name", type: "checkbox" }],
    submit: async ({ name, replace }) => {
      const next = isBinary(one.key) ? fromEscapes(name) : name;
      const reply = await once(one, [replace ? "RENAME" : "RENAMENX", one.key, next]);
      if (reply === 0) throw new Error("A key of this name exists.");
      hooks.renamed(one.key, next, one.db);
    },
  });
}

const UNITS = [["1000", "seconds"], ["60000", "minutes"], ["3600000", "hours"], ["86400000", "days"]];
const unitOf = (ms) => [...UNITS].reverse().find(([size]) => ms >= 2 * size) || UNITS[0];

function setTtl(one) {
  const unit = one.ttl >= 0 ? unitOf(one.ttl) : UNITS[0];
  ask({
    title: `Time to live of ${one.name}`, action: "Set TTL", text: "The key is deleted when this time is over.",
    fields: [
      { name: "n", label: "Time to live", type: "number", min: "0.001", step: "any", required: true, value: one.ttl >= 0 ? String(Math.round(one.ttl / unit[0] * 10) / 10) : "" },
      { name: "unit", label: "Unit", options: UNITS, value: unit[0] },
    ],
    submit: async ({ n, unit: size }) => {
      const reply = await once(one, ["PEXPIRE", one.key, Math.max(1, Math.round(n * size))]);
      if (reply === 0) throw new Error("The key does not exist any more.");
      hooks.changed(one);
      await refresh();
    },
  });
}

export async function create(db, { created }) {
  const types = Object.keys(NEW);
  await ask({
    title: "New key", action: "Create",
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", options: types.map((type) => [type, typeName(type)]), change: (type) => {
        document.querySelector("#dialog textarea").previousElementSibling.textContent = NEW[type].label;
      } },
      { name: "value", label: NEW.string.label, rows: 6 },
      { name: "ttl", label: "TTL in seconds (empty: the key does not expire)", type: "number", min: "0.001", step: "any" },
    ],
    submit: async ({ name, type, value: text, ttl }) => {
      const command = NEW[type].command(name, text);
      const { replies: [exists] } = await run([["EXISTS", name]], db);
      if (exists === 1) throw new Error("A key of this name exists.");
      const { replies } = await run(ttl ? [command, ["PEXPIRE", name, Math.max(1, Math.round(ttl * 1000))]] : [command], db);
      if (checked(replies[0]) === null) throw new Error("A key of this name exists.");
      created(name, db);
    },
  });
}

/* ---- its value ---- */

async function value(one, body) {
  if (one.type === "string" || one.type === "ReJSON-RL") return text(one, body);
  const way = TYPES[one.type];
  if (!way) return body.append(el("p", { class: "empty" }, `Values of type ${one.type} are shown by their own commands.`));
  return pieces(one, way, body);
}

async function text(one, body) {
  const isJson = one.type === "ReJSON-RL";
  const { replies: [reply] } = await run([isJson ? ["JSON.GET", one.key] : ["GETRANGE", one.key, 0, TEXT_BYTES - 1]], one.db);
  checked(reply);
  body.append(el("pre", { class: "value", tabIndex: 0, ariaLabel: "Value" }, pretty(reply)));
  if (!isJson && one.length > TEXT_BYTES) {
    return body.append(el("p", { class: "note more" }, `The first ${bytes(TEXT_BYTES)} of ${bytes(one.length)}. Longer values cannot be edited here.`));
  }
  return body.append(button("Edit value", "small more writes", () => edit({
    title: `Value of ${one.name}`, label: isJson ? "JSON document" : "Value", old: reply, rows: 14,
    submit: async (word) => {
      // A value that somebody else has changed is not overwritten.
      const command = isJson ? ["JSON.SET", one.key, "$", word] : ["SET", one.key, word, "IFEQ", reply, "KEEPTTL"];
      if ((await once(one, command)) === null) throw new Error("The value has changed meanwhile; refresh it first.");
      hooks.changed(one);
      await refresh();
    },
  })));
}

// A dialog for one value. Bytes that are not text are written as \xNN.
function edit({ title, label, old, rows, submit }) {
  const isRaw = isBinary(old);
  ask({
    title, action: "Save",
    fields: [{ name: "value", label, value: show(old), rows, help: isRaw ? "This value is not text: \\xNN stands for a byte." : null }],
    submit: ({ value: next }) => submit(isRaw ? fromEscapes(next) : next),
  });
}

async function pieces(one, way, body) {
  const rows = el("tbody");
  const more = button("Show more", "small more", () => guarded(next));
  const isEditable = way.edit || way.remove;
  const head = el("tr", {}, ...way.head.map((name) => el("th", { scope: "col" }, name)),
    isEditable ? el("th", { scope: "col", class: "writes" }, el("span", { class: "unseen" }, "Actions")) : null);
  if (way.add) body.append(button(`Add ${way.one}`, "small writes", () => addTo(one, way)));
  body.append(el("div", { class: "scroll", tabIndex: 0, role: "group", ariaLabel: "Value" },
    el("table", { class: "plain rows" }, el("caption", { class: "unseen" }, `Value of ${one.name}`), el("thead", {}, head), rows)), more);
  let at = null;
  async function next() {
    const { replies: [reply] } = await run([way.page(one.key, at)], one.db);
    const piece = way.read(checked(reply), at);
    rows.append(...piece.rows.map((row) => line(one, way, row, isEditable)));
    at = piece.next;
    more.hidden = at === null;
  }
  more.hidden = true;
  await next();
}

function line(one, way, row, isEditable) {
  const name = show(row.cells[row.cells.length > 1 && one.type !== "zset" ? 0 : row.cells.length - 1]);
  const actions = isEditable ? el("td", { class: "n acts writes" },
    way.edit ? el("button", { type: "button", class: "small", ariaLabel: `Edit ${name}`, on: { click: () => edit({
      title: `${typeName(one.type)} ${one.name}`, label: `${way.edit.label}${one.type === "list" ? ` at ${name}` : ` of ${name}`}`, old: way.edit.of(row), rows: one.type === "zset" ? 1 : 6,
      submit: async (word) => {
        const reply = await once(one, way.edit.command(one.key, row, word));
        if (way.edit.check) way.edit.check(reply);
        await refresh();
      },
    }) } }, "Edit") : null,
    el("button", { type: "button", class: "small danger", ariaLabel: `Remove ${name}`, on: { click: () => confirm({
      title: `Remove this ${way.one}?`, text: `${way.one === "element" ? `Element ${name}` : name} is removed from ${one.name}.`, action: `Remove the ${way.one}`,
      submit: async () => {
        await once(one, way.remove(one.key, row));
        hooks.changed(one);
        await refresh();
      },
    }) } }, "Remove")) : null;
  return el("tr", {}, ...row.cells.map((cell) => el("td", { class: "mono" }, show(cell))), actions);
}

function addTo(one, way) {
  ask({
    title: `Add ${way.one} to ${one.name}`, action: "Add",
    fields: way.add.fields.map(([name, label, kind]) => ({
      name, label, rows: typeof kind === "number" ? kind : undefined, options: Array.isArray(kind) ? kind : undefined,
    })),
    submit: async (values) => {
      const reply = await once(one, way.add.command(one.key, values));
      if (way.add.check) way.add.check(reply);
      hooks.changed(one);
      await refresh();
    },
  });
}
