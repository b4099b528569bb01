// node-redis' cluster client at work while the cluster changes: work.js HOST PORT exact|any, as changes.py says.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const { createCluster } = createRequire(process.env.CLIENT_DIR + "/")("redis");

const [url, isExact] = [`redis://${process.argv[2]}:${process.argv[3]}`, process.argv[4] === "exact"];
const [WORKERS, KEYS, PATIENCE_MS] = [4, 50, 60_000];
let [isOver, answers] = [false, 0];

const told = () => {
  answers += 1;
  if (answers % 100 === 0) console.log("answered");
};

// Adds to a list in order, and counts.
async function exact(r, who) {
  const counts = Array(KEYS).fill(0);
  for (let n = 0; !isOver; n += 1) {
    const tag = `{${who}-${n % KEYS}}`;
    counts[n % KEYS] += 1;
    const wanted = counts[n % KEYS];
    if (n % 4 === 0) {
      assert.deepEqual(await r.multi().incr(`${tag}n`).rPush(`${tag}l`, String(wanted)).exec(), [wanted, wanted], tag);
    } else {
      assert.equal(await r.incr(`${tag}n`), wanted, tag);
      assert.equal(await r.rPush(`${tag}l`, String(wanted)), wanted, tag);
    }
    told();
  }
  for (const [at, count] of counts.entries()) {
    assert.deepEqual(await r.lRange(`{${who}-${at}}l`, 0, -1), Array.from({ length: count }, (_, i) => String(i + 1)));
  }
}

// Adds numbers to sets; an error leaves open whether that took place.
async function any(r, who) {
  const answered = Array.from({ length: KEYS }, () => []);
  for (let n = 0, last = Date.now(); !isOver; n += 1) {
    try {
      await r.sAdd(`{${who}-${n % KEYS}}s`, String(n));
      answered[n % KEYS].push(String(n));
      told();
      last = Date.now();
    } catch (error) {
      assert.ok(Date.now() - last < PATIENCE_MS, `no answer: ${error}`);
      await new Promise((done) => setTimeout(done, 20));
    }
  }
  for (const [at, numbers] of answered.entries()) {
    const found = new Set(await r.sMembers(`{${who}-${at}}s`));
    assert.deepEqual(numbers.filter((number) => !found.has(number)), [], "lost");
  }
}

async function main() {
  const r = createCluster({ rootNodes: [{ url }], defaults: { socket: { reconnectStrategy: 50, connectTimeout: 1000 } } });
  r.on("error", () => {});
  await r.connect();
  process.stdin.on("end", () => (isOver = true)).resume();
  await Promise.all(Array.from({ length: WORKERS }, (_, who) => (isExact ? exact : any)(r, who)));
  r.destroy();
}

main().catch((error) => {
  console.error("node-redis cluster:", error);
  process.exit(1);
});
