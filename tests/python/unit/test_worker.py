"""Workers of a queue: retries, dead letters, what ends one and what it leaves."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

import pyqstore


@pytest.fixture
def queue(store: pyqstore.Store) -> pyqstore.Queue:
    return store.queue("jobs")


def test_worker_handles_each_message_and_ends_when_told(queue: pyqstore.Queue) -> None:
    queue.put_many(str(number) for number in range(100))
    stop, seen = threading.Event(), []

    def handle(message: pyqstore.Message) -> None:
        seen.append(message.body)
        if len(seen) == 100:
            stop.set()

    queue.work(handle, threads=4, stop=stop)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(100)]
    assert len(queue) == 0


def test_worker_retries_and_then_leaves_a_dead_letter(
    store: pyqstore.Store, queue: pyqstore.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(b"poison", headers={"of": "mine"}, expires=3600)
    queue.put(b"good")
    tries = []

    def handle(message: pyqstore.Message) -> None:
        if message.body == b"poison":
            tries.append(message.delivery_count)
            raise KeyError("no such order")

    with caplog.at_level(logging.WARNING, "pyqstore.work"):
        stop = stop_when_done(store)
        queue.work(handle, threads=2, retries=2, backoff=0.05, stop=stop)
    assert tries == [0, 1, 2]
    assert len(queue) == 0
    with store.queue("jobs.dead").get(timeout=0) as message:
        assert message.body == b"poison"
        headers = message.properties.headers
        assert headers["of"] == "mine"
        assert headers["x-attempts"] == 3
        assert headers["x-queue"] == "jobs"
        assert "no such order" in headers["x-error"]
        assert message.properties.expiration is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "ERROR"]


def test_worker_backs_off_as_it_is_told(queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    stop, asked, times = threading.Event(), [], []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 0.1

    def handle(message: pyqstore.Message) -> None:
        times.append(time.monotonic())
        if len(times) == 3:
            stop.set()
        else:
            raise ValueError

    queue.work(handle, backoff=backoff, stop=stop)
    assert asked == [1, 2]
    assert all(later - sooner >= 0.09 for sooner, later in pairwise(times))


def test_worker_leaves_alone_what_its_function_settled(queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    stop = threading.Event()

    def handle(message: pyqstore.Message) -> None:
        message.ack()
        stop.set()
        raise ValueError

    queue.work(handle, stop=stop)
    assert len(queue) == 0


def test_worker_ends_with_what_the_store_raises(
    store: pyqstore.Store, queue: pyqstore.Queue
) -> None:
    threading.Timer(0.1, queue.delete).start()
    with pytest.raises(pyqstore.NotFound):
        queue.work(print, threads=2)


def test_worker_gives_back_at_an_exit(queue: pyqstore.Queue) -> None:
    queue.put(b"1")

    def handle(message: pyqstore.Message) -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        queue.work(handle)
    assert len(queue) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"threads": 0}, ValueError),
        ({"retries": -1}, ValueError),
        ({"backoff": -1}, ValueError),
        ({"dead": "jobs"}, ValueError),
        ({"function": 5}, TypeError),
    ],
)
def test_worker_refuses_what_means_nothing(
    queue: pyqstore.Queue, wrong: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        queue.work(**{"function": print, **wrong})  # type: ignore[arg-type]


WORK = """
import os, signal, sys, threading
import pyqstore
ends = threading.Event()
def handle(message):
    print(message.body.decode(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    ends.wait(60)
    print("done", flush=True)
signal.signal(signal.SIGTERM, lambda *_: ends.set())  # called after the worker's
with pyqstore.open(sys.argv[1]) as store:
    store.queue("a").work(handle, threads=1)
    print("ended", flush=True)
"""


def test_worker_ends_on_sigterm_after_what_is_under_way(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with pyqstore.open(path) as store:
        store.queue("a").put_many(["1", "2", "3"])
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, path], stdout=subprocess.PIPE, text=True
    )
    assert process.communicate()[0] == "1\ndone\nended\n"
    assert process.returncode == 0
    with pyqstore.open(path) as store:
        assert [message.body for message in store.queue("a").peek(9)] == [b"2", b"3"]


def test_worker_calls_the_handler_of_sigterm_that_was_there(queue: pyqstore.Queue) -> None:
    called = []
    before = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    queue.put(b"1")
    try:
        queue.work(lambda message: os.kill(os.getpid(), signal.SIGTERM), threads=1)
        assert called == [1]
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, before)
    finally:
        signal.signal(signal.SIGTERM, before)


def end_beside_the_main_thread(*_: object) -> None:
    """Have SIGTERM where it wakes nobody."""
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def test_worker_ends_on_a_sigterm_that_another_thread_has(queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    queue.work(end_beside_the_main_thread, threads=1)
    assert len(queue) == 0


def stop_when_done(store: pyqstore.Store) -> threading.Event:
    """Set when queue "jobs" has nothing any more, or after a while."""
    stop = threading.Event()

    def look() -> None:
        for _ in range(400):
            time.sleep(0.05)
            jobs = store.queue_status("jobs")
            if jobs.messages_ready + jobs.messages_unacked + jobs.messages_delayed == 0:
                break
        stop.set()

    threading.Thread(target=look).start()
    return stop


def raise_it(error: BaseException) -> None:
    raise error


def test_dead_letter_does_not_go_where_its_cc_leads(store: pyqstore.Store) -> None:
    queue, tries = store.queue("jobs"), []
    with store.channel() as channel:
        properties = pyqstore.Properties(headers={"CC": ["jobs"], "of": "mine"}, delivery_mode=2)
        channel.basic_publish("", "nowhere", b"1", properties)

    def handle(message: pyqstore.Message) -> None:
        tries.append(message.delivery_count)
        raise_it(KeyError() if len(tries) < 9 else SystemExit())  # not for ever

    queue.work(handle, retries=1, backoff=0, stop=stop_when_done(store))
    assert tries == [0, 1]
    with store.queue("jobs.dead").get(timeout=0) as message:
        assert message.properties.headers["of"] == "mine"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [(Unspeakable(), "Unspeakable: ?"), (ValueError("\ud800"), "ValueError: \\ud800")],
)
def test_error_that_no_header_can_hold_ends_no_worker(
    store: pyqstore.Store, queue: pyqstore.Queue, error: Exception, said: str
) -> None:
    queue.put(b"1")
    queue.work(lambda message: raise_it(error), retries=0, stop=stop_when_done(store))
    with store.queue("jobs.dead").get(timeout=0) as message:
        assert message.properties.headers["x-error"] == said


def test_message_tried_as_often_as_the_delivery_limit_is_not_lost(store: pyqstore.Store) -> None:
    queue, tries = store.queue("jobs", delivery_limit=2), []
    queue.put(b"1")

    def handle(message: pyqstore.Message) -> None:
        tries.append(message.delivery_count)
        raise KeyError

    queue.work(handle, retries=5, backoff=0, stop=stop_when_done(store))
    assert tries == [0, 1, 2]
    assert len(store.queue("jobs.dead")) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"threads": 0}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"stop": 5}, TypeError),
        ({"dead": ""}, ValueError),
        ({"dead": 5}, TypeError),
    ],
)
def test_worker_that_does_not_begin_makes_no_queue(
    store: pyqstore.Store, queue: pyqstore.Queue, wrong: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        queue.work(print, **wrong)  # type: ignore[arg-type]
    assert store.queues() == ["jobs"]


def test_ctrl_c_waits_for_what_is_under_way(store: pyqstore.Store, queue: pyqstore.Queue) -> None:
    queue.put(b"1")
    done = []

    def handle(message: pyqstore.Message) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        done.append(message.body)

    with pytest.raises(KeyboardInterrupt):
        queue.work(handle)
    assert done == [b"1"]
    assert store.queue_status("jobs").messages_unacked == len(queue) == 0
