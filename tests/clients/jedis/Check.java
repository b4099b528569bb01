// jedis against HOST PORT; exits non-zero at the first wrong answer.

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

public class Check {
    static HostAndPort address;

    static void expect(String what, Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            System.err.println("jedis: " + what + ": got " + got + ", wanted " + wanted);
            System.exit(1);
        }
    }

    static void expectError(String what, Runnable call, String text) {
        try {
            call.run();
        } catch (JedisDataException error) {
            expect(what + " (" + error.getMessage() + ")", error.getMessage().contains(text), true);
            return;
        }
        expect(what, "no error", text);
    }

    static Jedis connect(RedisProtocol protocol) {
        return new Jedis(address, DefaultJedisClientConfig.builder().database(9).protocol(protocol).build());
    }

    static void strings(Jedis r) {
        expect("set", r.set("s", "hello"), "OK");
        expect("get", r.get("s"), "hello");
        expect("get missing", r.get("none"), null);
        expect("set nx", r.set("s", "x", SetParams.setParams().nx()), null);
        expect("append", r.append("s", "!"), 6L);
        expect("getrange", r.getrange("s", 1, -2), "ello");
        expect("incrBy", r.incrBy("n", 42), 42L);
        expect("incrByFloat", r.incrByFloat("f", 10.5), 10.5);
        expect("mset", r.mset("a", "1", "b", "2"), "OK");
        expect("mget", r.mget("a", "none", "b"), Arrays.asList("1", null, "2"));
        expectError("incr of text", () -> r.incr("s"), "value is not an integer or out of range");
    }

    static void keys(Jedis r) {
        r.flushDB();
        Set<String> wanted = new HashSet<>();
        for (int i = 0; i < 500; i++) {
            r.set("key:" + i, "x");
            wanted.add("key:" + i);
        }
        expect("dbSize", r.dbSize(), 500L);
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = r.scan(cursor, new ScanParams().match("key:*").count(20));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        expect("scan", found, wanted);
        expect("exists", r.exists("key:1", "key:2", "none"), 2L);
        expect("del", r.del("key:1", "none"), 1L);
        expect("rename", r.rename("key:3", "moved"), "OK");
        expect("type", r.type("moved"), "string");
    }

    static void expiry(Jedis r) throws InterruptedException {
        r.psetex("e", 40, "x");
        Thread.sleep(60);
        expect("expired", r.get("e"), null);
        r.setex("e", 100, "x");
        expect("ttl", r.ttl("e") >= 98 && r.ttl("e") <= 100, true);
        expect("persist", r.persist("e"), 1L);
        expect("expireAt", r.expireAt("e", 1), 1L);
        expect("gone", r.exists("e"), false);
    }

    static void pipelines(Jedis r) {
        Pipeline pipe = r.pipelined();
        for (int i = 0; i < 1000; i++) {
            pipe.set("p" + i, Integer.toString(i));
        }
        pipe.set("text", "x");
        Response<Long> failing = pipe.incr("text");
        Response<String> last = pipe.get("p999");
        pipe.sync();
        expectError("pipeline", failing::get, "not an integer");
        expect("pipeline end", last.get(), "999");
    }

    static void transactions(Jedis r, Jedis other) {
        Transaction multi = r.multi();
        multi.set("t", "1");
        multi.incr("t");
        expect("multi", multi.exec(), List.of("OK", 2L));
        r.watch("t");
        other.set("t", "changed");
        Transaction lost = r.multi();
        lost.set("t", "lost");
        expect("watch", lost.exec(), null);
        expect("after watch", r.get("t"), "changed");
    }

    static void publish(Jedis r, RedisProtocol protocol) throws InterruptedException {
        CountDownLatch listening = new CountDownLatch(2);
        CountDownLatch heard = new CountDownLatch(2);
        AtomicReference<String> message = new AtomicReference<>();
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                listening.countDown();
                try {
                    psubscribe("n*");
                } catch (RuntimeException error) {
                    expect("psubscribe", error, null);
                }
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                listening.countDown();
            }

            @Override
            public void onMessage(String channel, String text) {
                message.set(channel + " " + text);
                heard.countDown();
            }

            @Override
            public void onPMessage(String pattern, String channel, String text) {
                heard.countDown();
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis own = connect(protocol)) {
                own.subscribe(listener, "news");
            }
        });
        thread.start();
        expect("subscribed", listening.await(5, TimeUnit.SECONDS), true);
        expect("publish", r.publish("news", "hello"), 2L);
        expect("heard", heard.await(5, TimeUnit.SECONDS), true);
        expect("message", message.get(), "news hello");
        listener.unsubscribe();
        listener.punsubscribe();
        thread.join(5000);
        expect("unsubscribed", thread.isAlive(), false);
    }

    static void bytesOfAllKinds(Jedis r) {
        byte[] every = new byte[256];
        for (int i = 0; i < 256; i++) {
            every[i] = (byte) i;
        }
        r.set(every, every);
        expect("binary", r.get(every), every);
        byte[] big = new byte[8 << 20];
        new Random(1).nextBytes(big);
        r.set("big".getBytes(), big);
        expect("8 MiB", Arrays.equals(r.get("big".getBytes()), big), true);
    }

    static void parallel(Jedis r, RedisProtocol protocol) throws InterruptedException {
        r.set("shared", "0");
        Thread[] threads = new Thread[10];
        for (int t = 0; t < threads.length; t++) {
            threads[t] = new Thread(() -> {
                try (Jedis own = connect(protocol)) {
                    for (int i = 0; i < 200; i++) {
                        own.incr("shared");
                    }
                }
            });
            threads[t].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        expect("parallel incr", r.get("shared"), "2000");
    }

    static void reconnect(Jedis other, RedisProtocol protocol) {
        try (Jedis cut = connect(protocol)) {
            long id = cut.clientId();
            expect("client kill", other.clientKill(redis.clients.jedis.params.ClientKillParams.clientKillParams().id(Long.toString(id))), 1L);
            try {
                cut.get("again");
                expect("the cut", "unnoticed", "an exception");
            } catch (JedisConnectionException cutOff) {
                // Jedis leaves connecting again to its pool, or to its caller.
            }
        }
        try (Jedis again = connect(protocol)) {
            expect("after the kill", again.set("again", "yes"), "OK");
            expect("after the kill", again.get("again"), "yes");
        }
    }

    public static void main(String[] args) throws Exception {
        address = new HostAndPort(args[0], Integer.parseInt(args[1]));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            if (!protocol.name().matches("RESP[23]")) {
                continue;
            }
            try (Jedis r = connect(protocol); Jedis other = connect(protocol)) {
                expect("ping", r.ping(), "PONG");
                r.flushDB();
                strings(r);
                keys(r);
                expiry(r);
                pipelines(r);
                transactions(r, other);
                if (!String.valueOf(System.getenv("CHECK_WITHOUT")).contains("pubsub")) {
                    publish(r, protocol);
                }
                bytesOfAllKinds(r);
                parallel(r, protocol);
                reconnect(other, protocol);
                r.flushDB();
            }
        }
    }
}
