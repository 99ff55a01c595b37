"""Celery on kombu's transport over a store: a worker with a pool of threads in this process, and
one in a process that is killed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

celery = pytest.importorskip("celery")

from celery.contrib.testing.worker import start_worker  # noqa: E402

import pyqstore.compat.kombu  # noqa: E402, F401 - registers the transport

SECONDS = 120
TASKS = """
import os, time
import celery
import pyqstore.compat.kombu

app = celery.Celery("tasks", broker="pyqstore:///" + os.environ["STORE"], backend="rpc://")
app.conf.update(
    task_acks_late=True, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True
)

@app.task(bind=True, name="once")
def once(self):
    if not self.request.delivery_info["redelivered"]:
        open(os.environ["STORE"] + ".began", "w").close()
        time.sleep(600)
    return "again"

@app.task(name="pid")
def pid():
    return os.getpid()
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = celery.Celery(
        "embedded",
        broker=f"pyqstore:///{tmp_path_factory.mktemp('celery')}/store",
        backend="cache+memory://",  # the one in files is read while it writes
        set_as_current=False,
    )
    made.conf.update(
        broker_connection_retry_on_startup=True,
        result_extended=True,
        worker_hijack_root_logger=False,
    )

    @made.task
    def add(x: int, y: int) -> int:
        return x + y

    @made.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @made.task(bind=True, max_retries=3)
    def retry(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0.2)  # when this attempt's result has been noted
        return int(self.request.retries)

    @made.task
    def fail(text: str) -> None:
        raise ValueError(text)

    made.finalize()
    return made


@pytest.fixture(scope="module")
def worker(app: Any) -> Iterator[Any]:
    level = logging.root.level  # which Celery sets, for all that this process logs
    with start_worker(
        app,
        pool="threads",
        concurrency=2,
        perform_ping_check=False,
        loglevel="ERROR",
        shutdown_timeout=SECONDS,
    ) as started:
        logging.root.setLevel(level)
        yield started


def task(app: Any, name: str) -> Any:
    (found,) = [one for one in app.tasks.values() if one.name.endswith(f".{name}")]
    return found


@pytest.mark.usefixtures("worker")
def test_tasks_return_fail_are_retried_and_wait(app: Any) -> None:
    add = task(app, "add")
    results = [add.delay(number, number) for number in range(10)]
    assert [result.get(timeout=SECONDS) for result in results] == [2 * n for n in range(10)]
    assert task(app, "retry").delay().get(timeout=SECONDS) == 2
    assert add.apply_async((1, 2), countdown=0.5).get(timeout=SECONDS) == 3
    with pytest.raises(ValueError, match="no"):
        task(app, "fail").delay("no").get(timeout=SECONDS)
    assert len(app.control.ping(timeout=SECONDS, limit=1)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_tasks_follow_each_other_in_chains_groups_and_chords(app: Any) -> None:
    add, total = task(app, "add"), task(app, "total")
    assert celery.chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=SECONDS) == 10
    assert celery.group(add.s(n, 1) for n in range(4))().get(timeout=SECONDS) == [1, 2, 3, 4]
    assert celery.chord([add.s(1, 1), add.s(2, 2)], total.s())().get(timeout=SECONDS) == 6


def wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    while not file.exists():
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_task_that_lost_its_worker_is_done_by_the_next(tmp_path: Path, pool: str) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    store = str(tmp_path / "store")

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "tasks", "worker"),
                *("-P", pool, "-c", "1", "-l", "error"),
            ],
            cwd=tmp_path,
            env=os.environ | {"STORE": store, "PYTHONPATH": str(tmp_path)},
            start_new_session=True,
        )

    sender = celery.Celery(
        "sender", broker=f"pyqstore:///{store}", backend="rpc://", set_as_current=False
    )
    first = second = None
    try:
        first = begin()
        wait_for(Path(store) / "compat.json", first)  # so it is the owner
        done_by = sender.send_task("pid").get(timeout=SECONDS)  # the answer's way as well
        assert (done_by == first.pid) == (pool == "threads")
        result = sender.send_task("once")
        wait_for(Path(f"{store}.began"), first)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(SECONDS)
        second = begin()
        assert result.get(timeout=SECONDS) == "again"
    finally:
        sender.close()
        for process in (first, second):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(SECONDS)
