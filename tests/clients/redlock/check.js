// redlock against HOST PORT: locks of several keys, taken, refused, extended, let go; exits non-zero at a wrong answer.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const require_ = createRequire(process.env.CLIENT_DIR + "/");
const Redlock = require_("redlock");
const Redis = require_("ioredis");

(async () => {
  const redis = new Redis({ host: process.argv[2], port: Number(process.argv[3]), db: 9 });
  await redis.flushdb();
  const patient = new Redlock([redis], { retryCount: 200, retryDelay: 5, retryJitter: 5 });
  const eager = new Redlock([redis], { retryCount: 0 });
  const held = await eager.lock(["lock:a", "lock:b"], 5000);
  await assert.rejects(eager.lock(["lock:b", "lock:c"], 1000), { name: "LockError" });
  assert.equal(await redis.exists("lock:c"), 0, "a lock that was refused leaves nothing");
  const longer = await held.extend(20000);
  assert.ok((await redis.pttl("lock:a")) > 10000);
  await longer.unlock();
  await assert.rejects(longer.unlock());
  // Forty at once increment a number that is no Redis counter.
  let [inside, counter] = [0, 0];
  await Promise.all(Array.from({ length: 40 }, async () => {
    const lock = await patient.lock("lock:shared", 5000);
    assert.equal(++inside, 1, "one at a time");
    const seen = counter;
    await new Promise((done) => setTimeout(done, 1));
    counter = seen + 1;
    inside--;
    await lock.unlock();
  }));
  assert.equal(counter, 40);
  await redis.flushdb();
  await redis.quit();
})().catch((error) => {
  console.error("redlock:", error);
  process.exit(1);
});
