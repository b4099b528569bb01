"""rq against HOST PORT: jobs, a failure with a retry, a dependency, a schedule; exits non-zero at a wrong answer."""

import sys
import time

import redis
from rq import Queue, Retry, SimpleWorker


def add(a, b):
    return a + b


def flaky(key):
    connection = redis.Redis(sys.argv[1], int(sys.argv[2]), db=9)
    if connection.incr(key) < 3:
        raise ValueError("not yet")
    return "at last"


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"rq: {what}: got {got!r}, wanted {wanted!r}")


def main():
    sys.modules["check"] = sys.modules["__main__"]
    for function in (add, flaky):
        function.__module__ = "check"
    connection = redis.Redis(sys.argv[1], int(sys.argv[2]), db=9)
    connection.flushdb()
    queue = Queue("darter", connection=connection)
    jobs = [queue.enqueue(add, n, n) for n in range(50)]
    after = queue.enqueue(add, 1, 2, depends_on=jobs[-1])
    tried = queue.enqueue(flaky, "tries", retry=Retry(max=5))
    from datetime import timedelta

    late = queue.enqueue_in(timedelta(milliseconds=300), add, 4, 5)
    began = time.time()
    while time.time() - began < 100:
        SimpleWorker([queue], connection=connection).work(burst=True, with_scheduler=False, logging_level="ERROR")
        for job_id in queue.scheduled_job_registry.get_jobs_to_schedule(int(time.time()) + 1):
            queue.scheduled_job_registry.remove(job_id)
            queue._enqueue_job(queue.fetch_job(job_id))
        if late.is_finished and tried.is_finished:
            break
        time.sleep(0.05)
    expect("results", [job.return_value() for job in jobs], [2 * n for n in range(50)])
    expect("a job behind another", after.return_value(), 3)
    expect("a job that was tried again", (tried.return_value(), connection.get("tries")), ("at last", b"3"))
    expect("a job for later", late.return_value(), 9)
    expect("left", (queue.count, len(queue.failed_job_registry)), (0, 0))
    connection.flushdb()


main()
