// Redisson's locks against HOST PORT; exits non-zero at the first wrong answer.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Check {
    static int counter;

    static void expect(String what, Object got, Object wanted) {
        if (!wanted.equals(got)) {
            System.err.println("redisson: " + what + ": got " + got + ", wanted " + wanted);
            System.exit(1);
        }
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + args[0] + ":" + args[1]).setDatabase(9);
        RedissonClient redisson = Redisson.create(config);
        redisson.getKeys().flushdb();
        ExecutorService threads = Executors.newFixedThreadPool(12);

        contend(redisson.getLock("lock"), threads);
        contend(redisson.getFairLock("fair"), threads);
        contend(redisson.getMultiLock(redisson.getLock("one"), redisson.getLock("two")), threads);

        RLock lock = redisson.getLock("again");
        lock.lock(10, TimeUnit.SECONDS);
        lock.lock();
        expect("held twice", lock.getHoldCount(), 2);
        expect("taken by another", threads.submit(() -> lock.tryLock()).get(), false);
        lock.unlock();
        lock.unlock();
        expect("let go", lock.isLocked(), false);
        RLock brief = redisson.getLock("brief");
        brief.lock(200, TimeUnit.MILLISECONDS);
        expect("taken when it has expired", threads.submit(() -> brief.tryLock(5, TimeUnit.SECONDS)).get(), true);

        RReadWriteLock both = redisson.getReadWriteLock("both");
        both.readLock().lock();
        expect("a second reader", threads.submit(() -> both.readLock().tryLock()).get(), true);
        expect("a writer", threads.submit(() -> both.writeLock().tryLock()).get(), false);

        RSemaphore semaphore = redisson.getSemaphore("semaphore");
        expect("permits", semaphore.trySetPermits(2), true);
        semaphore.acquire();
        semaphore.acquire();
        expect("no more", semaphore.tryAcquire(), false);
        Future<?> waiting = threads.submit(() -> { semaphore.acquire(); return null; });
        semaphore.release();
        waiting.get(20, TimeUnit.SECONDS);

        RCountDownLatch latch = redisson.getCountDownLatch("latch");
        latch.trySetCount(3);
        Future<Boolean> opened = threads.submit(() -> latch.await(20, TimeUnit.SECONDS));
        for (int n = 0; n < 3; n++) latch.countDown();
        expect("opened", opened.get(), true);

        threads.shutdownNow();
        redisson.getKeys().flushdb();
        redisson.shutdown();
        System.exit(0);
    }

    static void contend(RLock lock, ExecutorService threads) throws Exception {
        counter = 0;
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 12; n++) {
            all.add(threads.submit(() -> {
                for (int round = 0; round < 10; round++) {
                    lock.lock(30, TimeUnit.SECONDS);
                    try {
                        int seen = counter;
                        Thread.yield();
                        counter = seen + 1;
                    } finally {
                        lock.unlock();
                    }
                }
                return null;
            }));
        }
        for (Future<?> one : all) one.get(60, TimeUnit.SECONDS);
        expect("increments under a lock", counter, 120);
    }
}
