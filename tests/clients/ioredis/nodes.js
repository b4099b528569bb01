// ioredis' cluster client against three servers of tests/clients/three.sh, which are on PORT and the two ports above; the slots
// change owners meanwhile. Exits non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const [host, first] = [process.argv[2], Number(process.argv[3])];

// Gives each of the three nodes a range of slots.
async function push(slots) {
  const groups = slots.map(([start, end], at) => ({
    slot_ranges: [{ start, end }],
    master: { id: `node${at}`, ip: host, port: first + at },
    replicas: [],
    migrations: [],
  }));
  for (let at = 0; at < 3; at++) {
    const node = new Redis(first + at, host);
    assert.equal(await node.call("DFLYCLUSTER", "CONFIG", JSON.stringify(groups)), "OK");
    await node.quit();
  }
}

const THIRDS = [[0, 5460], [5461, 10922], [10923, 16383]];
const SHIFTED = [[0, 1000], [1001, 12500], [12501, 16383]];

async function main() {
  await push(THIRDS);
  const r = new Redis.Cluster([{ host, port: first }]);
  const names = Array.from({ length: 300 }, (_, i) => `key:${i}`);
  for (const slots of [THIRDS, SHIFTED, THIRDS]) {
    await push(slots);
    await Promise.all(names.map((name) => r.set(name, name)));
    assert.deepEqual(await Promise.all(names.map((name) => r.get(name))), names);
    const replies = await r.pipeline().set("{p}a", "1").incr("{p}a").get("{p}a").exec();
    assert.deepEqual(replies, [[null, "OK"], [null, 2], [null, "2"]]);
    const done = await r.multi().incr("{p}a").get("{p}a").exec();
    assert.deepEqual(done, [[null, 3], [null, "3"]]);
  }
  assert.equal(r.nodes("master").length, 3);
  await assert.rejects(r.mget("key:1", "key:2"), /CROSSSLOT|same slot|same node/);
  await r.quit();
}

main().catch((error) => {
  console.error("ioredis nodes:", error);
  process.exit(1);
});
