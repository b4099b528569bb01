// ioredis' cluster client at work while slots move: work.js HOST PORT exact, as changes.py says.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const Redis = createRequire(process.env.CLIENT_DIR + "/")("ioredis");

const [host, port] = [process.argv[2], Number(process.argv[3])];
const [WORKERS, KEYS] = [4, 50];
let [isOver, answers] = [false, 0];

async function work(r, who) {
  const counts = Array(KEYS).fill(0);
  for (let n = 0; !isOver; n += 1) {
    const tag = `{${who}-${n % KEYS}}`;
    counts[n % KEYS] += 1;
    const wanted = counts[n % KEYS];
    if (n % 4 === 0) {
      const replies = await r.multi().incr(`${tag}n`).rpush(`${tag}l`, wanted).exec();
      assert.deepEqual(replies, [[null, wanted], [null, wanted]], tag);
    } else {
      assert.equal(await r.incr(`${tag}n`), wanted, tag);
      assert.equal(await r.rpush(`${tag}l`, wanted), wanted, tag);
    }
    answers += 1;
    if (answers % 100 === 0) console.log("answered");
  }
  for (const [at, count] of counts.entries()) {
    assert.deepEqual(await r.lrange(`{${who}-${at}}l`, 0, -1), Array.from({ length: count }, (_, i) => String(i + 1)));
  }
}

async function main() {
  const r = new Redis.Cluster([{ host, port }]);
  process.stdin.on("end", () => (isOver = true)).resume();
  await Promise.all(Array.from({ length: WORKERS }, (_, who) => work(r, who)));
  r.disconnect();
}

main().catch((error) => {
  console.error("ioredis moves:", error);
  process.exit(1);
});
