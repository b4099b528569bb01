// Lettuce's cluster client at work while the cluster changes: HOST PORT exact|any, as changes.py says.

import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.IntStream;

public class Work {
    static final Logger QUIET = Logger.getLogger("io.lettuce");
    static final int WORKERS = 4, KEYS = 50;
    static final long PATIENCE_NS = 60_000_000_000L;
    static final AtomicInteger answers = new AtomicInteger();
    static volatile boolean isOver;
    static RedisAdvancedClusterCommands<String, String> r;

    static void expect(String what, Object got, Object wanted) {
        if (!got.equals(wanted)) throw new AssertionError(what + ": got " + got + ", wanted " + wanted);
    }

    static void told() {
        if (answers.incrementAndGet() % 100 == 0) System.out.println("answered");
    }

    // Adds to a list in order, and counts.
    static void exact(int who) {
        long[] counts = new long[KEYS];
        for (int n = 0; !isOver; n++) {
            String tag = "{" + who + "-" + n % KEYS + "}";
            long wanted = ++counts[n % KEYS];
            if (n % 4 == 0) {
                String text = "redis.call('rpush', KEYS[2], ARGV[1]) return redis.call('incr', KEYS[1])";
                Long got = r.eval(text, ScriptOutputType.INTEGER, new String[] {tag + "n", tag + "l"}, "" + wanted);
                expect(tag, got, wanted);
            } else {
                expect(tag, r.incr(tag + "n"), wanted);
                expect(tag, r.rpush(tag + "l", "" + wanted), wanted);
            }
            told();
        }
        for (int at = 0; at < KEYS; at++) {
            List<String> wanted = IntStream.rangeClosed(1, (int) counts[at]).mapToObj(i -> "" + i).toList();
            expect("list", r.lrange("{" + who + "-" + at + "}l", 0, -1), wanted);
        }
    }

    // Adds numbers to sets; an error leaves open whether that took place.
    static void any(int who) throws InterruptedException {
        List<List<String>> answered = new ArrayList<>();
        for (int at = 0; at < KEYS; at++) answered.add(new ArrayList<>());
        long last = System.nanoTime();
        for (int n = 0; !isOver; n++) {
            try {
                r.sadd("{" + who + "-" + n % KEYS + "}s", "" + n);
                answered.get(n % KEYS).add("" + n);
                told();
                last = System.nanoTime();
            } catch (RedisException error) {
                if (System.nanoTime() - last > PATIENCE_NS) throw error;
                Thread.sleep(20);
            }
        }
        for (int at = 0; at < KEYS; at++) {
            Set<String> found = r.smembers("{" + who + "-" + at + "}s");
            expect("lost", answered.get(at).stream().filter(number -> !found.contains(number)).toList(), List.of());
        }
    }

    public static void main(String[] args) throws Exception {
        QUIET.setLevel(Level.OFF);
        boolean isExact = args[2].equals("exact");
        RedisURI where = RedisURI.create(args[0], Integer.parseInt(args[1]));
        where.setTimeout(Duration.ofSeconds(5));
        RedisClusterClient client = RedisClusterClient.create(where);
        // Its users are told to set these: without them it looks for a new master only when it is asked to.
        var refresh = ClusterTopologyRefreshOptions.builder()
            .enableAllAdaptiveRefreshTriggers()
            .adaptiveRefreshTriggersTimeout(Duration.ofMillis(500))
            .enablePeriodicRefresh(Duration.ofSeconds(1))
            .build();
        client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
        r = client.connect().sync();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < WORKERS; at++) {
            int who = at;
            Thread thread = new Thread(() -> {
                try {
                    if (isExact) exact(who); else any(who);
                } catch (Throwable error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) {}
        isOver = true;
        for (Thread thread : threads) thread.join();
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }
}
