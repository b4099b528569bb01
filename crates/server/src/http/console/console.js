// The console: asks for the statistics each second, shows whether the server answers, and switches between the pages.
// No library, no build step.
"use strict";

import { $, guarded } from "./console/page.js";
import { clock, span } from "./console/format.js";
import * as server from "./console/server.js";
import * as overview from "./console/overview.js";
import * as keys from "./console/keys.js";
import * as shell from "./console/shell.js";
import * as clients from "./console/clients.js";
import * as diagnose from "./console/diagnose.js";
import * as replication from "./console/replication.js";
import * as group from "./console/group.js";
import * as cluster from "./console/cluster.js";
import { drawAll } from "./console/chart.js";

/* ---- the connection ---- */

const link = { lostAt: null, answeredAt: null, failures: 0, isFirst: true };

function online(now) {
  Object.assign(link, { lostAt: null, failures: 0, answeredAt: Date.now() });
  document.body.classList.remove("offline");
  $("banner").hidden = true;
  $("dot").className = "on";
  setReadonly(now.readonly);
  $("pulse").textContent = `${now.readonly ? "read-only · " : ""}${now.version} · up ${span(now.uptime_s)}`;
  $("pulse").title = `${now.threads.length} threads, ${now.shards} shards, ${now.driver}, port ${now.port}`;
}

// Hides what would change something, where the server refuses that. The page begins that way, until the server has said.
function setReadonly(is) {
  document.body.classList.toggle("readonly", is);
  for (const id of ["slow-threshold", "latency-threshold"]) $(id).readOnly = is;
}

// Greys the page and says since when its numbers are old.
function offline(error) {
  link.failures++;
  link.lostAt ??= Date.now();
  $("dot").className = "off";
  $("pulse").textContent = error.status ? "No statistics" : "Disconnected";
  // One lost answer is not an outage yet.
  if (link.failures < 2 && !error.status) return;
  const last = link.answeredAt ? ` What you see is of ${clock(link.answeredAt)}.` : "";
  const text = error.status ? `The server refuses its statistics: ${error.message}.`
    : `Disconnected since ${clock(link.lostAt)}: the server does not answer.${last} Trying again every second.`;
  if ($("banner").textContent !== text) $("banner").textContent = text;
  $("banner").hidden = false;
  document.body.classList.toggle("offline", !error.status);
  document.title = "Disconnected · Darter";
  overview.forget();
}

async function look() {
  try {
    const now = await server.stats();
    if (link.isFirst || link.lostAt || Date.now() - link.answeredAt > 3000) {
      // The server's own record fills what this page has not seen.
      overview.forget();
      await overview.catchUp();
      link.isFirst = false;
    }
    online(now);
    overview.draw(now);
    replication.draw(now);
    group.draw(now);
    cluster.draw(now);
    keys.setDatabases();
  } catch (error) {
    offline(error);
    overview.move(Date.now());
  }
}

async function beat() {
  for (;;) {
    const began = performance.now();
    if (!document.hidden) await look();
    const wait = Math.max(200, 1000 - (performance.now() - began));
    await new Promise((done) => setTimeout(done, wait));
  }
}

/* ---- pages ---- */

const PAGES = { overview: {}, keys, shell, clients, replication: {}, cluster: {}, diagnose };
const TICKS = { clients: 2000, diagnose: 3000 };
let timer = 0;

// Brings the page's own link into sight, where the width cannot hold all.
function showPlace() {
  const anchor = document.querySelector("nav a[aria-current]");
  if (anchor) anchor.parentElement.scrollLeft = anchor.offsetLeft - 60;
}

function turn() {
  const name = location.hash.slice(1) in PAGES ? location.hash.slice(1) : "overview";
  for (const other of Object.keys(PAGES)) $(other).hidden = other !== name;
  document.querySelectorAll("nav a").forEach((anchor) => {
    if (anchor.hash !== "#" + name) return anchor.removeAttribute("aria-current");
    anchor.setAttribute("aria-current", "page");
    return undefined;
  });
  showPlace();
  // The names in the address are those of sections; the page begins at its top all the same.
  requestAnimationFrame(() => scrollTo(0, 0));
  clearInterval(timer);
  const page = PAGES[name];
  if (page.enter) guarded(page.enter);
  if (TICKS[name]) timer = setInterval(() => { if (!document.hidden && !link.lostAt && !$("dialog").open) page.tick(); }, TICKS[name]);
  if (name === "overview") drawAll();
}

addEventListener("hashchange", turn);
addEventListener("resize", () => { showPlace(); drawAll(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
for (const page of [keys, shell, clients, diagnose]) page.start();
turn();
beat();
