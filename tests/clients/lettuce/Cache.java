// Lettuce's client-side cache against HOST PORT; exits non-zero at the first wrong answer. Empties the server.

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Cache {
    static final Logger QUIET = Logger.getLogger("io.lettuce");
    static RedisCommands<String, String> plain;
    static CacheFrontend<String, String> cached;

    static void expect(String what, Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            System.err.println("lettuce cache: " + what + ": got " + got + ", wanted " + wanted);
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
        QUIET.setLevel(Level.OFF);
        RedisURI where =
            RedisURI.builder().withHost(args[0]).withPort(Integer.parseInt(args[1])).withDatabase(9).build();
        RedisClient client = RedisClient.create(where);
        plain = client.connect().sync();
        StatefulRedisConnection<String, String> tracking = client.connect();
        BlockingQueue<Boolean> invalidations = new LinkedBlockingQueue<>();
        tracking.addListener(message -> {
            if (message.getType().equals("invalidate")) invalidations.add(message.getContent().get(1) == null);
        });
        Map<String, String> entries = new ConcurrentHashMap<>();
        cached = ClientSideCaching.enable(
            CacheAccessor.forMap(entries), tracking, TrackingArgs.Builder.enabled());

        plain.flushall();
        plain.set("k", "one");
        expect("first read", cached.get("k"), "one");
        long before = asked();
        for (int i = 0; i < 100; i++) expect("hit", cached.get("k"), "one");
        expect("what hits asked the server", asked() - before, 0L);

        plain.set("k", "two");
        eventually("after a change elsewhere", "two");
        plain.set("k", "brief", SetArgs.Builder.px(5000));
        eventually("before expiry", "brief");
        eventually("after expiry", null);
        plain.set("k", "three");
        eventually("a key that was absent", "three");
        // Lettuce 7.7's cache cannot read the message without keys that FLUSHALL sends, so it is looked for itself.
        invalidations.clear();
        plain.flushall();
        expect("the message of FLUSHALL", invalidations.poll(5, TimeUnit.SECONDS), true);
        client.shutdown();
    }
}
