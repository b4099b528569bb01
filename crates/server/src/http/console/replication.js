// Who follows whom: the master of this server, its replicas, how far each is, and syncs that are under way.
"use strict";

import { $, el, fill } from "./page.js";
import { bytes, exact, span } from "./format.js";
import { Table } from "./table.js";

const WORDS = { online: "following", wait_bgsave: "its snapshot is made", send_bulk: "gets its snapshot" };
const AWAY_MS = 5000;
const lag = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : span(ms / 1000));

// How far a transfer is: bytes, rate and the time left.
function progressText(sync) {
  const all = sync.total ? ` of ${bytes(sync.total)}` : "";
  const left = sync.left_s === null || sync.left_s === undefined ? "" : `, ${span(sync.left_s)} left`;
  return `${bytes(sync.done)}${all}, ${bytes(sync.bytes_per_s)}/s${left}`;
}

export function fillMeter(part) {
  const bar = el("i");
  bar.style.width = `${Math.min(100, part * 100).toFixed(1)}%`;
  const place = el("div", { class: "meter" }, bar);
  place.setAttribute("aria-hidden", "true");
  return place;
}

const TABLE = new Table($("replica-table"), {
  caption: "Replicas", key: (row) => `${row.ip}:${row.port}`, sort: [0, "up"], filter: false,
  empty: "Nobody follows this server. REPLICAOF at another server makes it a replica of this one.",
  columns: [
    { title: "Address", of: (row) => `${row.ip}:${row.port}`, class: "mono" },
    { title: "State", of: (row) => row.state, text: (row) => WORDS[row.state] || row.state },
    { title: "Lag", of: (row) => row.lag_ms, text: (row) => (row.state === "online" ? lag(row.lag_ms) : "–"), class: "n" },
    { title: "Lacks", of: (row) => row.behind_bytes, text: (row) => (row.state === "online" ? bytes(row.behind_bytes) : "–"), class: "n" },
    { title: "Heard", of: (row) => row.heard_ms, text: (row) => `${span(row.heard_ms / 1000)} ago`, class: "n" },
    { title: "Offset", of: (row) => row.offset, text: (row) => exact(row.offset), class: "n" },
    { label: "Sync", wide: true, paint: (cell, row) => {
      if (!row.sync) return fill(cell);
      return fill(cell, el("span", {}, progressText(row.sync)), ...(row.sync.total ? [fillMeter(row.sync.done / row.sync.total)] : []));
    } },
  ],
});

export function facts(id, rows) {
  fill(id, ...rows.filter(Boolean).flatMap(([name, value, style]) => [
    el("dt", {}, name), el("dd", { class: style || "" }, value),
  ]));
}

// The way of a change: from the master over this server to its replicas.
function chain(r, port) {
  const node = (text, style) => el("li", { class: style }, text);
  const steps = r.master ? [node(`${r.master.host}:${r.master.port}`, r.master.is_up ? "" : "down")] : [];
  steps.push(node(`this server, port ${port}`, "own"));
  if (r.replicas.length === 1) steps.push(node(`${r.replicas[0].ip}:${r.replicas[0].port}`, ""));
  if (r.replicas.length > 1) steps.push(node(`${r.replicas.length} replicas`, ""));
  fill("replication-chain", ...steps);
}

function master(m) {
  $("replication-master").hidden = !m;
  if (!m) return;
  facts("master-facts", [
    ["Address", `${m.host}:${m.port}`],
    ["State", m.state, m.is_up ? "good" : "bad"],
    ["Heard", `${span(m.heard_ms / 1000)} ago`, m.is_up && m.heard_ms > AWAY_MS * 4 ? "bad" : ""],
    ["Received since the link began", bytes(m.received_bytes)],
    m.sync && !m.loading ? ["Snapshot", progressText(m.sync)] : null,
    m.loading ? ["Loaded", `${m.loading.percent.toFixed(0)} %, ${span(m.loading.left_s)} left`] : null,
  ]);
  const part = m.loading ? m.loading.percent / 100 : m.sync && m.sync.total ? m.sync.done / m.sync.total : null;
  fill("master-meter", ...(part === null ? [] : [fillMeter(part)]));
}

export function draw(now) {
  if ($("replication").hidden || !now.replicas) return;
  const r = now.replicas;
  chain(r, now.port);
  master(r.master);
  const dropped = r.dropped.slow + r.dropped.silent + r.dropped.lost;
  facts("replication-facts", [
    ["Role", r.master ? "replica" : "master"],
    ["Replicas", exact(r.replicas.length)],
    ["Offset", exact(r.offset)],
    ["Backlog", `${bytes(r.backlog.bytes)} of ${bytes(r.backlog.max)}`],
    r.failover === "no-failover" ? null : ["Failover", r.failover, "good"],
    ["Full syncs", exact(r.syncs.full)],
    ["Partial syncs", exact(r.syncs.partial)],
    ["Dropped replicas", exact(dropped), dropped ? "bad" : ""],
    ["History", el("code", { class: "mono" }, `${r.id.slice(0, 12)}…`)],
  ]);
  TABLE.set(r.replicas);
}
