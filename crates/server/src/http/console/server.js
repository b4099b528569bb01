// Requests to the server: statistics, history and commands.
"use strict";

const HEADERS = { "X-Darter-Console": "1" };

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(location.origin + path, { ...options, headers: { ...HEADERS, ...options.headers } });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (answer.status === 401) location.reload();
  if (!answer.ok) {
    const error = new Error((await answer.text()).trim() || answer.statusText);
    error.status = answer.status;
    throw error;
  }
  return answer.json();
}

export const stats = () => ask("/api/stats");
export const history = () => ask("/api/history");

// Runs commands one after the other in a database. A word is a string, a number or {base64}.
export function run(commands, db = 0) {
  return ask("/api/command", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ db, commands }),
  });
}

// Runs one command and returns its reply. Throws the text of an error reply.
export async function call(command, db = 0) {
  const { replies: [reply] } = await run([command], db);
  if (isError(reply)) throw new Error(reply.error);
  return reply;
}

export const isError = (reply) => reply !== null && typeof reply === "object" && "error" in reply;
export const itemsOf = (reply) => (Array.isArray(reply) ? reply : (reply && reply.set) || []);
// A reply that is a map in RESP3 or a flat list in RESP2, as pairs.
export function pairsOf(reply) {
  if (reply && !Array.isArray(reply) && reply.map) return reply.map;
  const pairs = [];
  for (let at = 0; at + 1 < itemsOf(reply).length; at += 2) pairs.push([reply[at], reply[at + 1]]);
  return pairs;
}
