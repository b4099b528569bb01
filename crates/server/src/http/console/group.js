// The group of servers of which a store says who leads: its members, who is behind, and what has changed.
"use strict";

import { $ } from "./page.js";
import { bytes, day, exact, plural, span } from "./format.js";
import { facts } from "./replication.js";
import { Table } from "./table.js";

// A member is dropped after half a second, unless the settings say otherwise.
const SILENT_MS = 1000;
const ROLES = { leading: "leads", following: "follows", campaigning: "wants to lead", waiting: "waits" };
const CHANGES = { leads: "leads from now on", joins: "is a member", leaves: "is no member any more" };

const part = (row) => (row.leads ? "leader" : row.is_in_sync ? "member" : "outside");

const MEMBERS = new Table($("member-table"), {
  caption: "Members of the group", key: (row) => row.name, sort: [0, "up"], filter: false,
  empty: "The store has not been read yet.",
  columns: [
    { title: "Address", of: (row) => row.name, text: (row) => (row.is_own ? `${row.name} (this server)` : row.name), class: "mono" },
    { title: "Part", of: part, text: part },
    { title: "Has all that was answered", of: (row) => Number(row.is_in_sync), text: (row) => (row.is_in_sync ? "yes" : "no") },
    { title: "Lacks", of: (row) => row.behind_bytes ?? -1, text: (row) => bytes(row.behind_bytes), class: "n" },
    { title: "Heard", of: (row) => row.heard_ms ?? -1, class: "n",
      text: (row) => (row.is_own || row.heard_ms === null ? "–" : row.heard_ms < SILENT_MS ? `${exact(row.heard_ms)} ms ago` : `${span(row.heard_ms / 1000)} ago`) },
  ],
});

const RECORD = new Table($("change-table"), {
  caption: "Last changes of the group", key: (row) => row.key, sort: null, filter: false,
  empty: "Nothing has changed since this server began.",
  columns: [
    { title: "Seen", of: (row) => row.at_ms, text: (row) => day(row.at_ms), class: "mono" },
    { title: "Term", of: (row) => row.term, text: (row) => exact(row.term), class: "n" },
    { title: "Server", of: (row) => row.member, class: "mono" },
    { title: "Change", of: (row) => row.kind, text: (row) => CHANGES[row.kind] || row.kind, wide: true },
  ],
});

export function draw(now) {
  const g = now.group;
  $("group").hidden = !g;
  if (!g || $("replication").hidden) return;
  const has = g.members.filter((one) => one.is_in_sync && !one.leads).length;
  const wants = g.acks ? `${plural(g.acks, "member", "members")} before each answer, ${g.ack === "disk" ? "on disk" : "in memory"}` : "nobody: acknowledgements are off";
  facts("group-facts", [
    ["This server", ROLES[g.role] || g.role, g.is_in_doubt ? "bad" : g.role === "leading" ? "good" : ""],
    ["Leader", g.leader || "nobody", g.leader ? "" : "bad"],
    ["Term", exact(g.term)],
    ["Waits for", wants, ""],
    ["Members besides the leader", exact(has), has < g.acks ? "bad" : ""],
    g.lacks_acks ? ["Writes", "refused: too few members", "bad"] : null,
    g.role === "leading" && g.acks ? ["Changes not acknowledged", exact(g.acks_waiting)] : null,
    g.lease_ms === null ? null : ["Lease", `${exact(g.lease_ms)} ms left`, g.lease_ms ? "" : "bad"],
    ["Store", g.store_fault || "answers", g.store_fault ? "bad" : "good"],
    ["Has come to lead, was deposed", `${exact(g.led)}, ${exact(g.deposed)}`],
  ]);
  MEMBERS.set(g.members);
  RECORD.set(g.changes.map((one) => ({ ...one, key: `${one.at_ms} ${one.kind} ${one.member}` })));
}
