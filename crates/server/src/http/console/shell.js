// The command line: quoting and printing as in redis-cli, history, completion, hints and help.
"use strict";

import { $, confirm, el, fill, guarded } from "./page.js";
import { nanos, show } from "./format.js";
import { call, isError, itemsOf, pairsOf, run } from "./server.js";

const shell = { db: 0, history: [], at: null, draft: "", docs: new Map() };
try { shell.history = JSON.parse(localStorage.getItem("history") || "[]"); } catch { /* A damaged history is dropped. */ }

// Lines with passwords are not stored.
const SECRET = /^\s*(auth|hello\s.*\bauth|acl\s+setuser|migrate\s.*\bauth|config\s+set\s.*(pass|auth))\b/i;
// Commands that ask first, with what they do.
const FINAL = [
  [/^\s*flushall\b/i, "Every key of every database is deleted."],
  [/^\s*flushdb\b/i, "Every key of this database is deleted."],
  [/^\s*shutdown\b/i, "The server stops."],
  [/^\s*(script|function)\s+flush\b/i, "All scripts or functions of this kind are deleted."],
  [/^\s*swapdb\b/i, "Two databases change places for every client."],
];

/* ---- words and replies ---- */

// Divides a line into words as redis-cli does. Bytes written as \x.. travel in base64.
export function words(line) {
  const out = [];
  let at = 0;
  const escapes = { n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07" };
  while (at < line.length) {
    if (/\s/.test(line[at])) { at++; continue; }
    let [word, raw] = ["", false];
    const quote = line[at] === '"' || line[at] === "'" ? line[at++] : null;
    for (;;) {
      if (at >= line.length) { if (quote) throw new Error("A quote is not closed."); break; }
      const c = line[at];
      if (quote ? c === quote : /\s/.test(c)) { at++; break; }
      const hex = quote === '"' && /^\\x([0-9a-fA-F]{2})/.exec(line.slice(at, at + 4));
      if (hex) { word += String.fromCharCode(parseInt(hex[1], 16)); raw = true; at += 4; continue; }
      if (quote === '"' && c === "\\" && at + 1 < line.length) { word += escapes[line[at + 1]] ?? line[at + 1]; at += 2; continue; }
      if (quote === "'" && c === "\\" && line[at + 1] === "'") { word += "'"; at += 2; continue; }
      word += c;
      at++;
    }
    if (quote && at < line.length && !/\s/.test(line[at])) throw new Error("A closing quote must be followed by a space.");
    out.push(raw ? { base64: btoa(word) } : word);
  }
  return out;
}

// Prints a reply as redis-cli does.
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
  return rows.forEach((row, at) => {
    const mark = String(at + 1).padStart(width) + (pairs ? "# " : reply.set ? "~ " : ") ");
    put((at ? indent : "") + mark, "z");
    if (!pairs) return print(out, row, indent + " ".repeat(width + 2));
    put((typeof row[0] === "string" ? JSON.stringify(row[0]) : show(row[0])) + " => ", "k");
    return print(out, row[1], indent + " ".repeat(width + 2));
  });
}

function printReply(out, reply) {
  // Texts of several lines, such as INFO, are printed as they are.
  if (typeof reply === "string" && reply.includes("\n")) return out.append(el("span", { class: "s" }, reply.replaceAll("\r\n", "\n").trimEnd() + "\n"));
  return print(out, reply, "");
}

/* ---- running ---- */

function entry(line) {
  const took = el("span", { class: "us" });
  const out = el("div");
  $("log").append(el("div", {}, el("div", { class: "in" }, el("span", {}, `${shell.db}> `, el("b", {}, line)), took), out));
  return { out, took };
}

const bottom = () => { $("log").scrollTop = $("log").scrollHeight; };

async function submit(line) {
  if (line.trim() === "clear") return fill("log");
  if (!SECRET.test(line)) {
    shell.history = [...shell.history.filter((old) => old !== line), line].slice(-500);
    localStorage.setItem("history", JSON.stringify(shell.history));
  }
  const help = /^\s*(?:help|\?)(?:\s+(.*))?$/i.exec(line);
  if (help) {
    const { out } = entry(line);
    await guarded(async () => explain(out, (help[1] || "").trim().toLowerCase()));
    return bottom();
  }
  const final = FINAL.find(([pattern]) => pattern.test(line));
  if (!final) return execute(line);
  await confirm({ title: line.trim(), text: final[1], action: `Run ${line.trim().split(/\s+/)[0].toUpperCase()}`, submit: () => execute(line) });
  return $("line").focus();
}

async function execute(line) {
  const { out, took } = entry(line);
  try {
    const command = words(line);
    const { replies: [reply], us } = await run([command], shell.db);
    printReply(out, reply);
    took.textContent = us < 1000 ? `${us} µs` : nanos(us * 1000);
    if (String(command[0]).toLowerCase() === "select" && !isError(reply)) {
      shell.db = Number(command[1]);
      $("ps").lastChild.textContent = shell.db + ">";
    }
  } catch (error) {
    out.append(el("span", { class: "x" }, error.message));
  }
  bottom();
}

function recall(step) {
  const { history } = shell;
  if (shell.at === null) { shell.draft = $("line").value; shell.at = history.length; }
  // Only lines that begin with what was typed are recalled.
  let at = shell.at + step;
  while (at >= 0 && at < history.length && !history[at].startsWith(shell.draft)) at += step;
  if (at < 0) return;
  shell.at = Math.min(history.length, at);
  $("line").value = shell.at === history.length ? shell.draft : history[shell.at];
  hint();
}

/* ---- what the server says about its commands ---- */

function syntax(argument) {
  const of = Object.fromEntries(argument.map(([name, value]) => [show(name), value]));
  const flags = itemsOf(of.flags).map(show);
  const inner = () => itemsOf(of.arguments).map((one) => syntax(pairsOf(one)));
  const type = show(of.type);
  let text = type === "oneof" ? inner().join(" | ") : type === "block" ? inner().join(" ") : type === "pure-token" ? "" : show(of.display_text ?? of.name);
  if (type === "oneof" && !flags.includes("optional")) text = `<${text}>`;
  const token = of.token !== undefined && of.token !== null ? show(of.token) : "";
  const whole = [token, text].filter(Boolean).join(" ");
  const again = flags.includes("multiple") ? ` [${flags.includes("multiple_token") ? whole : text} ...]` : "";
  return flags.includes("optional") ? `[${whole}${again}]` : whole + again;
}

function learn(rows) {
  for (const [name, doc] of rows) {
    const of = Object.fromEntries(pairsOf(doc).map(([key, value]) => [show(key), value]));
    const text = show(name).replace("|", " ").toLowerCase();
    const parts = itemsOf(of.arguments).map((one) => syntax(pairsOf(one)));
    shell.docs.set(text, {
      name: text, syntax: parts.join(" "), summary: of.summary ? show(of.summary) : "", since: of.since ? show(of.since) : "",
      group: of.group ? show(of.group) : "", complexity: of.complexity ? show(of.complexity) : "", isGroup: Boolean(of.subcommands),
    });
    if (of.subcommands) learn(pairsOf(of.subcommands));
  }
}

async function docs() {
  if (shell.docs.size) return;
  learn(pairsOf(await call(["COMMAND", "DOCS"])));
}

// The longest known command at the start of a line.
function known(line) {
  const parts = line.trim().toLowerCase().split(/\s+/);
  return (parts.length > 1 && shell.docs.get(parts.slice(0, 2).join(" "))) || shell.docs.get(parts[0]) || null;
}

function fits(line) {
  const typed = line.toLowerCase().replace(/\s+/g, " ").replace(/^ /, "");
  if (!typed) return [];
  return [...shell.docs.values()].filter(({ name }) => name.startsWith(typed) && (typed.includes(" ") || !name.includes(" ")))
    .sort((a, b) => a.name.localeCompare(b.name));
}

function hint() {
  const line = $("line").value;
  const list = fits(line);
  const exact = line.trim() && known(line);
  if (exact && (list.length <= 1 || /\s/.test(line.trimStart())) && !(exact.isGroup && list.length)) {
    return fill("hints", el("div", {}, el("b", {}, exact.name.toUpperCase()), ` ${exact.syntax}`), el("div", { class: "soft" }, exact.summary));
  }
  return fill("hints", ...list.slice(0, 6).map(({ name, syntax: text, summary }) => {
    const choose = el("button", { type: "button", tabIndex: -1, on: { click: () => { $("line").value = name.toUpperCase() + " "; $("line").focus(); hint(); } } },
      el("b", {}, name.toUpperCase()), el("span", {}, text), el("span", { class: "soft" }, summary));
    return choose;
  }), ...(list.length > 6 ? [el("div", { class: "soft" }, `${list.length - 6} more`)] : []));
}

// Completes the name; false if nothing can be added, so that Tab leaves the field.
function complete() {
  const line = $("line").value;
  const list = fits(line);
  if (!list.length) return false;
  const isUpper = line.trim() === line.trim().toUpperCase();
  let common = list[0].name;
  for (const { name } of list) while (!name.startsWith(common)) common = common.slice(0, -1);
  const next = (isUpper ? common.toUpperCase() : common) + (list.length === 1 ? " " : "");
  if (next.length <= line.trimStart().length) return false;
  $("line").value = next;
  hint();
  return true;
}

async function explain(out, name) {
  await docs();
  const put = (text, style) => out.append(el("span", { class: style || "" }, text));
  const doc = shell.docs.get(name);
  if (doc) {
    put(`${doc.name.toUpperCase()} `, "k");
    put(`${doc.syntax}\n`);
    put(`${doc.summary}\n`);
    put([doc.group && `group: ${doc.group}`, doc.since && `since: ${doc.since}`, doc.complexity && `complexity: ${doc.complexity}`].filter(Boolean).join(", ") + "\n", "z");
  }
  const list = [...shell.docs.values()].filter(({ name: other, group }) => (doc ? other.startsWith(name + " ") : name && (other.includes(name) || group === name)));
  list.slice(0, 60).forEach((one) => { put(`${one.name.toUpperCase()}  `, "k"); put(`${one.summary}\n`); });
  if (list.length > 60) put(`${list.length - 60} more\n`, "z");
  if (name) { if (!doc && !list.length) put(`No command is called ${name}.\n`, "x"); return; }
  put("help COMMAND   explains a command, for example: help zadd\nhelp GROUP     lists a group: ");
  put([...new Set([...shell.docs.values()].map(({ group }) => group))].filter(Boolean).sort().join(", ") + "\n", "z");
  put("help WORD      lists commands whose name contains a word\nclear          empties the page\nTab completes a name; the arrow keys recall earlier commands that begin with what is typed.\nFLUSHALL, FLUSHDB, SHUTDOWN and a few more ask before they run.\n");
}

export function enter() {
  $("line").focus();
  docs().then(hint, () => {});
}

export function start() {
  $("prompt").addEventListener("submit", (event) => {
    event.preventDefault();
    const line = $("line").value;
    $("line").value = "";
    shell.at = null;
    hint();
    if (line.trim()) submit(line);
  });
  $("line").addEventListener("input", () => { shell.at = null; hint(); });
  $("line").addEventListener("keydown", (event) => {
    if (event.key === "ArrowUp" || event.key === "ArrowDown") { event.preventDefault(); recall(event.key === "ArrowUp" ? -1 : 1); }
    if (event.key === "Tab" && !event.shiftKey && $("line").value && complete()) event.preventDefault();
    if (event.key === "l" && event.ctrlKey) { event.preventDefault(); fill("log"); }
  });
}
