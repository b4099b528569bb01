// node-redis against HOST PORT; exits non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const { randomBytes } = require("node:crypto");
const assert = require("node:assert/strict");
const { createClient, RESP_TYPES, WatchError } = createRequire(process.env.CLIENT_DIR + "/")("redis");

const [host, port] = [process.argv[2], Number(process.argv[3])];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function connect(RESP) {
  const client = createClient({ RESP, database: 9, socket: { host, port, reconnectStrategy: 20 } });
  client.on("error", () => {});
  return client.connect();
}

async function strings(r) {
  assert.equal(await r.set("s", "hello"), "OK");
  assert.equal(await r.get("s"), "hello");
  assert.equal(await r.get("none"), null);
  assert.equal(await r.set("s", "x", { NX: true }), null);
  assert.equal(await r.set("s", "world", { GET: true }), "hello");
  assert.equal(await r.append("s", "!"), 6);
  assert.equal(await r.getRange("s", 1, -2), "orld");
  assert.deepEqual([await r.incr("n"), await r.incrBy("n", 41), await r.decr("n")], [1, 42, 41]);
  assert.equal(await r.mSet({ a: "1", b: "2" }), "OK");
  assert.deepEqual(await r.mGet(["a", "none", "b"]), ["1", null, "2"]);
  await assert.rejects(r.incr("s"), /value is not an integer or out of range/);
  await assert.rejects(r.sendCommand(["NOSUCH"]), /unknown command/);
}

async function keys(r) {
  await r.flushDb();
  const names = Array.from({ length: 500 }, (_, i) => `key:${i}`);
  await Promise.all(names.map((name) => r.set(name, "x")));
  assert.equal(await r.dbSize(), 500);
  const found = new Set();
  for await (const page of r.scanIterator({ MATCH: "key:*", COUNT: 20 })) [page].flat().forEach((key) => found.add(key));
  assert.deepEqual([...found].sort(), names.sort());
  assert.equal(await r.exists(["key:1", "key:2", "none"]), 2);
  assert.equal(await r.del(["key:1", "none"]), 1);
  assert.equal(await r.rename("key:3", "moved"), "OK");
  assert.equal(await r.type("moved"), "string");
}

async function expiry(r) {
  await r.set("e", "x", { PX: 40 });
  await sleep(60);
  assert.equal(await r.get("e"), null);
  await r.set("e", "x", { EX: 100 });
  const left = await r.ttl("e");
  assert.ok(left >= 98 && left <= 100, `ttl ${left}`);
  assert.equal(Number(await r.persist("e")), 1);
  assert.equal(await r.ttl("e"), -1);
}

async function pipelinesAndTransactions(r, other) {
  const sets = Array.from({ length: 1000 }, (_, i) => r.set(`p${i}`, String(i)));
  const failing = assert.rejects(r.set("text", "x").then(() => r.incr("text")), /not an integer/);
  await Promise.all([...sets, failing]);
  assert.equal(await r.get("p999"), "999");
  assert.deepEqual(await r.multi().set("t", "1").incr("t").get("t").exec(), ["OK", 2, "2"]);
  await r.watch("t");
  await other.set("t", "changed");
  await assert.rejects(r.multi().set("t", "lost").exec(), WatchError);
  assert.equal(await r.get("t"), "changed");
}

async function publish(r, RESP) {
  const listener = await connect(RESP);
  const heard = [];
  await listener.subscribe("news", (message, channel) => heard.push([channel, message]));
  await listener.pSubscribe("n*", (message, channel) => heard.push([channel, message]));
  assert.equal(await r.publish("news", "hello"), 2);
  for (let i = 0; heard.length < 2 && i < 6000; i++) await sleep(10);
  assert.deepEqual(heard, [["news", "hello"], ["news", "hello"]]);
  await listener.unsubscribe("news");
  await listener.pUnsubscribe();
  assert.equal(await listener.get("none"), null);
  listener.destroy();
}

async function bytesOfAllKinds(r) {
  const binary = r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  await binary.set(every, every);
  assert.ok((await binary.get(every)).equals(every));
  const big = randomBytes(8 << 20);
  await binary.set("big", big);
  assert.ok((await binary.get("big")).equals(big));
}

async function parallel(r, RESP) {
  await r.set("shared", "0");
  const clients = await Promise.all(Array.from({ length: 10 }, () => connect(RESP)));
  await Promise.all(clients.flatMap((c) => Array.from({ length: 200 }, () => c.incr("shared"))));
  clients.forEach((c) => c.destroy());
  assert.equal(await r.get("shared"), "2000");
}

async function reconnect(r, other) {
  const id = await r.sendCommand(["CLIENT", "ID"]);
  assert.equal(Number(await other.sendCommand(["CLIENT", "KILL", "ID", String(id)])), 1);
  for (let i = 0; i < 3000; i++) {
    await sleep(20);
    // The command under way at the cut may be lost; the ones after it may not.
    if ((await r.set("again", "yes").catch(() => null)) === "OK") break;
  }
  assert.equal(await r.get("again"), "yes");
}

async function main() {
  for (const RESP of [2, 3]) {
    const [r, other] = [await connect(RESP), await connect(RESP)];
    assert.equal(await r.ping(), "PONG");
    await r.flushDb();
    await strings(r);
    await keys(r);
    await expiry(r);
    await pipelinesAndTransactions(r, other);
    if (!(process.env.CHECK_WITHOUT ?? "").includes("pubsub")) await publish(r, RESP);
    await bytesOfAllKinds(r);
    await parallel(r, RESP);
    await reconnect(r, other);
    await r.flushDb();
    r.destroy();
    other.destroy();
  }
}

main().catch((error) => {
  console.error("node-redis:", error);
  process.exit(1);
});
