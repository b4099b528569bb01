// How each type of value is read in pieces, changed and created.
"use strict";

import { show } from "./format.js";
import { isError, itemsOf, pairsOf } from "./server.js";

const rowsOf = (flat) => pairsOf(itemsOf(flat));
const cursor = (reply) => (show(reply[0]) === "0" ? null : reply[0]);

// Changes a list element only if it is still the one that was shown.
const LSET = `if redis.call('LINDEX', KEYS[1], ARGV[1]) ~= ARGV[2] then
return redis.error_reply('ERR The list has changed meanwhile; refresh it first.') end
redis.call('LSET', KEYS[1], ARGV[1], ARGV[3]) return 1`;
const LREM = `if redis.call('LINDEX', KEYS[1], ARGV[1]) ~= ARGV[2] then
return redis.error_reply('ERR The list has changed meanwhile; refresh it first.') end
redis.call('LSET', KEYS[1], ARGV[1], ARGV[3]) return redis.call('LREM', KEYS[1], 1, ARGV[3])`;
const mark = () => `removed by the console ${Math.random().toString(36).slice(2)}${Date.now()}`;
const refuse = (text) => (reply) => { if (reply === 0) throw new Error(text); };

// Rows: {cells: what is shown, raw: the parts for commands}. `edit` and `remove` return a command for a row,
// `add` for the values of its fields. `check` looks at the reply of a command.
export const TYPES = {
  string: { length: "STRLEN", units: ["byte", "bytes"] },
  "ReJSON-RL": { name: "JSON", units: ["", ""] },
  hash: {
    length: "HLEN", units: ["field", "fields"], one: "field", head: ["Field", "Value"],
    page: (key, at) => ["HSCAN", key, at || "0", "COUNT", "100"],
    read: (reply) => ({ rows: rowsOf(reply[1]).map(([f, v]) => ({ cells: [f, v] })), next: cursor(reply) }),
    add: { fields: [["field", "Field"], ["value", "Value", 3]], command: (key, v) => ["HSETNX", key, v.field, v.value], check: refuse("This field exists already. Edit it instead.") },
    edit: { label: "Value", of: (row) => row.cells[1], command: (key, row, v) => ["HSETEX", key, "FXX", "KEEPTTL", "FIELDS", 1, row.cells[0], v], check: refuse("The field does not exist any more.") },
    remove: (key, row) => ["HDEL", key, row.cells[0]],
  },
  set: {
    length: "SCARD", units: ["member", "members"], one: "member", head: ["Member"],
    page: (key, at) => ["SSCAN", key, at || "0", "COUNT", "200"],
    read: (reply) => ({ rows: itemsOf(reply[1]).map((m) => ({ cells: [m] })), next: cursor(reply) }),
    add: { fields: [["value", "Member", 2]], command: (key, v) => ["SADD", key, v.value], check: refuse("The set contains this member already.") },
    remove: (key, row) => ["SREM", key, row.cells[0]],
  },
  list: {
    length: "LLEN", units: ["element", "elements"], one: "element", head: ["#", "Element"],
    page: (key, at) => ["LRANGE", key, at || 0, (at || 0) + 99],
    read: (reply, at) => ({
      rows: reply.map((item, i) => ({ cells: [String((at || 0) + i), item] })), next: reply.length === 100 ? (at || 0) + 100 : null,
    }),
    add: {
      fields: [["value", "Element", 3], ["end", "Where", [["RPUSHX", "at the end"], ["LPUSHX", "at the front"]]]],
      command: (key, v) => [v.end, key, v.value], check: refuse("The list does not exist any more."),
    },
    edit: { label: "Element", of: (row) => row.cells[1], command: (key, row, v) => ["EVAL", LSET, 1, key, row.cells[0], row.cells[1], v] },
    remove: (key, row) => ["EVAL", LREM, 1, key, row.cells[0], row.cells[1], mark()],
  },
  zset: {
    name: "sorted set", length: "ZCARD", units: ["member", "members"], one: "member", head: ["Score", "Member"],
    page: (key, at) => ["ZRANGE", key, at || 0, (at || 0) + 99, "WITHSCORES"],
    read: (reply, at) => ({
      rows: reply.map(([member, score]) => ({ cells: [show(score), member] })), next: reply.length === 100 ? (at || 0) + 100 : null,
    }),
    add: { fields: [["value", "Member", 2], ["score", "Score"]], command: (key, v) => ["ZADD", key, "NX", v.score, v.value], check: refuse("The sorted set contains this member already. Edit its score instead.") },
    edit: { label: "Score", of: (row) => row.cells[0], command: (key, row, v) => ["ZADD", key, "XX", v, row.cells[1]] },
    remove: (key, row) => ["ZREM", key, row.cells[1]],
  },
  stream: {
    length: "XLEN", units: ["entry", "entries"], one: "entry", head: ["Id", "Fields"],
    page: (key, at) => ["XREVRANGE", key, at ? "(" + at : "+", "-", "COUNT", "50"],
    read: (reply) => ({
      rows: reply.map(([id, fields]) => ({ cells: [id, rowsOf(fields).map(([f, v]) => `${show(f)}: ${show(v)}`).join("\n")] })),
      next: reply.length === 50 ? reply[reply.length - 1][0] : null,
    }),
    add: {
      fields: [["pairs", "Fields, one “name: value” per line", 4]],
      command: (key, v) => ["XADD", key, "NOMKSTREAM", "*", ...pairs(v.pairs)],
    },
    remove: (key, row) => ["XDEL", key, row.cells[0]],
  },
  "TSDB-TYPE": {
    name: "time series", units: ["", ""], head: ["Time, Unix ms", "Value"],
    page: (key) => ["TS.REVRANGE", key, "-", "+", "COUNT", "200"],
    read: (reply) => ({ rows: reply.map(([t, v]) => ({ cells: [show(t), show(v)] })), next: null }),
  },
};

export function pairs(text) {
  const words = text.split("\n").filter((line) => line.trim()).flatMap((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`“${line}” is not of the form name: value.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  if (!words.length) throw new Error("At least one field is needed.");
  return words;
}

// What a new key of each type needs, and the command that makes it.
export const NEW = {
  string: { label: "Value", command: (key, a) => ["SET", key, a, "NX"] },
  hash: { label: "Fields, one “name: value” per line", command: (key, a) => ["HSET", key, ...pairs(a)] },
  list: { label: "Elements, one per line", command: (key, a) => ["RPUSH", key, ...lines(a)] },
  set: { label: "Members, one per line", command: (key, a) => ["SADD", key, ...lines(a)] },
  zset: { label: "Members, one “member: score” per line", command: (key, a) => ["ZADD", key, ...scored(a)] },
  stream: { label: "Fields of the first entry, one “name: value” per line", command: (key, a) => ["XADD", key, "*", ...pairs(a)] },
  "ReJSON-RL": { label: "JSON document", command: (key, a) => ["JSON.SET", key, "$", a, "NX"] },
};

function lines(text) {
  const words = text.split("\n").filter((line) => line !== "");
  if (!words.length) throw new Error("At least one line is needed.");
  return words;
}

// Members may contain colons; the score follows the last one.
function scored(text) {
  return lines(text).flatMap((line) => {
    const at = line.lastIndexOf(":");
    if (at < 1 || !line.slice(at + 1).trim()) throw new Error(`“${line}” is not of the form member: score.`);
    return [line.slice(at + 1).trim(), line.slice(0, at).trim()];
  });
}

export const typeName = (type) => (TYPES[type] && TYPES[type].name) || type;
export function checked(reply) {
  if (isError(reply)) throw new Error(reply.error.replace(/^ERR /, ""));
  return reply;
}
