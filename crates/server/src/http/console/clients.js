// The list of clients.
"use strict";

import { $, button, confirm, guarded } from "./page.js";
import { bytes, exact, plural, span } from "./format.js";
import { call } from "./server.js";
import { Table } from "./table.js";

// With more clients than this the list is refreshed by hand only.
const LIVE_MAX = 2000;
let rows = [];

const number = (name) => (row) => Number(row[name] || 0);
const size = (title, name) => ({ title, of: number(name), text: (row) => bytes(number(name)(row)), class: "n" });
const TABLE = new Table($("client-table"), {
  caption: "Clients", key: (row) => row.id, sort: [5, "up"], empty: "No clients.",
  columns: [
    { title: "Address", of: (row) => row.addr, class: "mono" },
    { title: "Name", of: (row) => row.name || row["lib-name"] || "" },
    { title: "User", of: (row) => row.user || "" },
    { title: "DB", of: number("db"), class: "n" },
    { title: "Age", of: number("age"), text: (row) => span(number("age")(row)), class: "n" },
    { title: "Idle", of: number("idle"), text: (row) => span(number("idle")(row)), class: "n" },
    { title: "Last command", of: (row) => (row.cmd === "NULL" ? "" : (row.cmd || "").replace("|", " ")), class: "mono" },
    { title: "Commands", of: number("tot-cmds"), text: (row) => exact(number("tot-cmds")(row)), class: "n" },
    size("Received", "tot-net-in"), size("Sent", "tot-net-out"), size("Memory", "tot-mem"),
    { label: "Actions", class: "n", paint: (cell, row) => { if (!cell.firstChild) cell.append(closeButton(row)); } },
  ],
});

function closeButton(row) {
  const one = button("Close", "small danger writes", () => confirm({
    title: `Close the connection of ${row.addr}?`, text: "What the client waits for is lost. It can connect again.", action: "Close the connection",
    submit: async () => { await call(["CLIENT", "KILL", "ID", row.id]); await refresh(); },
  }));
  one.setAttribute("aria-label", `Close ${row.addr}`);
  return one;
}

async function refresh() {
  const text = await call(["CLIENT", "LIST"]);
  rows = text.trim().split("\n").map((line) => Object.fromEntries(line.split(" ").map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), word.slice(at + 1)];
  })));
  TABLE.set(rows);
  $("clients-note").textContent = plural(rows.length, "client", "clients") + (rows.length > LIVE_MAX ? "; refreshed by the button only" : "; refreshed every two seconds");
}

export const enter = () => guarded(refresh);
export const tick = () => (rows.length <= LIVE_MAX ? guarded(refresh) : undefined);
export function start() { $("clients-refresh").addEventListener("click", enter); }
