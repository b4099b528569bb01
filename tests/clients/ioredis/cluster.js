// ioredis' cluster client against HOST PORT, a server with --cluster_mode=emulated; exits non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const [host, port] = [process.argv[2], Number(process.argv[3])];

async function main() {
  const r = new Redis.Cluster([{ host, port }], { scaleReads: "all" });
  await r.flushdb();
  const names = Array.from({ length: 200 }, (_, i) => `key:${i}`);
  await Promise.all(names.map((name) => r.set(name, name)));
  assert.deepEqual(await Promise.all(names.map((name) => r.get(name))), names);
  assert.equal(r.nodes("all").length, 1);
  assert.equal(await r.mset("{t}a", "1", "{t}b", "2"), "OK");
  assert.deepEqual(await r.mget("{t}a", "{t}b"), ["1", "2"]);
  const replies = await r.pipeline().set("{p}a", "1").incr("{p}a").get("{p}a").exec();
  assert.deepEqual(replies, [[null, "OK"], [null, 2], [null, "2"]]);
  const done = await r.multi().incr("{p}a").get("{p}a").exec();
  assert.deepEqual(done, [[null, 3], [null, "3"]]);
  assert.equal(await r.eval("return redis.call('get', KEYS[1])", 1, "{t}a"), "1");
  assert.equal(await r.cluster("KEYSLOT", "foo"), 12182);
  await r.quit();
}

main().catch((error) => {
  console.error("ioredis cluster:", error);
  process.exit(1);
});
