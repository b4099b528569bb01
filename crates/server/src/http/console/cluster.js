// The cluster of which this server is a node: who owns which slots, and slots that move as a whole, with their pace.
"use strict";

import { $, el } from "./page.js";
import { bytes, exact, plural, span } from "./format.js";
import { facts, fillMeter } from "./replication.js";
import { Table } from "./table.js";

const SLOTS = 16384;
const WIDTH = 256;
const STATES = {
  waiting: "waits for its turn, or for the target", connecting: "begins", copying: "copies", catching_up: "sends what has changed",
  holding: "hands over: writers wait", committing: "hands over: all wait", arriving: "arrives", retrying: "begins again later",
  success: "is done", failed: "has failed", cancelled: "was cancelled",
};
const IS_OVER = ["success", "failed", "cancelled"];

const colours = ["--a", "--d", "--b", "--c", "--e"];
// The first five groups have the colours of the charts, the others their own.
function colour(at) {
  if (at >= colours.length) return `hsl(${Math.round(at * 137.5) % 360} 45% 52%)`;
  return getComputedStyle(document.documentElement).getPropertyValue(colours[at]).trim();
}

const ranges = (slots) => slots.map(([start, end]) => (start === end ? `${start}` : `${start}–${end}`)).join(", ");
const size = (slots) => slots.reduce((sum, [start, end]) => sum + end - start + 1, 0);

function swatch(at) {
  const mark = el("i", { class: "swatch" });
  mark.style.background = colour(at);
  return mark;
}

const NODES = new Table($("node-table"), {
  caption: "Groups of the cluster", key: (row) => row.id, sort: [0, "up"], filter: false,
  empty: "No configuration has come yet.",
  columns: [
    { title: "Master", of: (row) => row.master, class: "mono", paint: (cell, row) => {
      cell.replaceChildren(swatch(row.at), row.is_own ? `${row.master} (this server's group)` : row.master);
    } },
    { title: "Replicas", of: (row) => row.replicas.length, text: (row) => row.replicas.join(", ") || "none" },
    { title: "Slots", of: (row) => size(row.slots), text: (row) => exact(size(row.slots)), class: "n" },
    { title: "Ranges", of: (row) => row.slots.length, text: (row) => ranges(row.slots.slice(0, 12)) + (row.slots.length > 12 ? " …" : ""), wide: true },
  ],
});

// What each move had sent when the page looked last, and its pace since.
const paces = new Map();
function pace(row, now_ms) {
  const last = paces.get(row.id);
  if (!last || row.sent_bytes < last.bytes || now_ms - last.at > 5000) {
    paces.set(row.id, { at: now_ms, bytes: row.sent_bytes, keys: row.copied_keys, bytes_per_s: null, keys_per_s: null });
  } else if (now_ms - last.at >= 900) {
    const per_s = (before, after) => ((after - before) * 1000) / (now_ms - last.at);
    const smooth = (before, now) => (before === null ? now : before * 0.6 + now * 0.4);
    paces.set(row.id, {
      at: now_ms, bytes: row.sent_bytes, keys: row.copied_keys,
      bytes_per_s: smooth(last.bytes_per_s, per_s(last.bytes, row.sent_bytes)),
      keys_per_s: smooth(last.keys_per_s, per_s(last.keys, row.copied_keys)),
    });
  }
  return paces.get(row.id);
}

function progress(row) {
  if (!row.gives || !row.total_keys || IS_OVER.includes(row.state)) return "–";
  const { bytes_per_s, keys_per_s } = row.pace;
  const left = row.total_keys - row.copied_keys;
  const rate = bytes_per_s === null ? "" : `, ${bytes(bytes_per_s)}/s`;
  const time = keys_per_s && left > 0 ? `, ${span(left / keys_per_s)} left` : "";
  return `${exact(row.copied_keys)} of ${plural(row.total_keys, "key", "keys")}${rate}${time}`;
}

const MOVES = new Table($("move-table"), {
  caption: "Slots that move as a whole", key: (row) => row.id, sort: null, filter: false,
  empty: "None from or to this server's group. CLUSTER MIGRATESLOTS begins one.",
  columns: [
    { title: "Slots", of: (row) => size(row.slots), text: (row) => `${exact(size(row.slots))}: ${ranges(row.slots.slice(0, 4))}${row.slots.length > 4 ? " …" : ""}` },
    { title: "From", of: (row) => row.source, class: "mono" },
    { title: "To", of: (row) => row.target, class: "mono" },
    { title: "State", of: (row) => row.state, text: (row) => STATES[row.state] || row.state },
    { title: "Retries", of: (row) => row.retries, text: (row) => exact(row.retries), class: "n" },
    { label: "Progress", wide: true, paint: (cell, row) => {
      cell.replaceChildren(el("span", {}, row.why && row.state !== "success" && !row.copied_keys ? row.why : progress(row)));
      if (row.total_keys && !IS_OVER.includes(row.state)) cell.append(fillMeter(row.copied_keys / row.total_keys));
    } },
  ],
});

// One dot for each slot, in the colour of its owner; of a slot that moves in those of both, in turn.
function paint(c) {
  const canvas = $("slot-map");
  const [height, draw] = [SLOTS / WIDTH, canvas.getContext("2d")];
  if (canvas.width !== WIDTH) Object.assign(canvas, { width: WIDTH, height });
  draw.clearRect(0, 0, WIDTH, height);
  const dots = (slots, at, wants) => {
    draw.fillStyle = colour(at);
    for (const [start, end] of slots) {
      for (let slot = start; slot <= end; slot++) {
        const [x, y] = [slot % WIDTH, Math.floor(slot / WIDTH)];
        if (wants(x, y)) draw.fillRect(x, y, 1, 1);
      }
    }
  };
  c.groups.forEach((group, at) => dots(group.slots, at, () => true));
  for (const move of c.migrations.filter((one) => !IS_OVER.includes(one.state))) {
    const at = c.groups.findIndex((group) => group.id === move.to);
    if (at >= 0) dots(move.slots, at, (x, y) => (x + y) % 2 === 0);
  }
  const shares = c.groups.map((group) => `${group.master}: ${plural(size(group.slots), "slot", "slots")}`);
  canvas.setAttribute("aria-label", `Owners of the slots. ${shares.join("; ")}`);
}

export function draw(now) {
  const c = now.cluster;
  $("cluster-link").hidden = !c;
  if (!c || $("cluster").hidden) return;
  const bound = c.groups.reduce((sum, group) => sum + size(group.slots), 0);
  const own = c.groups.find((group) => group.is_own);
  facts("cluster-facts", [
    ["This server", own ? (c.leads ? "master" : "replica") : "in no group", own ? "" : "bad"],
    ["Its slots", exact(own ? size(own.slots) : 0)],
    ["Slots with an owner", bound === SLOTS ? "all" : `${exact(bound)} of ${exact(SLOTS)}`, bound === SLOTS ? "good" : "bad"],
    ["Groups", exact(c.groups.length)],
    ["Map", c.store ? "in etcd" : "pushed"],
    c.store ? ["Store", c.store.is_reached ? "answers" : "cannot be reached", c.store.is_reached ? "good" : "bad"] : null,
    ["Slots that move key by key", exact(c.moving)],
    ["Clients sent elsewhere", exact(c.redirects)],
  ]);
  paint(c);
  NODES.set(c.groups.map((group, at) => ({ ...group, at })));
  MOVES.set(c.migrations.map((one) => ({ ...one, pace: pace(one, now.now_ms) })));
  for (const id of paces.keys()) if (!c.migrations.some((one) => one.id === id)) paces.delete(id);
}
