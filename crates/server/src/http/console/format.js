// Numbers, times and bytes of replies as text for people.
"use strict";

export function count(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (n < 1000) return n < 10 && n % 1 ? n.toFixed(1) : String(Math.round(n));
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size * 0.9995) return (n / size).toFixed(n / size < 99.95 ? 1 : 0) + unit;
  }
  return String(Math.round(n));
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1023.5 && at < units.length - 1) { n /= 1024; at++; }
  return (at === 0 || n >= 99.95 ? Math.round(n) : n.toFixed(1)) + " " + units[at];
}

export function nanos(n) {
  if (n === null || n === undefined) return "–";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (n >= size) return (n / size).toFixed(n / size < 9.95 ? 2 : n / size < 99.5 ? 1 : 0) + " " + unit;
  }
  return Math.round(n) + " ns";
}

export function span(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min ${s} s`;
  return `${s} s`;
}

export const percent = (part) => (part === null ? "–" : (part * 100).toFixed(part > 0.9995 || part < 0.0005 ? 0 : 1) + "%");
export const exact = (n) => Number(n).toLocaleString("en-US").replaceAll(",", "\u202f");
export const plural = (n, one, many) => `${exact(n)} ${n === 1 ? one : many}`;

const two = (n) => String(n).padStart(2, "0");
// The time of day of a Unix time in milliseconds.
export function clock(ms, withSeconds = true) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}` + (withSeconds ? ":" + two(date.getSeconds()) : "");
}
export function day(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
}

// A value of a reply as text. Bytes that are not text are shown as escapes.
export function show(value) {
  if (value === null || value === undefined) return "(nil)";
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

export const isBinary = (value) => value !== null && typeof value === "object" && "base64" in value;

// The reverse of `show` for binary values: text with \xNN escapes as a word of a command.
export function fromEscapes(text) {
  const raw = [];
  for (let at = 0; at < text.length; at++) {
    const hex = /^\\x([0-9a-fA-F]{2})/.exec(text.slice(at, at + 4));
    if (hex) { raw.push(parseInt(hex[1], 16)); at += 3; continue; }
    const point = String.fromCodePoint(text.codePointAt(at));
    raw.push(...new TextEncoder().encode(point));
    at += point.length - 1;
  }
  return { base64: btoa(raw.map((byte) => String.fromCharCode(byte)).join("")) };
}

// JSON is indented; everything else is unchanged.
export function pretty(value) {
  const text = show(value);
  if (typeof value === "string" && /^\s*[[{]/.test(text) && text.length <= 1 << 20) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { /* Not JSON after all. */ }
  }
  return text;
}
