"""What programs do with Celery: a worker of two processes, and tasks that return, fail, are tried
again, wait, follow each other, and lose their process.

    python celery_tasks.py PORT

starts the worker, sends the tasks, and says what became of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from celery import Celery, chain, group
from kombu import Exchange, Queue

PATIENCE_S = 120
BROKER = "CELERY_TASKS_BROKER"

app = Celery("celery_tasks", broker=os.environ.get(BROKER), backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    result_extended=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_queues=[
        Queue("celery", Exchange("celery"), routing_key="celery"),
        Queue("urgent", Exchange("urgent", type="topic"), routing_key="urgent.#", max_priority=9),
    ],
    task_routes={"celery_tasks.route": {"queue": "urgent", "routing_key": "urgent.now"}},
)


@app.task
def add(x, y):
    return x + y


@app.task
def fail(text):
    raise ValueError(text)


@app.task(bind=True, max_retries=3)
def retry(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(bind=True)
def route(self):
    info = self.request.delivery_info
    return [info["exchange"], info["routing_key"], info["priority"]]


@app.task(bind=True)
def lose_process(self):
    if not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return "again"


def say(*what):
    print(*what, flush=True)


def send():
    results = [add.delay(i, i) for i in range(40)]
    say("add", [result.get(timeout=PATIENCE_S) for result in results])
    say("ping", len(app.control.ping(timeout=PATIENCE_S, limit=1)))  # the worker is there now
    say("large", len(add.delay("x" * 500_000, "y" * 500_000).get(timeout=PATIENCE_S)))
    try:
        fail.delay("no").get(timeout=PATIENCE_S)
    except ValueError as error:
        say("fail", error)
    say("retry", retry.delay().get(timeout=PATIENCE_S))
    say("countdown", add.apply_async((1, 2), countdown=1).get(timeout=PATIENCE_S))
    say("route", route.apply_async(priority=5).get(timeout=PATIENCE_S))
    chained = chain(add.s(1, 2), add.s(3), add.s(4))()
    say("chain", chained.get(timeout=PATIENCE_S))
    grouped = group(add.s(i, 1) for i in range(10))()
    say("group", grouped.get(timeout=PATIENCE_S))
    say("lose process", lose_process.delay().get(timeout=PATIENCE_S))


def left():
    """What is in the queues when the worker has ended."""
    with app.connection_for_read() as connection, connection.channel() as channel:
        for queue in ("celery", "urgent"):
            say(queue, channel.queue_declare(queue, passive=True).message_count)
            channel.queue_delete(queue)


def main(port):
    os.environ[BROKER] = app.conf.broker_url = f"pyamqp://guest:guest@127.0.0.1:{port}//"
    command = ["-m", "celery", "-A", "celery_tasks", "worker", "-c", "2", "-l", "warning"]
    log = Path("worker.log")
    with log.open("w") as output:
        worker = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            send()
            worker.terminate()
            say("worker", worker.wait(PATIENCE_S))
        except BaseException:
            print(log.read_text(), file=sys.stderr)
            raise
        finally:
            worker.kill()
            worker.wait()
    left()


if __name__ == "__main__":
    import celery_tasks  # as the worker knows it: not __main__

    celery_tasks.main(sys.argv[1])
