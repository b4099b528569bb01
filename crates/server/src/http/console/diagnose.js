// Diagnostics: slow commands, latency events, big keys and hot keys.
"use strict";

import { $, button, confirm, el, guarded, toast } from "./page.js";
import { bytes, clock, day, exact, nanos, plural, show } from "./format.js";
import { call, isError, pairsOf, run } from "./server.js";
import { Table } from "./table.js";
import { typeName } from "./types.js";
import { open } from "./keys.js";

/* ---- the slow log ---- */

const SLOW = new Table($("slow-table"), {
  caption: "Slow commands", key: (row) => row.id, sort: [0, "down"], empty: "The log is empty: no command took longer than the threshold.",
  columns: [
    { title: "When", of: (row) => row.when * 1000 + row.id / 1e6, text: (row) => day(row.when * 1000) },
    { title: "Took", of: (row) => row.us, text: (row) => nanos(row.us * 1000), class: "n" },
    { title: "Command", of: (row) => row.command, class: "mono said" },
    { title: "Client", of: (row) => row.client, class: "mono" },
  ],
});

// Settings of a form: the number is shown unless somebody is editing it.
async function setting(name, input, scale) {
  const value = Number(pairsOf(await call(["CONFIG", "GET", name]))[0]?.[1]);
  if (document.activeElement !== $(input)) $(input).value = String(value < 0 ? "" : value / scale);
  return value;
}

async function slow() {
  const threshold = await setting("slowlog-log-slower-than", "slow-threshold", 1000);
  const most = Number(pairsOf(await call(["CONFIG", "GET", "slowlog-max-len"]))[0]?.[1]);
  const list = await call(["SLOWLOG", "GET", "-1"]);
  $("slow-note").textContent = threshold < 0 ? "The slow log is off."
    : `Commands that took longer than ${nanos(threshold * 1000)} of the server's time are logged; the newest ${exact(most)} are kept.`;
  SLOW.set(list.map(([id, when, us, args, peer, name]) => ({
    id, when, us, command: args.map(show).join(" "), client: [name, peer].map(show).filter((text) => text && text !== "(nil)").join(" "),
  })));
}

/* ---- latency events ---- */

const LATENCY = new Table($("latency-table"), {
  caption: "Latency events", key: (row) => row.event, sort: [3, "down"], filter: false, empty: "No events.",
  columns: [
    { title: "Event", of: (row) => row.event, class: "mono" },
    { title: "Last", of: (row) => row.when, text: (row) => day(row.when * 1000) },
    { title: "Last duration", of: (row) => row.ms, text: (row) => nanos(row.ms * 1e6), class: "n" },
    { title: "Longest", of: (row) => row.most, text: (row) => nanos(row.most * 1e6), class: "n" },
    { title: "Recorded", of: (row) => row.times.length, text: (row) => exact(row.times.length), class: "n" },
    { label: "Course", class: "bars", paint: (cell, row) => sparks(cell, row) },
  ],
});

function sparks(cell, row) {
  const top = Math.max(1, ...row.times.map(([, ms]) => ms));
  const part = row.times.slice(-40);
  const text = part.length ? `${part.length} events from ${clock(part[0][0] * 1000)} to ${clock(part[part.length - 1][0] * 1000)}` : "";
  const bars = part.map(([, ms]) => {
    const bar = el("i");
    bar.style.height = `${Math.max(8, (ms / top) * 100)}%`;
    return bar;
  });
  cell.replaceChildren(el("div", { class: "sparks", role: "img", ariaLabel: text, title: text }, ...bars));
}

async function latency() {
  const threshold = await setting("latency-monitor-threshold", "latency-threshold", 1);
  $("latency-note").textContent = threshold > 0 ? `Events of ${nanos(threshold * 1e6)} and more are recorded.`
    : "Nothing is recorded: the threshold is 0. Set one, for example 10 ms.";
  const list = await call(["LATENCY", "LATEST"]);
  const { replies } = list.length ? await run(list.map(([event]) => ["LATENCY", "HISTORY", event])) : { replies: [] };
  LATENCY.set(list.map(([event, when, ms, most], at) => ({ event: show(event), when, ms, most, times: isError(replies[at]) ? [] : replies[at] })));
}

/* ---- big keys and hot keys ---- */

const KEPT = 100;
const EACH = 150;
const survey = { isOn: false, number: 0 };
const keyCell = { title: "Key", of: (row) => row.name, class: "mono said", paint: (cell, row) => {
  if (cell.firstChild?.textContent === row.name) return;
  cell.replaceChildren(button(row.name, "link", () => open(row.key, row.db)));
} };
const BIG = new Table($("big-table"), {
  caption: "Big keys", step: 12, key: (row) => row.name, sort: [2, "down"], empty: "Not looked for yet.",
  columns: [keyCell, { title: "Type", of: (row) => typeName(row.type) }, { title: "Memory", of: (row) => row.bytes, text: (row) => bytes(row.bytes), class: "n" }],
});
const HOT = new Table($("hot-table"), {
  caption: "Hot keys", step: 12, key: (row) => row.name, sort: [2, "down"], empty: "Not looked for yet.",
  columns: [keyCell, { title: "Type", of: (row) => typeName(row.type) }, { title: "Use", of: (row) => row.uses, text: (row) => String(row.uses), class: "n" }],
});
const sums = (place, caption, first, of) => new Table($(place), {
  caption, step: 12, key: of, sort: [2, "down"], empty: "Not looked for yet.",
  columns: [{ title: first, of }, { title: "Keys", of: (row) => row.keys, text: (row) => exact(row.keys), class: "n" },
    { title: "Memory", of: (row) => row.bytes, text: (row) => bytes(row.bytes), class: "n" }],
});
const KINDS = sums("kind-table", "Memory by type", "Type", (row) => typeName(row.name));
const PREFIXES = sums("prefix-table", "Memory by prefix", "Prefix", (row) => row.name);

// Keeps the `KEPT` rows with the largest `of`.
function keep(list, row, of) {
  list.push(row);
  if (list.length > KEPT * 4) { list.sort((a, b) => of(b) - of(a)); list.length = KEPT; }
}
const sorted = (list, of) => list.sort((a, b) => of(b) - of(a)).slice(0, KEPT);

function tally(map, name, size) {
  const row = map.get(name) || { name, keys: 0, bytes: 0 };
  row.keys++;
  row.bytes += size;
  map.set(name, row);
}

async function look() {
  const number = ++survey.number;
  survey.isOn = true;
  const db = Number($("survey-db").value || 0);
  const [big, hot, kinds, prefixes] = [[], [], new Map(), new Map()];
  let [cursor, looked, drawn] = ["0", 0, 0];
  const total = Number(await call(["DBSIZE"], db));
  // Without counts of use each question for one would be an error in the server's statistics.
  const policy = pairsOf(await call(["CONFIG", "GET", "maxmemory-policy"]))[0]?.[1] ?? "";
  const isCounted = policy.endsWith("-lfu");
  const questions = [["TYPE"], ["MEMORY", "USAGE"], ...(isCounted ? [["OBJECT", "FREQ"]] : [])];
  const why = isCounted ? "" : " Hot keys need a policy that counts use: start with --cache_mode or a maxmemory-policy such as allkeys-lfu.";
  const render = (state) => {
    $("survey-state").textContent = `${state} ${exact(looked)} of ${plural(total, "key", "keys")}.${why}`;
    $("survey-meter").firstElementChild.style.width = `${total ? Math.min(1, looked / total) * 100 : 100}%`;
    BIG.set(sorted([...big], (row) => row.bytes));
    HOT.set(sorted([...hot], (row) => row.uses));
    KINDS.set([...kinds.values()]);
    PREFIXES.set([...prefixes.values()]);
  };
  $("survey-start").hidden = true;
  $("survey-stop").hidden = false;
  try {
    while (cursor !== null && survey.isOn && number === survey.number) {
      const reply = await call(["SCAN", cursor, "COUNT", EACH], db);
      cursor = show(reply[0]) === "0" ? null : reply[0];
      for (let at = 0; at < reply[1].length; at += EACH) {
        const names = reply[1].slice(at, at + EACH);
        const { replies } = await run(names.flatMap((key) => questions.map((words) => [...words, key])), db);
        names.forEach((key, i) => {
          const [type, size, uses] = replies.slice(i * questions.length, (i + 1) * questions.length);
          looked++;
          if (size === null || isError(size)) return;
          const row = { key, db, name: show(key), type: show(type), bytes: size };
          keep(big, row, (one) => one.bytes);
          tally(kinds, row.type, size);
          const cut = row.name.search(/[:/.]/);
          tally(prefixes, cut > 0 ? row.name.slice(0, cut + 1) : "(no prefix)", size);
          if (isCounted && uses !== null && !isError(uses)) keep(hot, { ...row, uses }, (one) => one.uses);
        });
      }
      if (performance.now() - drawn > 400) { render("Looking:"); drawn = performance.now(); }
    }
    render(cursor === null ? "Finished:" : "Stopped after");
  } catch (error) { toast(error.message); }
  if (why) HOT.empty = "No counts of use: see above.";
  HOT.draw();
  survey.isOn = false;
  $("survey-start").hidden = false;
  $("survey-stop").hidden = true;
}

/* ---- the page ---- */

const form = (id, input, name, scale, after) => $(id).addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(async () => {
    await call(["CONFIG", "SET", name, Math.round(Number($(input).value) * scale)]);
    $(input).blur();
    toast("The threshold is set. CONFIG REWRITE stores it.");
    await after();
  });
});

export const enter = () => guarded(async () => { await slow(); await latency(); });
export const tick = enter;

export function start() {
  form("slow-form", "slow-threshold", "slowlog-log-slower-than", 1000, slow);
  form("latency-form", "latency-threshold", "latency-monitor-threshold", 1, latency);
  $("slow-reset").addEventListener("click", () => confirm({
    title: "Clear the slow log?", text: "All its entries are removed.", action: "Clear the log",
    submit: async () => { await call(["SLOWLOG", "RESET"]); await slow(); },
  }));
  $("latency-reset").addEventListener("click", () => confirm({
    title: "Clear the latency events?", text: "All recorded events are removed.", action: "Clear the events",
    submit: async () => { await call(["LATENCY", "RESET"]); await latency(); },
  }));
  $("survey-start").addEventListener("click", () => guarded(look));
  $("survey-stop").addEventListener("click", () => { survey.isOn = false; });
}
