// jedis' cluster client against HOST PORT, a server with --cluster_mode=emulated; exits non-zero at the first wrong answer.

import java.util.List;
import java.util.Objects;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;

public class Cluster {
    static void expect(String what, Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            System.err.println("jedis cluster: " + what + ": got " + got + ", wanted " + wanted);
            System.exit(1);
        }
    }

    public static void main(String[] args) {
        try (JedisCluster r = new JedisCluster(new HostAndPort(args[0], Integer.parseInt(args[1])))) {
            for (int i = 0; i < 200; i++) {
                expect("set", r.set("key:" + i, "v" + i), "OK");
            }
            for (int i = 0; i < 200; i++) {
                expect("get", r.get("key:" + i), "v" + i);
            }
            expect("nodes", r.getClusterNodes().size(), 1);
            expect("mset of a slot", r.mset("{t}a", "1", "{t}b", "2"), "OK");
            expect("mget of a slot", r.mget("{t}a", "{t}b"), List.of("1", "2"));
            expect("incr", r.incr("{t}a"), 2L);
            expect("eval", r.eval("return redis.call('get', KEYS[1])", 1, "{t}a"), "2");
            expect("del", r.del("{t}a", "{t}b"), 2L);
        }
    }
}
