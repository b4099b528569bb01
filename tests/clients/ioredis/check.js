// ioredis against HOST PORT; exits non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const { randomBytes } = require("node:crypto");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const host = process.argv[2];
const port = Number(process.argv[3]);
const connect = () => new Redis({ host, port, db: 9, retryStrategy: () => 20, maxRetriesPerRequest: 20 });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const within = (what, promise) =>
  Promise.race([promise, sleep(60000).then(() => assert.fail(`${what}: nothing within a minute`))]);

async function strings(r) {
  assert.equal(await r.set("s", "hello"), "OK");
  assert.equal(await r.get("s"), "hello");
  assert.equal(await r.get("none"), null);
  assert.equal(await r.set("s", "x", "NX"), null);
  assert.equal(await r.set("s", "world", "GET"), "hello");
  assert.equal(await r.append("s", "!"), 6);
  assert.equal(await r.getrange("s", 1, -2), "orld");
  assert.deepEqual([await r.incr("n"), await r.incrby("n", 41), await r.decr("n")], [1, 42, 41]);
  assert.equal(await r.incrbyfloat("f", 10.5), "10.5");
  assert.equal(await r.mset({ a: "1", b: "2" }), "OK");
  assert.deepEqual(await r.mget("a", "none", "b"), ["1", null, "2"]);
  await assert.rejects(r.incr("s"), /value is not an integer or out of range/);
  await assert.rejects(r.call("NOSUCH"), /unknown command/);
}

async function keys(r) {
  await r.flushdb();
  const names = Array.from({ length: 500 }, (_, i) => `key:${i}`);
  await Promise.all(names.map((name) => r.set(name, "x")));
  assert.equal(await r.dbsize(), 500);
  const found = new Set();
  for await (const page of r.scanStream({ match: "key:*", count: 20 })) page.forEach((key) => found.add(key));
  assert.deepEqual([...found].sort(), names.sort());
  assert.equal((await r.keys("key:1?")).length, 10);
  assert.equal(await r.exists("key:1", "key:2", "none"), 2);
  assert.equal(await r.del("key:1", "none"), 1);
  assert.equal(await r.rename("key:3", "moved"), "OK");
  assert.equal(await r.type("moved"), "string");
}

async function expiry(r) {
  await r.set("e", "x", "PX", 40);
  const left = await r.pttl("e");
  assert.ok(left > 0 && left <= 40, `pttl ${left}`);
  await sleep(60);
  assert.equal(await r.get("e"), null);
  await r.set("e", "x", "EX", 100);
  assert.equal(await r.persist("e"), 1);
  assert.equal(await r.ttl("e"), -1);
  assert.equal(await r.expireat("e", 1), 1);
  assert.equal(await r.exists("e"), 0);
}

async function pipelinesAndTransactions(r, other) {
  const pipe = r.pipeline();
  for (let i = 0; i < 1000; i++) pipe.set(`p${i}`, i);
  pipe.set("text", "x").incr("text").get("p999");
  const answers = await pipe.exec();
  assert.equal(answers.length, 1003);
  assert.match(answers[1001][0].message, /not an integer/);
  assert.deepEqual(answers[1002], [null, "999"]);
  assert.deepEqual(await r.multi().set("t", "1").incr("t").get("t").exec(), [[null, "OK"], [null, 2], [null, "2"]]);
  await r.watch("t");
  await other.set("t", "changed");
  assert.equal(await r.multi().set("t", "lost").exec(), null);
  assert.equal(await r.get("t"), "changed");
}

async function publish(r) {
  const listener = connect();
  const heard = [];
  const both = new Promise((done) => {
    const hear = (...what) => heard.push(what.map(String)) === 2 && done();
    listener.on("messageBuffer", hear);
    listener.on("pmessageBuffer", hear);
  });
  assert.equal(await listener.subscribe("news"), 1);
  assert.equal(await listener.psubscribe("n*"), 2);
  assert.equal(await r.publish("news", "hello"), 2);
  await within("messages", both);
  assert.deepEqual(heard.sort(), [["n*", "news", "hello"], ["news", "hello"]]);
  assert.equal(await listener.unsubscribe("news"), 1);
  listener.disconnect();
}

async function bytesOfAllKinds(r) {
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  await r.set(every, every);
  assert.ok((await r.getBuffer(every)).equals(every));
  const big = randomBytes(8 << 20);
  await r.set("big", big);
  assert.ok((await r.getBuffer("big")).equals(big));
}

async function parallel(r) {
  await r.set("shared", 0);
  const clients = Array.from({ length: 10 }, connect);
  await Promise.all(clients.flatMap((c) => Array.from({ length: 200 }, () => c.incr("shared"))));
  clients.forEach((c) => c.disconnect());
  assert.equal(await r.get("shared"), "2000");
}

async function reconnect(r, other) {
  const id = await r.client("ID");
  assert.equal(await other.client("KILL", "ID", id), 1);
  assert.equal(await within("set after the kill", r.set("again", "yes")), "OK");
  assert.equal(await r.get("again"), "yes");
}

async function main() {
  const [r, other] = [connect(), connect()];
  r.on("error", () => {});
  assert.equal(await r.ping(), "PONG");
  await r.flushdb();
  await strings(r);
  await keys(r);
  await expiry(r);
  await pipelinesAndTransactions(r, other);
  if (!(process.env.CHECK_WITHOUT ?? "").includes("pubsub")) await publish(r);
  await bytesOfAllKinds(r);
  await parallel(r);
  await reconnect(r, other);
  await r.flushdb();
  r.disconnect();
  other.disconnect();
}

main().catch((error) => {
  console.error("ioredis:", error);
  process.exit(1);
});
