// The overview: tiles, charts, commands, threads, memory and persistence, once a second.
"use strict";

import { $, el, fill, segments } from "./page.js";
import { bytes, count, exact, nanos, percent, plural, span } from "./format.js";
import * as server from "./server.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { Chart, drawAll, view } from "./chart.js";

const LOADS = new Timeline(["mean", "mean", "mean", "mean", "mean"]);
const TIMES = new Timeline(["mean", "max", "max"]);
const rate = (n) => (n === null ? "–" : bytes(n) + "/s");

class Part {
  // Values of a timeline from `from` on, so that several charts share one record.
  constructor(timeline, from, length) { Object.assign(this, { timeline, from, length }); }
  since(end, seconds) {
    const { points, gap } = this.timeline.since(end, seconds);
    return { points: points.map(({ t, values }) => ({ t, values: values.slice(this.from, this.from + this.length) })), gap };
  }
}

new Chart("ops", "Throughput", new Part(LOADS, 0, 1), [{ name: "commands/s", color: "--a", area: true }], { format: count, least: 10 });
new Chart("latency", "Command latency", TIMES, [
  { name: "p50", color: "--a" }, { name: "p99", color: "--b" }, { name: "p99.9", color: "--c" },
], { format: nanos, least: 100, log: true });
new Chart("net", "Network", new Part(LOADS, 1, 2), [
  { name: "received", color: "--d", area: true }, { name: "sent", color: "--a", area: true },
], { format: rate, least: 1024, binary: true });
new Chart("memory", "Memory", new Part(LOADS, 3, 2), [
  { name: "used", color: "--a", area: true }, { name: "resident", color: "--e", dash: [5, 3] },
], { format: bytes, least: 1 << 20, binary: true });

const SPANS = [[60, "1 min"], [180, "3 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];
view.seconds = SPANS.some(([s]) => s === Number(localStorage.getItem("span"))) ? Number(localStorage.getItem("span")) : 180;
segments("spans", SPANS, view.seconds, (seconds) => {
  view.seconds = seconds;
  localStorage.setItem("span", String(seconds));
  drawAll();
});

const meter = (cell, part) => {
  if (!cell.firstChild) cell.append(el("div", { class: "meter" }, el("i")));
  cell.firstChild.firstChild.style.width = `${part * 100}%`;
};
let mostCalls = 1;
const micros = (row) => (row.calls ? row.us / row.calls : 0);
const COMMANDS = new Table($("commands"), {
  caption: "Commands by calls", key: (row) => row.name, sort: [2, "down"], empty: "No command has been called yet.",
  columns: [
    { title: "Command", of: (row) => row.name, text: (row) => row.name.toUpperCase().replace("|", " "), class: "mono" },
    { title: "Per second", of: (row) => row.rate, text: (row) => (row.rate ? count(row.rate) : "–"), class: "n" },
    { title: "Calls", of: (row) => row.calls, text: (row) => exact(row.calls), class: "n" },
    { label: "Share of calls", paint: (cell, row) => meter(cell, row.calls / mostCalls), class: "bars" },
    { title: "µs each", of: micros, text: (row) => (row.calls ? micros(row).toFixed(micros(row) < 10 ? 2 : 1) : "–"), class: "n" },
    { title: "Failed", of: (row) => row.failed, text: (row) => count(row.failed), class: "n" },
  ],
});
const KEYSPACE = new Table($("keyspace"), {
  caption: "Databases", key: (row) => row.db, sort: [0, "up"], empty: "No keys yet.", filter: false,
  columns: [
    { title: "Database", of: (row) => row.db },
    { title: "Keys", of: (row) => row.keys, text: (row) => exact(row.keys), class: "n" },
    { title: "With TTL", of: (row) => row.expiring, text: (row) => exact(row.expiring), class: "n" },
  ],
});

/* ---- one look at the server ---- */

// The last looks, at most six: the page shows differences.
let looks = [];
export const known = { databases: 16, keyspace: [] };

// Counts of latency ranges between two looks. A restart or CONFIG RESETSTAT begins again.
function between(now, before) {
  const old = new Map(before);
  return now.map(([end, n]) => [end, n - (old.get(end) || 0)]).filter(([, n]) => n > 0);
}

function quantile(ranges, part) {
  const all = ranges.reduce((sum, [, n]) => sum + n, 0);
  let seen = 0;
  for (const [end, n] of ranges) {
    seen += n;
    if (seen >= all * part) return end;
  }
  return null;
}

export function forget() { looks = []; }

// Asks for what the server has recorded and the page has not seen.
export async function catchUp() {
  try {
    const { tiers } = await server.history();
    for (const { seconds, points } of tiers) {
      LOADS.merge(seconds, points.map(([t, ops, input, output, used]) => ({ t, values: [ops, input, output, used, null] })));
    }
  } catch { /* The charts begin now. */ }
}

export function draw(now) {
  const before = looks[looks.length - 1] || null;
  known.databases = now.databases;
  known.keyspace = now.keyspace;
  looks.push(now);
  if (looks.length > 6) looks.shift();
  const seconds = before ? (now.now_ms - before.now_ms) / 1000 : 0;
  const perSecond = (pick) => (seconds > 0 ? Math.max(0, pick(now) - pick(before)) / seconds : null);
  const ops = perSecond((s) => s.totals.commands);
  const recent = between(now.latency, looks[0] === now ? [] : looks[0].latency);
  const [p50, p99, p999] = [0.5, 0.99, 0.999].map((part) => quantile(recent, part));
  if (before) {
    const [input, output] = [perSecond((s) => s.totals.input_bytes), perSecond((s) => s.totals.output_bytes)];
    LOADS.add(now.now_ms, [ops, input, output, now.memory.used, now.memory.rss]);
    TIMES.add(now.now_ms, [p50, p99, p999]);
  }
  move(now.now_ms);
  tiles(now, ops, p50, p99, p999);
  memory(now);
  KEYSPACE.set(now.keyspace);
  threads(now, before, seconds);
  commands(now, before, seconds);
  facts(now);
}

// Moves the right edge of the charts.
export function move(ms) {
  view.end = ms;
  drawAll();
}

function tiles(now, ops, p50, p99, p999) {
  const { totals, memory: m } = now;
  $("ops").textContent = count(ops);
  $("ops-note").textContent = `${count(totals.commands)} since the start · ${count(totals.errors)} error${totals.errors === 1 ? "" : "s"}`;
  $("p99").textContent = nanos(p99);
  $("p99-note").textContent = p99 === null ? "no commands right now" : `p50 ${nanos(p50)} · p99.9 ${nanos(p999)}`;
  $("used").textContent = bytes(m.used);
  $("used-of").textContent = m.max ? `of ${bytes(m.max)}` : "used";
  $("used-note").textContent = `peak ${bytes(m.peak)} · RSS ${bytes(m.rss)}`;
  const first = looks[0];
  const [hits, misses] = ["hits", "misses"].map((name) => totals[name] - (looks.length > 1 ? first.totals[name] : 0));
  const all = totals.hits + totals.misses;
  const part = hits + misses > 0 ? hits / (hits + misses) : all > 0 ? totals.hits / all : null;
  $("hits").textContent = percent(part);
  $("hits-note").textContent = all > 0 ? `in all ${count(totals.hits)} hits, ${count(totals.misses)} misses` : "no reads yet";
  const keys = now.keyspace.reduce((sum, db) => sum + db.keys, 0);
  const expiring = now.keyspace.reduce((sum, db) => sum + db.expiring, 0);
  $("keys-all").textContent = count(keys);
  $("keys-expiring").textContent = keys ? `${percent(expiring / keys)} with TTL` : "";
  $("keys-note").textContent = `${count(totals.expired)} expired · ${count(totals.evicted)} evicted`;
  document.title = `${count(ops)}/s · Darter`;
}

function memory(now) {
  const { classes } = now.memory;
  const all = classes.reduce((sum, [, n]) => sum + n, 0) || 1;
  fill("classes-bar", ...classes.map(([, n], at) => {
    const part = el("i", { class: "c" + at });
    part.style.width = `${(n / all) * 100}%`;
    return part;
  }));
  fill("classes", el("caption", { class: "unseen" }, "Memory by use"), el("tbody", {}, ...classes.map(([name, n], at) => el("tr", {},
    el("th", { scope: "row", class: "text" }, el("span", { class: "swatch c" + at }), name),
    el("td", { class: "n" }, bytes(n)),
    el("td", { class: "n soft" }, percent(n / all))))));
}

function threads(now, before, seconds) {
  fill("threads", ...now.threads.map((thread, at) => {
    const old = before && before.threads[at];
    const load = old && seconds ? Math.min(1, Math.max(0, (thread.busy_us - old.busy_us) / 1e6 / seconds)) : 0;
    const ops = old && seconds ? Math.max(0, thread.commands - old.commands) / seconds : 0;
    const bar = el("i", { class: load > 0.85 ? "hot" : "" });
    bar.style.width = `${load * 100}%`;
    return el("div", { class: "thread" },
      el("span", {}, String(at)), el("div", { class: "meter" }, bar), el("b", {}, percent(load)),
      el("small", {}, `${count(ops)} commands/s, ${plural(thread.connections, "connection", "connections")}`));
  }));
}

function commands(now, before, seconds) {
  const old = new Map(((before && before.commands) || []).map((row) => [row.name, row]));
  mostCalls = Math.max(1, ...now.commands.map((row) => row.calls));
  COMMANDS.set(now.commands.map((row) => {
    const past = old.get(row.name);
    return { ...row, rate: seconds && past ? Math.max(0, row.calls - past.calls) / seconds : 0 };
  }));
}

function list(id, rows) {
  fill(id, ...rows.filter(Boolean).flatMap(([name, value, style]) => [
    el("dt", {}, name), el("dd", { class: style || "" }, value),
  ]));
}

function facts(now) {
  const c = now.clients;
  list("client-facts", [
    ["Connected", `${exact(c.connected)} of ${exact(c.max)}`],
    ["Blocked", exact(c.blocked)],
    ["Subscribed", exact(c.subscribed)],
    ["With client-side caching", exact(c.tracking)],
    ["Connections since the start", exact(now.totals.connections)],
    ["Rejected connections", exact(now.totals.rejected_connections), now.totals.rejected_connections ? "bad" : ""],
    ["Pipelined commands", percent(now.totals.commands ? now.totals.pipelined / now.totals.commands : 0)],
  ]);
  const p = now.persistence;
  const ago = (name) => (Number(p[name]) > 0 ? span(now.now_ms / 1000 - Number(p[name])) + " ago" : "never");
  const on = (name) => p[name] === "1";
  const state = on("loading") ? [`loading, ${p.loading_loaded_perc || "0"} %`, "bad"]
    : on("saving") || on("rdb_bgsave_in_progress") ? [`saving, ${Math.round(Number(p.current_fork_perc || 0))} %`, "good"]
    : on("aof_rewrite_in_progress") ? ["rewriting the journal", "good"] : ["idle", ""];
  const outcome = (name) => [p[name] || "–", p[name] === "ok" ? "good" : "bad"];
  const size = Number(p.aof_current_size || 0);
  list("persistence", [
    ["State", ...state],
    ["Changes since the last snapshot", exact(p.rdb_changes_since_last_save || 0)],
    ["Snapshots since the start", exact(p.rdb_saves || 0)],
    Number(p.rdb_saves) > 0 ? ["Last snapshot", ago("rdb_last_save_time")] : null,
    p.last_saved_file ? ["File", p.last_saved_file] : null,
    ["Status of the last snapshot", ...outcome("rdb_last_bgsave_status")],
    ["Journal", on("aof_enabled") ? "on" : "off"],
    on("aof_enabled") ? ["Last write of the journal", ...outcome("aof_last_write_status")] : null,
    size ? ["Size of the journal", bytes(size)] : null,
    ["Role", now.replication.role || "master"],
    Number(now.replication.connected_slaves) > 0 ? ["Replicas", now.replication.connected_slaves] : null,
  ]);
}
