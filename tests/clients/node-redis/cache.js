// node-redis' client-side cache against HOST PORT; exits non-zero at the first wrong answer. Empties the server.
"use strict";

const { createRequire } = require("node:module");
const path = require("node:path");

// The library is installed elsewhere; see run.sh.
const { createClient } = createRequire(path.join(process.env.CLIENT_DIR || __dirname, "x.js"))("redis");
const [host, port] = [process.argv[2], Number(process.argv[3])];

function expect(what, got, wanted) {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) {
    console.error(`node-redis cache: ${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
    process.exit(1);
  }
}

async function main() {
  const options = { socket: { host, port }, database: 9, RESP: 3 };
  const plain = await createClient(options).connect();
  const cached = await createClient({ ...options, clientSideCache: { ttl: 0, maxEntries: 0 } }).connect();
  const asked = async () => {
    const found = /cmdstat_get:calls=(\d+)/.exec(await plain.info("commandstats"));
    return found ? Number(found[1]) : 0;
  };
  // The message travels by itself; until it is here, the old value may be seen.
  const eventually = async (what, wanted) => {
    const until = Date.now() + 60000;
    while ((await cached.get("k")) !== wanted && Date.now() < until) {
      await new Promise((done) => setTimeout(done, 10));
    }
    expect(what, await cached.get("k"), wanted);
  };

  await plain.flushAll();
  await plain.set("k", "one");
  expect("first read", await cached.get("k"), "one");
  const before = await asked();
  for (let i = 0; i < 100; i++) expect("hit", await cached.get("k"), "one");
  expect("what hits asked the server", (await asked()) - before, 0);

  await plain.set("k", "two");
  await eventually("after a change elsewhere", "two");
  await plain.set("k", "brief", { expiration: { type: "PX", value: 5000 } });
  await eventually("before expiry", "brief");
  await eventually("after expiry", null);
  await plain.set("k", "three");
  await eventually("a key that was absent", "three");
  await plain.flushAll();
  await eventually("after FLUSHALL", null);
  plain.destroy();
  cached.destroy();
}

main().catch((error) => {
  console.error(`node-redis cache: ${error.stack}`);
  process.exit(1);
});
