// The console's page: asks /api/stats each second and draws it; runs commands through /api/command.
// No library, no build step. All text from the server goes into the page as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const HEADERS = { "X-Darter-Console": "1" };
const HISTORY = 180;

/* ---- words for numbers ---- */

function count(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (n < 1000) return n < 10 && n % 1 ? n.toFixed(1) : String(Math.round(n));
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size * 0.9995) return (n / size).toFixed(n / size < 99.95 ? 1 : 0) + unit;
  }
  return String(Math.round(n));
}

function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1023.5 && at < units.length - 1) { n /= 1024; at++; }
  return (at === 0 || n >= 99.95 ? Math.round(n) : n.toFixed(1)) + " " + units[at];
}

function nanos(n) {
  if (n === null || n === undefined) return "–";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (n >= size) return (n / size).toFixed(n / size < 9.95 ? 2 : n / size < 99.5 ? 1 : 0) + " " + unit;
  }
  return Math.round(n) + " ns";
}

function span(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min ${s} s`;
  return `${s} s`;
}

const percent = (part) => (part === null ? "–" : (part * 100).toFixed(part > 0.9995 || part < 0.0005 ? 0 : 1) + "%");
const exact = (n) => Number(n).toLocaleString("en-US").replaceAll(",", "\u202f");

/* ---- small tools for the page ---- */

function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function fill(id, ...children) { $(id).replaceChildren(...children); }

function cells(tag, list) {
  return el("tr", {}, ...list.map((cell) => {
    const [text, style] = Array.isArray(cell) ? cell : [cell, ""];
    return el(tag, { class: style }, text);
  }));
}

function table(id, head, rows) {
  const parts = rows.length && head ? [el("thead", {}, cells("th", head))] : [];
  fill(id, ...parts, el("tbody", {}, ...rows));
}

let toastTimer = 0;
function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $("toast").hidden = true; }, 4000);
}

/* ---- the server ---- */

async function run(commands, db = 0) {
  const answer = await fetch(location.origin + "/api/command", {
    method: "POST",
    headers: { ...HEADERS, "Content-Type": "application/json" },
    body: JSON.stringify({ db, commands }),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

const isError = (reply) => reply !== null && typeof reply === "object" && "error" in reply;
const itemsOf = (reply) => (Array.isArray(reply) ? reply : (reply && reply.set) || []);

// Bytes of a reply as something to read: what is no text is shown in escapes.
function show(value) {
  if (value === null) return "(nil)";
  if (typeof value !== "object") return String(value);
  if ("base64" in value) {
    let text = "";
    for (const c of atob(value.base64)) {
      const code = c.charCodeAt(0);
      text += code >= 32 && code < 127 && c !== "\\" ? c : "\\x" + code.toString(16).padStart(2, "0");
    }
    return text;
  }
  for (const kind of ["status", "error", "int", "double"]) if (kind in value) return value[kind];
  return JSON.stringify(value);
}

/* ---- charts ---- */

class Chart {
  constructor(name, series, options) {
    this.canvas = $("chart-" + name);
    this.legend = $("legend-" + name);
    this.series = series;
    this.options = options;
    this.points = [];
    this.hover = null;
    const move = (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.hover = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      this.draw();
    };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerdown", move);
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
  }

  add(point) {
    this.points.push(point);
    if (this.points.length > HISTORY) this.points.shift();
    this.draw();
  }

  // A round number at or above `top`, in steps that read well.
  ceiling(top) {
    if (this.options.log) return 10 ** Math.ceil(Math.log10(Math.max(top, this.options.least) * 1.05));
    const least = this.options.least || 1;
    const base = this.options.binary ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(top, 1)) / Math.log(1024))) : 1;
    const scaled = Math.max(top, least) * 1.08 / base;
    const size = 10 ** Math.floor(Math.log10(scaled));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * size >= scaled) * size * base;
  }

  draw() {
    const { canvas, points, series, options } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const values = points.flatMap((point) => series.map((_, i) => point[i]).filter((v) => v !== null));
    const top = this.ceiling(values.length ? Math.max(...values) : 0);
    const low = options.log ? options.least : 0;
    const base = height - 4;
    const room = base - 14;
    const place = (v) => {
      const part = options.log
        ? Math.log(Math.max(v, low) / low) / Math.log(top / low)
        : v / top;
      return base - Math.min(1, Math.max(0, part)) * room;
    };
    // A page that has just been opened shows its first seconds large.
    const steps = Math.max(29, points.length - 1);
    const x = (i) => width - (points.length - 1 - i) * (width / steps);
    this.grid(pen, width, place, low, top, color);
    series.forEach((one, at) => this.line(pen, one, at, x, place, base, color));
    const i = this.hover === null ? points.length - 1 : Math.round(points.length - 1 - (1 - this.hover) * steps);
    const point = points[i] || null;
    if (this.hover !== null && point) {
      pen.strokeStyle = color("--faint");
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(x(i), 8);
      pen.lineTo(x(i), base);
      pen.stroke();
      pen.setLineDash([]);
    }
    const ago = this.hover !== null && point ? el("span", {}, `${points.length - 1 - i} s ago`) : null;
    this.legend.replaceChildren(...[ago, ...series.map((one, at) => {
      const mark = el("i");
      mark.style.background = `var(${one.color})`;
      return el("span", {}, mark, one.name + " ", el("b", {}, options.format(point ? point[at] : null)));
    })].filter(Boolean));
  }

  grid(pen, width, place, low, top, color) {
    const { options } = this;
    const marks = [];
    if (options.log) for (let v = low * 10; v <= top; v *= 10) marks.push(v);
    else marks.push(top / 2, top);
    const every = Math.ceil(marks.length / 4);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.lineWidth = 1;
    marks.forEach((v, at) => {
      if ((marks.length - 1 - at) % every) return;
      const y = Math.round(place(v)) + 0.5;
      pen.strokeStyle = color("--line");
      pen.beginPath();
      pen.moveTo(0, y);
      pen.lineTo(width, y);
      pen.stroke();
      pen.fillStyle = color("--faint");
      pen.fillText(options.format(v).replace(/\.0+(?= )/, ""), 0, y - 4);
    });
    pen.strokeStyle = color("--line");
    pen.beginPath();
    pen.moveTo(0, place(low) + 0.5);
    pen.lineTo(width, place(low) + 0.5);
    pen.stroke();
  }

  line(pen, one, at, x, place, base, color) {
    pen.strokeStyle = color(one.color);
    pen.lineWidth = 1.75;
    pen.lineJoin = "round";
    let first = null;
    let last = null;
    pen.beginPath();
    this.points.forEach((point, i) => {
      const v = point[at];
      if (v === null) { last = null; return; }
      if (last === null) { pen.moveTo(x(i), place(v)); first ??= i; } else pen.lineTo(x(i), place(v));
      last = i;
    });
    pen.stroke();
    if (one.area && first !== null && last !== null) {
      pen.lineTo(x(last), base);
      pen.lineTo(x(first), base);
      pen.closePath();
      const wash = pen.createLinearGradient(0, 0, 0, base);
      wash.addColorStop(0, color(one.color) + "38");
      wash.addColorStop(1, color(one.color) + "05");
      pen.fillStyle = wash;
      pen.fill();
    }
  }
}

const charts = {
  ops: new Chart("ops", [{ name: "commands/s", color: "--a", area: true }], { format: count, least: 10 }),
  latency: new Chart("latency", [
    { name: "p50", color: "--a" }, { name: "p99", color: "--b" }, { name: "p99.9", color: "--c" },
  ], { format: nanos, least: 100, log: true }),
  net: new Chart("net", [
    { name: "in", color: "--d", area: true }, { name: "out", color: "--a", area: true },
  ], { format: (n) => (n === null ? "–" : bytes(n) + "/s"), least: 1024, binary: true }),
  memory: new Chart("memory", [
    { name: "used", color: "--a", area: true }, { name: "resident", color: "--e" },
  ], { format: bytes, least: 1 << 20, binary: true }),
};

/* ---- the overview ---- */

let looks = [];

// The counts of ranges between two looks; a restart or RESETSTAT begins anew.
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

function draw(now) {
  const before = looks[looks.length - 1] || null;
  setDatabases(now.databases);
  looks.push(now);
  if (looks.length > 6) looks.shift();
  const seconds = before ? (now.now_ms - before.now_ms) / 1000 : 0;
  const rate = (pick) => (seconds > 0 ? Math.max(0, pick(now) - pick(before)) / seconds : null);
  const ops = rate((s) => s.totals.commands);
  const input = rate((s) => s.totals.input_bytes);
  const output = rate((s) => s.totals.output_bytes);
  const recent = between(now.latency, looks[0] === now ? [] : looks[0].latency);
  const [p50, p99, p999] = [0.5, 0.99, 0.999].map((part) => quantile(recent, part));
  if (before) {
    charts.ops.add([ops]);
    charts.latency.add([p50, p99, p999]);
    charts.net.add([input, output]);
  }
  charts.memory.add([now.memory.used, now.memory.rss]);
  tiles(now, ops, p50, p99, p999);
  memory(now);
  keyspace(now);
  threads(now, before, seconds);
  commands(now, before, seconds);
  facts(now);
  $("dot").className = "on";
  $("pulse").textContent = `${now.version} · up ${span(now.uptime_s)}`;
  $("pulse").title = `${now.threads.length} threads, ${now.shards} shards, ${now.driver}, port ${now.port}`;
}

function tiles(now, ops, p50, p99, p999) {
  const { totals, memory: m } = now;
  $("ops").textContent = count(ops);
  $("ops-note").textContent = `${exact(totals.commands)} so far · ${count(totals.errors)} error${totals.errors === 1 ? "" : "s"}`;
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
  $("hits-note").textContent = all > 0 ? `${count(totals.hits)} hits · ${count(totals.misses)} misses` : "nothing read yet";
  const keys = now.keyspace.reduce((sum, db) => sum + db.keys, 0);
  const expiring = now.keyspace.reduce((sum, db) => sum + db.expiring, 0);
  $("keys-all").textContent = count(keys);
  $("keys-expiring").textContent = keys ? `${percent(expiring / keys)} expire` : "";
  $("keys-note").textContent = `${count(totals.expired)} expired · ${count(totals.evicted)} evicted`;
  document.title = `${count(ops)}/s · Darter`;
}

function memory(now) {
  const classes = now.memory.classes;
  const all = classes.reduce((sum, [, n]) => sum + n, 0) || 1;
  fill("classes-bar", ...classes.map(([, n], at) => {
    const part = el("i", { class: "c" + at });
    part.style.width = `${(n / all) * 100}%`;
    return part;
  }));
  table("classes", null, classes.map(([name, n], at) => el("tr", {},
    el("td", {}, el("span", { class: "swatch c" + at }), name),
    el("td", { class: "n" }, bytes(n)),
    el("td", { class: "n soft" }, percent(n / all)))));
}

function keyspace(now) {
  $("keyspace-empty").hidden = now.keyspace.length > 0;
  table("keyspace", ["Database", ["Keys", "n"], ["Expiring", "n"]], now.keyspace.map((db) => cells("td", [
    String(db.db), [exact(db.keys), "n"], [exact(db.expiring), "n soft"],
  ])));
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
      el("small", {}, `${count(ops)} commands/s, ${thread.connections} connection${thread.connections === 1 ? "" : "s"}`));
  }));
}

function commands(now, before, seconds) {
  $("commands-empty").hidden = now.commands.length > 0;
  const old = new Map(((before && before.commands) || []).map((row) => [row.name, row]));
  const rows = now.commands.map((row) => {
    const past = old.get(row.name) || row;
    return { ...row, rate: seconds ? Math.max(0, row.calls - past.calls) / seconds : 0 };
  });
  const most = Math.max(1, ...rows.map((row) => row.calls));
  table("commands", ["Command", ["Per second", "n"], ["Calls", "n"], "", ["µs each", "n"], ["Failed", "n"]],
    rows.slice(0, 12).map((row) => {
      const bar = el("i");
      bar.style.width = `${(row.calls / most) * 100}%`;
      return el("tr", {},
        el("td", { class: "mono" }, row.name.toUpperCase().replace("|", " ")),
        el("td", { class: "n" }, row.rate ? count(row.rate) : "–"),
        el("td", { class: "n" }, exact(row.calls)),
        el("td", {}, el("div", { class: "meter" }, bar)),
        el("td", { class: "n" }, row.calls ? (row.us / row.calls).toFixed(row.us / row.calls < 10 ? 2 : 1) : "–"),
        el("td", { class: row.failed ? "n" : "n soft" }, count(row.failed)));
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
    ["Waiting for a key", exact(c.blocked)],
    ["Subscribed", exact(c.subscribed)],
    ["Caching keys", exact(c.tracking)],
    ["Connections so far", exact(now.totals.connections)],
    ["Refused", exact(now.totals.rejected_connections), now.totals.rejected_connections ? "bad" : ""],
    ["Commands that came together", percent(now.totals.commands ? now.totals.pipelined / now.totals.commands : 0)],
  ]);
  const p = now.persistence;
  const ago = (name) => (Number(p[name]) > 0 ? span(now.now_ms / 1000 - Number(p[name])) + " ago" : "never");
  const on = (name) => p[name] === "1";
  const state = on("loading") ? [`loading, ${p.loading_loaded_perc || "0"} %`, "bad"]
    : on("saving") || on("rdb_bgsave_in_progress") ? [`saving, ${Math.round(Number(p.current_fork_perc || 0))} %`, "good"]
    : on("aof_rewrite_in_progress") ? ["rewriting the journal", "good"] : ["idle", ""];
  const status = (name) => [p[name] || "–", p[name] === "ok" ? "good" : "bad"];
  const size = Number(p.aof_current_size || 0);
  list("persistence", [
    ["State", ...state],
    ["Changes since the last snapshot", exact(p.rdb_changes_since_last_save || 0)],
    ["Snapshots written", exact(p.rdb_saves || 0)],
    Number(p.rdb_saves) > 0 ? ["Last snapshot", ago("rdb_last_save_time")] : null,
    p.last_saved_file ? ["Its name", p.last_saved_file] : null,
    ["Last snapshot's outcome", ...status("rdb_last_bgsave_status")],
    ["Journal", on("aof_enabled") ? "on" : "off"],
    on("aof_enabled") ? ["Journal's last write", ...status("aof_last_write_status")] : null,
    size ? ["Journal's size", bytes(size)] : null,
    ["Role", now.replication.role || "master"],
    Number(now.replication.connected_slaves) > 0 ? ["Replicas", now.replication.connected_slaves] : null,
  ]);
}

let failures = 0;
async function look() {
  try {
    const answer = await fetch(location.origin + "/api/stats", { headers: HEADERS });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(await answer.text());
    draw(await answer.json());
    failures = 0;
  } catch {
    failures++;
    $("dot").className = "off";
    $("pulse").textContent = failures > 1 ? "no connection, trying again" : "no answer";
    looks = [];
  }
}

// What the server remembers of the minutes before this page was opened.
async function past() {
  try {
    const answer = await fetch(location.origin + "/api/history", { headers: HEADERS });
    const { seconds } = await answer.json();
    for (const [ops, input, output, used] of seconds) {
      charts.ops.points.push([ops]);
      charts.latency.points.push([null, null, null]);
      charts.net.points.push([input, output]);
      charts.memory.points.push([used, null]);
    }
  } catch { /* the charts begin empty then */ }
}

async function clock() {
  await past();
  for (;;) {
    const began = performance.now();
    if (!document.hidden) await look();
    const wait = Math.max(200, 1000 - (performance.now() - began));
    await new Promise((done) => setTimeout(done, wait));
  }
}

/* ---- the key browser ---- */

const keys = { cursor: null, found: [], chosen: null, search: 0 };
const chosenDb = () => Number($("scan-db").value || 0);

function setDatabases(n) {
  if ($("scan-db").options.length) return;
  fill("scan-db", ...Array.from({ length: n }, (_, at) => el("option", { value: String(at) }, String(at))));
}

async function scan(again) {
  const search = again ? ++keys.search : keys.search;
  if (again) {
    Object.assign(keys, { cursor: "0", found: [], seen: new Set() });
    fill("key-list");
  }
  const words = [];
  if ($("scan-match").value) words.push("MATCH", $("scan-match").value);
  if ($("scan-type").value) words.push("TYPE", $("scan-type").value);
  let added = [];
  try {
    for (let step = 0; step < 40 && added.length < 100 && keys.cursor !== null; step++) {
      const { replies: [reply] } = await run([["SCAN", keys.cursor, ...words, "COUNT", "500"]], chosenDb());
      if (search !== keys.search) return;
      if (isError(reply)) throw new Error(reply.error);
      keys.cursor = reply[0] === "0" ? null : reply[0];
      for (const key of reply[1]) {
        const id = JSON.stringify(key);
        if (!keys.seen.has(id)) { keys.seen.add(id); added.push({ key, id }); }
      }
    }
    for (let at = 0; at < added.length; at += 200) await describe(added.slice(at, at + 200));
  } catch (error) { return toast(error.message); }
  if (search !== keys.search) return;
  keys.found.push(...added);
  $("key-list").append(...added.filter((one) => one.type !== "none").map(keyRow));
  $("key-more").hidden = keys.cursor === null;
  $("key-empty").hidden = keys.found.length > 0;
  $("key-empty").textContent = keys.cursor === null ? "No key matches." : "Nothing so far; there is more to search.";
}

async function describe(list) {
  const { replies } = await run(list.flatMap(({ key }) => [["TYPE", key], ["PTTL", key]]), chosenDb());
  list.forEach((one, at) => {
    one.type = show(replies[at * 2]);
    one.ttl = replies[at * 2 + 1];
  });
}

function keyRow(one) {
  const ttl = one.ttl >= 0 ? el("span", { class: "ttl" }, span(one.ttl / 1000)) : null;
  const button = el("button", { type: "button", title: show(one.key), on: { click: () => choose(one, button) } },
    el("span", { class: `chip ${one.type}` }, one.type), el("span", { class: "name" }, show(one.key)), ttl);
  return el("li", {}, button);
}

function choose(one, button) {
  document.querySelectorAll("#key-list [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
  button.setAttribute("aria-current", "true");
  keys.chosen = { ...one, db: chosenDb(), row: button.parentElement };
  detail();
  if (innerWidth <= 720) $("detail").scrollIntoView({ behavior: "smooth", block: "start" });
}

// How each type is read in pieces: the command for a piece, and rows of what it answers.
const LENGTHS = { string: "STRLEN", hash: "HLEN", list: "LLEN", set: "SCARD", zset: "ZCARD", stream: "XLEN" };
const UNITS = { string: "bytes", hash: "fields", list: "elements", set: "members", zset: "members", stream: "entries" };
const two = (flat) => flat.reduce((rows, item, at) => (at % 2 ? (rows[rows.length - 1].push(item), rows) : [...rows, [item]]), []);
const PIECES = {
  hash: {
    head: ["Field", "Value"],
    command: (key, at) => ["HSCAN", key, at || "0", "COUNT", "100"],
    read: (reply) => ({ rows: two(itemsOf(reply[1])), next: reply[0] === "0" ? null : reply[0] }),
  },
  set: {
    head: ["Member"],
    command: (key, at) => ["SSCAN", key, at || "0", "COUNT", "200"],
    read: (reply) => ({ rows: itemsOf(reply[1]).map((item) => [item]), next: reply[0] === "0" ? null : reply[0] }),
  },
  list: {
    head: ["#", "Element"],
    command: (key, at) => ["LRANGE", key, at || 0, (at || 0) + 99],
    read: (reply, at) => ({
      rows: reply.map((item, i) => [String((at || 0) + i), item]), next: reply.length === 100 ? (at || 0) + 100 : null,
    }),
  },
  zset: {
    head: ["Score", "Member"],
    command: (key, at) => ["ZRANGE", key, at || 0, (at || 0) + 99, "WITHSCORES"],
    read: (reply, at) => ({
      rows: reply.map(([member, score]) => [show(score), member]), next: reply.length === 100 ? (at || 0) + 100 : null,
    }),
  },
  stream: {
    head: ["Id", "Fields"],
    command: (key, at) => ["XREVRANGE", key, at ? "(" + at : "+", "-", "COUNT", "50"],
    read: (reply) => ({
      rows: reply.map(([id, fields]) => [id, two(fields).map(([f, v]) => `${show(f)}: ${show(v)}`).join("\n")]),
      next: reply.length === 50 ? reply[reply.length - 1][0] : null,
    }),
  },
};
const TEXT_BYTES = 65536;

async function detail() {
  const one = keys.chosen;
  const length = LENGTHS[one.type];
  try {
    const asked = [["TYPE", one.key], ["PTTL", one.key], ["OBJECT", "ENCODING", one.key], ["MEMORY", "USAGE", one.key]];
    if (length) asked.push([length, one.key]);
    const { replies } = await run(asked, one.db);
    if (keys.chosen !== one) return;
    if (show(replies[0]) === "none") {
      one.row.remove();
      return fill("detail", el("p", { class: "empty" }, "This key is gone."));
    }
    one.ttl = replies[1];
    const facts = [
      length ? [`${exact(replies[4])}`, replies[4] === 1 ? UNITS[one.type].replace(/e?s$/, (s) => (s === "es" ? "e" : "")).replace("entrie", "entry") : UNITS[one.type]] : null,
      [one.ttl >= 0 ? span(one.ttl / 1000) : "never", one.ttl >= 0 ? "left to live" : "expires"],
      [isError(replies[3]) || replies[3] === null ? "–" : bytes(replies[3]), "of memory"],
      isError(replies[2]) ? null : [show(replies[2]), "encoding"],
    ].filter(Boolean);
    const body = el("div");
    fill("detail",
      el("header", {}, el("span", { class: `chip ${one.type}` }, one.type), el("span", { class: "title" }, show(one.key))),
      el("p", { class: "meta" }, ...facts.map(([number, unit]) => el("span", {}, el("b", {}, number), " " + unit))),
      tools(one), body);
    await value(one, body, replies[4]);
  } catch (error) { toast(error.message); }
}

function tools(one) {
  const seconds = el("input", { type: "number", min: "1", placeholder: "TTL, seconds", ariaLabel: "seconds to live" });
  const expire = el("form", {
    on: { submit: (event) => { event.preventDefault(); if (seconds.value) change(one, ["EXPIRE", one.key, seconds.value]); } },
  }, seconds, el("button", { class: "small" }, "Set"));
  const remove = el("button", { class: "small danger", type: "button", on: { click: () => {
    if (!remove.classList.contains("sure")) {
      remove.classList.add("sure");
      remove.textContent = "Delete for good?";
      setTimeout(() => { remove.classList.remove("sure"); remove.textContent = "Delete"; }, 3000);
      return;
    }
    change(one, ["UNLINK", one.key]);
  } } }, "Delete");
  return el("div", { class: "tools" },
    el("button", { class: "small", type: "button", on: { click: detail } }, "Refresh"), expire,
    one.ttl >= 0 ? el("button", { class: "small", type: "button", on: { click: () => change(one, ["PERSIST", one.key]) } }, "Keep for ever") : null,
    remove);
}

async function change(one, command) {
  try {
    const { replies: [reply] } = await run([command], one.db);
    if (isError(reply)) return toast(reply.error);
    await detail();
  } catch (error) { toast(error.message); }
}

async function value(one, body, length) {
  if (one.type === "string") {
    const { replies: [reply] } = await run([["GETRANGE", one.key, 0, TEXT_BYTES - 1]], one.db);
    body.append(el("pre", { class: "value" }, pretty(reply)));
    if (length > TEXT_BYTES) body.append(el("p", { class: "note more" }, `The first ${bytes(TEXT_BYTES)} of ${bytes(length)}.`));
    return;
  }
  const way = PIECES[one.type];
  if (!way) return body.append(el("p", { class: "empty" }, "Values of this type are shown by their own commands."));
  const rows = el("tbody");
  const more = el("button", { class: "small more", type: "button", hidden: true }, "Show more");
  body.append(el("div", { class: "scroll" }, el("table", { class: "plain rows" }, el("thead", {}, cells("th", way.head)), rows)), more);
  let at = null;
  const next = async () => {
    const { replies: [reply] } = await run([way.command(one.key, at)], one.db);
    if (isError(reply)) return toast(reply.error);
    const piece = way.read(reply, at);
    rows.append(...piece.rows.map((row) => cells("td", row.map((cell) => [show(cell), "mono"]))));
    at = piece.next;
    more.hidden = at === null;
  };
  more.addEventListener("click", () => next().catch((error) => toast(error.message)));
  await next();
}

// JSON is shown indented; everything else as it is.
function pretty(reply) {
  const text = show(reply);
  if (typeof reply === "string" && /^\s*[[{]/.test(text) && text.length < TEXT_BYTES) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { /* it only looked like it */ }
  }
  return text;
}

/* ---- the command line ---- */

const shell = { db: 0, history: JSON.parse(localStorage.getItem("history") || "[]"), at: null, draft: "", names: [] };

// Words as redis-cli divides them; bytes beyond ASCII that were written as \x.. travel in base64.
function words(line) {
  const out = [];
  let at = 0;
  const escapes = { n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07" };
  while (at < line.length) {
    if (/\s/.test(line[at])) { at++; continue; }
    let [word, raw] = ["", false];
    const quote = line[at] === '"' || line[at] === "'" ? line[at++] : null;
    for (;;) {
      if (at >= line.length) { if (quote) throw new Error("a quote is not closed"); break; }
      const c = line[at];
      if (quote ? c === quote : /\s/.test(c)) { at++; break; }
      const hex = quote === '"' && /^\\x([0-9a-fA-F]{2})/.exec(line.slice(at, at + 4));
      if (hex) { word += String.fromCharCode(parseInt(hex[1], 16)); raw = true; at += 4; continue; }
      if (quote === '"' && c === "\\" && at + 1 < line.length) { word += escapes[line[at + 1]] ?? line[at + 1]; at += 2; continue; }
      if (quote === "'" && c === "\\" && line[at + 1] === "'") { word += "'"; at += 2; continue; }
      word += c;
      at++;
    }
    if (quote && at < line.length && !/\s/.test(line[at])) throw new Error("after a quote a space is wanted");
    out.push(raw ? { base64: btoa(word) } : word);
  }
  return out;
}

// A reply as redis-cli prints it, into `out`.
function print(out, reply, indent) {
  const put = (text, style) => out.append(el("span", { class: style }, text));
  if (reply === null) return put("(nil)\n", "z");
  if (typeof reply === "string") return put(JSON.stringify(reply) + "\n", "s");
  if (typeof reply === "number") return put(`(integer) ${reply}\n`, "i");
  if (typeof reply === "boolean") return put(`(${reply})\n`, "i");
  if (reply.status !== undefined) return put(reply.status + "\n", "");
  if (reply.error !== undefined) return put(`(error) ${reply.error}\n`, "x");
  if (reply.int !== undefined) return put(`(integer) ${reply.int}\n`, "i");
  if (reply.double !== undefined) return put(`(double) ${reply.double}\n`, "i");
  if (reply.base64 !== undefined) return put(`"${show(reply)}"\n`, "s");
  const pairs = Array.isArray(reply) ? null : reply.map;
  const rows = pairs || itemsOf(reply);
  if (!rows.length) return put(pairs ? "(empty map)\n" : "(empty array)\n", "z");
  const width = String(rows.length).length;
  rows.forEach((row, at) => {
    const mark = String(at + 1).padStart(width) + (pairs ? "# " : reply.set ? "~ " : ") ");
    put((at ? indent : "") + mark, "z");
    if (!pairs) return print(out, row, indent + " ".repeat(width + 2));
    put((typeof row[0] === "string" ? JSON.stringify(row[0]) : show(row[0])) + " => ", "k");
    print(out, row[1], indent + " ".repeat(width + 2));
  });
}

// Long texts such as INFO come as lines.
function printReply(out, reply) {
  if (typeof reply === "string" && reply.includes("\n")) return out.append(el("span", { class: "s" }, reply.replaceAll("\r\n", "\n").trimEnd() + "\n"));
  print(out, reply, "");
}

async function enter(line) {
  const log = $("log");
  if (line.trim() === "clear") return fill("log");
  shell.history = [...shell.history.filter((old) => old !== line), line].slice(-200);
  localStorage.setItem("history", JSON.stringify(shell.history));
  const took = el("span", { class: "us" });
  const entry = el("div", {}, el("div", { class: "in" }, el("span", {}, `${shell.db}> `, el("b", {}, line)), took));
  log.append(entry);
  const out = el("div");
  entry.append(out);
  try {
    const command = words(line);
    if (!command.length) return;
    const { replies: [reply], us } = await run([command], shell.db);
    printReply(out, reply);
    took.textContent = us < 1000 ? `${us} µs` : nanos(us * 1000);
    if (String(command[0]).toLowerCase() === "select" && !isError(reply)) {
      shell.db = Number(command[1]);
      $("ps").textContent = shell.db + ">";
    }
  } catch (error) {
    out.append(el("span", { class: "x" }, error.message));
  }
  log.scrollTop = log.scrollHeight;
}

function recall(step) {
  const { history } = shell;
  if (shell.at === null) { shell.draft = $("line").value; shell.at = history.length; }
  shell.at = Math.min(history.length, Math.max(0, shell.at + step));
  $("line").value = shell.at === history.length ? shell.draft : history[shell.at];
}

async function complete() {
  if (!shell.names.length) {
    const { replies: [reply] } = await run([["COMMAND", "LIST"]]);
    shell.names = itemsOf(reply).map(show).filter((name) => !name.includes("|")).sort();
  }
  const typed = $("line").value;
  if (!typed || typed.includes(" ")) return;
  const fits = shell.names.filter((name) => name.startsWith(typed.toLowerCase()));
  if (!fits.length) return;
  let common = fits[0];
  for (const name of fits) while (!name.startsWith(common)) common = common.slice(0, -1);
  const isUpper = typed === typed.toUpperCase();
  $("line").value = (isUpper ? common.toUpperCase() : common) + (fits.length === 1 ? " " : "");
  if (fits.length > 1 && common.length === typed.length) {
    $("log").append(el("div", { class: "us" }, fits.slice(0, 40).join("  ")));
    $("log").scrollTop = $("log").scrollHeight;
  }
}

/* ---- clients and the slow log ---- */

async function clients() {
  const { replies: [text] } = await run([["CLIENT", "LIST"]]);
  if (isError(text)) return toast(text.error);
  const rows = text.trim().split("\n").map((line) => Object.fromEntries(line.split(" ").map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), word.slice(at + 1)];
  })));
  rows.sort((a, b) => Number(a.idle) - Number(b.idle) || Number(a.id) - Number(b.id));
  table("client-table", ["Address", ["Name", "wide-only"], ["User", "wide-only"], ["DB", "n wide-only"], ["Age", "n wide-only"], ["Idle", "n"], "Last command",
    ["Commands", "n wide-only"], ["In", "n wide-only"], ["Out", "n wide-only"], ""],
    rows.slice(0, 200).map((c) => {
      const close = el("button", { class: "small danger", type: "button", on: { click: async () => {
        try { await run([["CLIENT", "KILL", "ID", c.id]]); await clients(); } catch (error) { toast(error.message); }
      } } }, "Close");
      return el("tr", {}, ...[
        [c.addr, "mono"], [c.name || c["lib-name"] || "", "wide-only"], [c.user, "wide-only"], [c.db, "n wide-only"],
        [span(Number(c.age)), "n wide-only"], [span(Number(c.idle)), "n"], [c.cmd === "NULL" ? "" : c.cmd.replace("|", " "), "mono"],
        [exact(c["tot-cmds"] || 0), "n wide-only"], [bytes(Number(c["tot-net-in"] || 0)), "n wide-only"],
        [bytes(Number(c["tot-net-out"] || 0)), "n wide-only"],
      ].map(([cell, style]) => el("td", { class: style }, cell)), el("td", { class: "n" }, close));
    }));
}

async function slow() {
  const { replies: [list] } = await run([["SLOWLOG", "GET", "100"]]);
  if (isError(list)) return toast(list.error);
  $("slow-empty").hidden = list.length > 0;
  table("slow-table", ["When", ["Took", "n"], "Command", ["Client", "wide-only"]], list.map(([, when, us, args, peer, name]) => cells("td", [
    [new Date(when * 1000).toLocaleString(), "soft"], [nanos(us * 1000), "n"], [args.map(show).join(" "), "mono said"],
    [[name, peer].filter(Boolean).map(show).join(" "), "mono soft wide-only"],
  ])));
}

/* ---- views ---- */

const VIEWS = { overview: null, keys: () => { if (keys.cursor === null && !keys.found.length) scan(true); }, shell: () => $("line").focus(), clients, slow };
const REFRESHED = { clients: 2000, slow: 3000 };
let timer = 0;

function view() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "overview";
  for (const other of Object.keys(VIEWS)) $(other).hidden = other !== name;
  document.querySelectorAll("nav a").forEach((link) => {
    if (link.hash !== "#" + name) return link.removeAttribute("aria-current");
    link.setAttribute("aria-current", "page");
    link.parentElement.scrollLeft = link.offsetLeft - 60;
  });
  clearInterval(timer);
  const show = async () => { try { await (VIEWS[name] && VIEWS[name]()); } catch (error) { toast(error.message); } };
  show();
  if (REFRESHED[name]) timer = setInterval(() => { if (!document.hidden) show(); }, REFRESHED[name]);
  if (name === "overview") redraw();
}

function redraw() { Object.values(charts).forEach((chart) => chart.draw()); }

addEventListener("hashchange", view);
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
$("scan").addEventListener("submit", (event) => { event.preventDefault(); scan(true); });
$("scan-db").addEventListener("change", () => scan(true));
$("scan-type").addEventListener("change", () => scan(true));
$("key-more").addEventListener("click", () => scan(false));
$("prompt").addEventListener("submit", (event) => {
  event.preventDefault();
  const line = $("line").value;
  $("line").value = "";
  shell.at = null;
  if (line.trim()) enter(line);
});
$("line").addEventListener("keydown", (event) => {
  if (event.key === "ArrowUp" || event.key === "ArrowDown") { event.preventDefault(); recall(event.key === "ArrowUp" ? -1 : 1); }
  if (event.key === "Tab" && $("line").value) { event.preventDefault(); complete().catch((error) => toast(error.message)); }
});

view();
clock();
