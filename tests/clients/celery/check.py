"""celery against HOST PORT: tasks, a group, a chord, a retry, a task for later; exits non-zero at a wrong answer."""

import os
import subprocess
import sys

HOST, PORT = sys.argv[1], sys.argv[2]
os.environ["BROKER"] = f"redis://{HOST}:{PORT}/9"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis
from celery import chain, chord, group

import tasks


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"celery: {what}: got {got!r}, wanted {wanted!r}")


def main():
    redis.Redis(HOST, int(PORT), db=9).flushdb()
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool=threads", "--concurrency=8"]
    worker = subprocess.Popen(
        command + ["--loglevel=ERROR", "--without-mingle"],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env={**os.environ, "C_FORCE_ROOT": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        many = group(tasks.add.s(n, n) for n in range(100))()
        expect("a group", many.get(timeout=60), [2 * n for n in range(100)])
        expect("a chord", chord((tasks.add.s(n, 1) for n in range(20)), tasks.total.s())().get(timeout=60), 210)
        expect("a chain", chain(tasks.add.s(1, 2), tasks.add.s(10))().get(timeout=60), 13)
        expect("a task that was tried again", tasks.flaky.delay().get(timeout=60), 2)
        expect("a task for later", tasks.add.apply_async((4, 5), countdown=0.5).get(timeout=60), 9)
    finally:
        worker.terminate()
        worker.wait(30)
    redis.Redis(HOST, int(PORT), db=9).flushdb()


main()
