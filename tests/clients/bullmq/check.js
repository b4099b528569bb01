// BullMQ against HOST PORT [JOBS]: adds, processes and completes jobs, with retries, delays, priorities and a flow; exits
// non-zero at the first wrong answer. With JOBS only so many plain jobs, fifty at a time, and their rate.
const { createRequire } = require("node:module");
const assert = require("node:assert/strict");
const require_ = createRequire(process.env.CLIENT_DIR + "/");
const { Queue, Worker, QueueEvents, FlowProducer } = require_("bullmq");
const Redis = require_("ioredis");

const [host, port] = [process.argv[2], Number(process.argv[3])];
const jobs = Number(process.argv[4] ?? 0);
const connection = { host, port, db: 9, maxRetriesPerRequest: null };
const within = (what, promise) =>
  Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error(`${what}: nothing in time`)), 60000))]);

async function drained(name, count, work, options = {}) {
  let done = 0;
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const worker = new Worker(name, work, { connection, concurrency: 50, ...options });
  worker.on("completed", () => ++done === count && finish());
  worker.on("error", (error) => console.error("bullmq:", error.message));
  await within(`${count} jobs of ${name}`, all);
  await worker.close();
  assert.equal(done, count);
}

async function rate() {
  const queue = new Queue("rate", { connection });
  const began = process.hrtime.bigint();
  for (let at = 0; at < jobs; at += 500) {
    await queue.addBulk(Array.from({ length: Math.min(500, jobs - at) }, (_, n) => ({ name: "j", data: { n: at + n } })));
  }
  const added = process.hrtime.bigint();
  await drained("rate", jobs, async (job) => job.data.n);
  const seconds = (from) => Number(process.hrtime.bigint() - from) / 1e9;
  console.log(`${jobs} jobs: added at ${Math.round(jobs / (seconds(began) - seconds(added)))}/s, all done at ${Math.round(jobs / seconds(began))}/s`);
  await queue.close();
}

async function features() {
  const queue = new Queue("check", { connection });
  const events = new QueueEvents("check", { connection });
  await events.waitUntilReady();
  await queue.addBulk(Array.from({ length: 500 }, (_, n) => ({ name: "plain", data: { n }, opts: { priority: n % 3 } })));
  await queue.add("late", { n: 1000 }, { delay: 200 });
  await queue.add("flaky", { n: 1001 }, { attempts: 3, backoff: 10 });
  const again = await queue.add("once", { n: 1002 }, { jobId: "same" });
  assert.equal((await queue.add("once", { n: 1002 }, { jobId: "same" })).id, again.id);
  const seen = new Map();
  await drained("check", 503, async (job) => {
    seen.set(job.id, (seen.get(job.id) ?? 0) + 1);
    if (job.name === "flaky" && job.attemptsMade < 2) throw new Error("not yet");
    await job.updateProgress(50);
    return job.data.n;
  });
  assert.equal(seen.size, 503);
  assert.equal([...seen.values()].filter((times) => times !== 1).length, 1, "one job was tried again");
  assert.deepEqual(await queue.getJobCounts("completed", "failed", "wait", "active", "delayed"),
    { completed: 503, failed: 0, wait: 0, active: 0, delayed: 0 });
  const child = (n) => ({ name: "child", queueName: "children", data: { n } });
  const flow = new FlowProducer({ connection });
  await flow.add({ name: "parent", queueName: "check", data: {}, children: [child(1), child(2), child(3)] });
  await drained("children", 3, async (job) => job.data.n * 10);
  let sum = 0;
  await drained("check", 1, async (job) => {
    sum = Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
  });
  assert.equal(sum, 60);
  const removed = await queue.clean(0, 10000, "completed");
  assert.equal(removed.length, 504);
  await queue.obliterate({ force: true });
  await Promise.all([queue.close(), events.close(), flow.close()]);
}

(async () => {
  const redis = new Redis(connection);
  await redis.flushdb();
  await (jobs ? rate() : features());
  await redis.flushdb();
  await redis.quit();
  process.exit(0);
})().catch((error) => {
  console.error("bullmq:", error);
  process.exit(1);
});
