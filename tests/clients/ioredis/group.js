// ioredis' Sentinel client while the leader of a group changes: group.js HOST PORT, three members from PORT on (group.sh). With
// `cluster` behind them its cluster client, with six nodes from PORT on (six.sh). The leader changes once as planned and once by a kill. What the client was told of must be there once the last one leads. Exits
// non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const [host, first] = [process.argv[2], Number(process.argv[3])];
const PATIENCE_MS = 60_000;
const isCluster = process.argv[4] === "cluster";
const sentinels = [0, 1, 2].map((at) => ({ host, port: first + at + 10 }));
const pause = () => new Promise((done) => setTimeout(done, 50));

async function until(what, isSo) {
  for (const began = Date.now(); !(await isSo()); await pause()) {
    assert.ok(Date.now() - began < PATIENCE_MS, what);
  }
}

const quiet = (client) => client.on("error", () => {}); // each is seen by the call that it ends

// The addresses of the group that has the key, of which a cluster alone tells the followers: the leader first.
async function group() {
  for (let at = 0; at < 6; at += 1) {
    const asked = quiet(new Redis(first + at + (isCluster ? 0 : 10), host, { maxRetriesPerRequest: 0, retryStrategy: null }));
    try {
      if (!isCluster) return [(await asked.call("SENTINEL", "get-master-addr-by-name", "darter")).join(":")];
      const slot = await asked.call("CLUSTER", "KEYSLOT", "told");
      const ranges = await asked.call("CLUSTER", "SLOTS");
      const [, , ...nodes] = ranges.find(([start, end]) => start <= slot && slot <= end);
      return nodes.map(([ip, port]) => `${ip}:${port}`);
    } catch (error) {
      if (!isCluster) throw error; // of a cluster it is the dead one
    } finally {
      asked.disconnect();
    }
  }
  throw new Error("no node knows the slot");
}

const leader = async () => (await group())[0];
const connect = (place) => quiet(new Redis(Number(place.split(":")[1]), place.split(":")[0]));

async function main() {
  const redisOptions = { maxRetriesPerRequest: 1 };
  const r = isCluster
    ? new Redis.Cluster([{ host, port: first }], { redisOptions })
    : new Redis({ sentinels, name: "darter", ...redisOptions });
  quiet(r);
  const answered = [];
  let asked = 0;
  // Adds until `count` more were answered; an error leaves open whether it took place.
  const write = async (count) => {
    const wanted = answered.length + count;
    for (const began = Date.now(); answered.length < wanted; ) {
      asked += 1;
      const number = String(asked);
      try {
        await r.sadd("told", number);
        answered.push(number);
      } catch (error) {
        assert.ok(Date.now() - began < PATIENCE_MS, `no answer: ${error}`);
        await pause();
      }
    }
  };
  await write(200);
  const one = await leader();
  const old = connect(isCluster ? (await group())[1] : one);
  assert.equal(await (isCluster ? old.call("CLUSTER", "FAILOVER") : old.call("FAILOVER")), "OK");
  await until("another leader after FAILOVER", async () => (await leader()) !== one);
  old.disconnect();
  await write(200);
  const two = connect(await leader());
  const pid = Number(/process_id:(\d+)/.exec(await two.info("server"))[1]);
  process.kill(pid, "SIGKILL");
  two.disconnect();
  await write(200);
  const found = new Set(await r.smembers("told"));
  assert.deepEqual(answered.filter((number) => !found.has(number)), []);
  r.disconnect();
}

main().catch((error) => {
  console.error("ioredis group:", error);
  process.exit(1);
});
