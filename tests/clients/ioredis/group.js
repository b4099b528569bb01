// ioredis' Sentinel client while the leader of a group changes: group.js HOST PORT, three members from PORT on (group.sh). The
// leader changes once as planned and once by a kill. What the client was told of must be there once the last one leads. Exits
// non-zero at the first wrong answer.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const [host, first] = [process.argv[2], Number(process.argv[3])];
const PATIENCE_MS = 60_000;
const sentinels = [0, 1, 2].map((at) => ({ host, port: first + at + 10 }));
const pause = () => new Promise((done) => setTimeout(done, 50));

async function until(what, isSo) {
  for (const began = Date.now(); !(await isSo()); await pause()) {
    assert.ok(Date.now() - began < PATIENCE_MS, what);
  }
}

async function leader() {
  const asked = new Redis(first + 10, host);
  const [ip, port] = await asked.call("SENTINEL", "get-master-addr-by-name", "darter");
  await asked.quit();
  return `${ip}:${port}`;
}

const connect = (place) => new Redis(Number(place.split(":")[1]), place.split(":")[0]);

async function main() {
  const r = new Redis({ sentinels, name: "darter", maxRetriesPerRequest: 1 });
  r.on("error", () => {}); // each is seen by the call that it ends
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
  await r.del("told");
  await write(200);
  const one = await leader();
  const old = connect(one);
  assert.equal(await old.call("FAILOVER"), "OK");
  await until("another leader after FAILOVER", async () => (await leader()) !== one);
  old.disconnect();
  await write(200);
  const two = connect(await leader());
  const pid = Number(/process_id:(\d+)/.exec(await two.info("server"))[1]);
  two.on("error", () => {});
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
