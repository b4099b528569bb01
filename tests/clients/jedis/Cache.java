// Jedis' client-side cache against HOST PORT; exits non-zero at the first wrong answer. Empties the server.

import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.SetParams;

public class Cache {
    static Jedis plain;
    static RedisClient cached;

    static void expect(String what, Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            System.err.println("jedis cache: " + what + ": got " + got + ", wanted " + wanted);
            System.exit(1);
        }
    }

    static long asked() {
        Matcher found = Pattern.compile("cmdstat_get:calls=(\\d+)").matcher(plain.info("commandstats"));
        return found.find() ? Long.parseLong(found.group(1)) : 0;
    }

    // The message travels by itself; until it is here, the old value may be seen.
    static void eventually(String what, String wanted) throws InterruptedException {
        long until = System.nanoTime() + 60_000_000_000L;
        while (!Objects.equals(cached.get("k"), wanted) && System.nanoTime() < until) Thread.sleep(10);
        expect(what, cached.get("k"), wanted);
    }

    public static void main(String[] args) throws Exception {
        HostAndPort where = new HostAndPort(args[0], Integer.parseInt(args[1]));
        DefaultJedisClientConfig config =
            DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).database(9).build();
        plain = new Jedis(where, config);
        cached = RedisClient.builder().hostAndPort(where).clientConfig(config)
            .cacheConfig(CacheConfig.builder().maxSize(1000).build()).build();

        plain.flushAll();
        plain.set("k", "one");
        expect("first read", cached.get("k"), "one");
        long before = asked();
        for (int i = 0; i < 100; i++) expect("hit", cached.get("k"), "one");
        expect("what hits asked the server", asked() - before, 0L);

        plain.set("k", "two");
        eventually("after a change elsewhere", "two");
        plain.set("k", "brief", SetParams.setParams().px(5000));
        eventually("before expiry", "brief");
        eventually("after expiry", null);
        plain.set("k", "three");
        eventually("a key that was absent", "three");
        plain.flushAll();
        eventually("after FLUSHALL", null);
        cached.close();
        plain.close();
    }
}
