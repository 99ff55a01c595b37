"""Paging on real files: memory stays within the budget, space on the disk comes back, nothing is
lost or out of order."""

import contextlib
import math
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, wait_until

TINY: dict[str, Any] = {
    "segment_entries": 256,
    "journal_file_bytes": "64KiB",
    "message_file_bytes": "256KiB",
    "checkpoint_interval": None,
    "sync": "none",
}
BUDGET = 1 << 20


def body(number: int, size: int) -> bytes:
    return (b"%d" % number).ljust(size, b".")


def number_of(text: bytes) -> int:
    return int(text.rstrip(b"."))


def publish(store: pyqstore.Store, queue: str, numbers: range, size: int) -> int:
    """Publish the numbers one by one; returns the most bytes in memory meanwhile."""
    most = 0
    with store.channel() as channel:
        channel.queue_declare(queue, durable=True)
        channel.confirm_select()
        for number in numbers:
            channel.basic_publish("", queue, body(number, size), PERSISTENT)
            if number % 64 == 0:
                most = max(most, store.stats()["ram_bytes"])
        assert channel.wait_for_confirms(60)
    return most


def drain(store: pyqstore.Store, queue: str, most: int = 1000) -> list[int]:
    numbers: list[int] = []
    with store.channel() as channel:
        while (batch := channel.get_batch(queue, most)).num_rows:
            numbers += [number_of(one) for one in batch["body"].to_pylist()]
            channel.basic_ack(multiple=True)
    return numbers


def disk_bytes(path: Path, *folders: str) -> int:
    total = 0
    for folder in folders:
        for file in (path / folder).iterdir():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                total += file.stat().st_blocks * 512
    return total


@pytest.mark.parametrize(("size", "count"), [(100, 60_000), (2000, 10_000), (9000, 4000)])
def test_memory_stays_within_the_budget(path: Path, size: int, count: int) -> None:
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store:
        most = publish(store, "q", range(count), size)
        assert most <= BUDGET + 64 * size
        status = store.queue_status("q")
        assert status["messages_ready"] == count
        assert status["beta"] + status["gamma"] + status["delta"] > count // 2
        assert drain(store, "q") == [*range(count)]
        stats = store.stats()
        if size < 4096:  # of larger ones the body alone is on the disk, and what is left fits
            assert status["delta"] > count // 2
            assert stats["messages_paged_out"] > count // 2
            assert stats["messages_paged_in"] > count // 2


def test_memory_stays_within_the_budget_with_batches(path: Path) -> None:
    rows, size = 2000, 200
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        for first in range(0, 60_000, rows):
            bodies = pa.array([body(first + row, size) for row in range(rows)], pa.binary())
            channel.publish_batch(pa.table({"body": bodies}), routing_key="q").wait(60)
            assert store.stats()["ram_bytes"] <= BUDGET + 2 * rows * (size + 100)
        assert drain(store, "q") == [*range(60_000)]


def test_unacknowledged_messages_leave_memory_as_well(path: Path) -> None:
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store, store.channel() as channel:
        publish(store, "q", range(10_000), 1000)
        for _ in range(10):
            assert channel.get_batch("q", 1000).num_rows == 1000
        wait_until(lambda: store.stats()["ram_bytes"] <= 2 * BUDGET)
        channel.basic_recover()
        assert drain(store, "q") == [*range(10_000)]


@pytest.mark.clock
def test_memory_is_within_the_budget_soon_after_a_large_batch_was_received(path: Path) -> None:
    """Not only when the pager, idle for a second, looks again: then five in a row would take that
    long nearly always.  A busy machine may be as slow, but not each time."""

    def seconds_for_five() -> float:
        waited = 0.0
        for _ in range(5):
            assert channel.get_batch("q", 10_000).num_rows == 10_000
            received = time.monotonic()
            wait_until(lambda: store.stats()["ram_bytes"] <= BUDGET)
            waited += time.monotonic() - received
            channel.basic_recover()
        return waited

    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store, store.channel() as channel:
        publish(store, "q", range(10_000), 1000)
        assert any(seconds_for_five() < 1 for _ in range(4))


def test_lazy_queue_keeps_nothing_in_memory(path: Path) -> None:
    with pyqstore.open(path, **TINY) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        publish_lazily = [body(number, 500) for number in range(5000)]
        for one in publish_lazily:
            channel.basic_publish("", "q", one, PERSISTENT)
        status = store.queue_status("q")
        assert status["q1"] == status["q2"] == status["q4"] == 0
        assert status["alpha"] == 0
        assert status["messages_ready"] == 5000
        store.sync()  # what waits for its commit is in memory as well
        wait_until(lambda: store.stats()["ram_bytes"] <= 500_000)
        assert drain(store, "q") == [*range(5000)]


def test_what_a_lazy_queue_shares_with_others_is_counted_once(path: Path) -> None:
    """Each look at what the lazy queue has begins a new place in memory for what comes next; the
    rest of the one before must not count for as long as another queue has something in it."""
    rounds, size = 300, 10  # too small to be shared through the message store
    with pyqstore.open(path, sync="none", checkpoint_interval=None) as store:
        with store.channel() as channel:
            channel.queue_declare("lazy", durable=True, arguments={"x-queue-mode": "lazy"})
            channel.queue_declare("other", durable=True)
            for queue in ("lazy", "other"):
                channel.queue_bind(queue, "amq.fanout")
            for number in range(rounds):
                channel.basic_publish("amq.fanout", "", body(number, size), PERSISTENT)
                wait_until(lambda: store.queue_status("lazy").ram_bytes == 0)
            assert store.stats().ram_bytes < 8 << 20
        for number in range(rounds):
            with store.queue("other").get(timeout=20) as message:
                assert number_of(message.body) == number


def test_transient_messages_of_a_lazy_queue_are_gone_after_a_restart(path: Path) -> None:
    with pyqstore.open(path, **TINY) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(100):
            channel.basic_publish("", "q", body(number, 500), PERSISTENT if number % 2 else None)
        assert store.queue_status("q")["alpha"] == 0
    with pyqstore.open(path, **TINY) as store:
        assert drain(store, "q") == [*range(1, 100, 2)]


def test_alphas_of_a_lazy_queue_stayed_when_its_consumer_had_gone(path: Path) -> None:
    with pyqstore.open(path, **TINY) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(2000):
            channel.basic_publish("", "q", body(number, 500), PERSISTENT)
        assert channel.get_batch("q", 10).num_rows == 10
        wait_until(lambda: store.queue_status("q")["alpha"] == 0)
        channel.basic_recover()
        assert drain(store, "q") == [*range(2000)]


def test_target_of_a_drained_queue_stayed_finite(path: Path) -> None:
    """A queue with a target has no more than that in memory once it rests, and one without has
    what there is."""
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store:
        publish(store, "q", range(20_000), 100)
        wait_until(lambda: (status := store.queue_status("q")).alpha <= status.target_ram_count)
        assert drain(store, "q") == [*range(20_000)]
        assert math.isinf(store.queue_status("q").target_ram_count)


def test_rates_are_there_from_the_first_message_on(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    assert store.queue_status("q").ingress_rate > 0
    channel.basic_get("q", auto_ack=True)
    assert store.queue_status("q").egress_rate > 0


def test_mode_is_switched_while_others_publish_and_consume(path: Path) -> None:
    count = 8000
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store:
        with store.channel() as channel:
            channel.queue_declare("q", durable=True)
        got: list[int] = []

        def consume() -> None:
            with store.channel() as channel:
                while len(got) < count:
                    batch = channel.get_batch("q", 100, timeout=0.2)
                    got.extend(number_of(one) for one in batch["body"].to_pylist())
                    channel.basic_ack(multiple=True)

        threads = [
            threading.Thread(target=publish, args=(store, "q", range(count), 300)),
            threading.Thread(target=consume),
        ]
        for thread in threads:
            thread.start()
        mode = 0
        while any(thread.is_alive() for thread in threads):
            mode += 1
            store.set_queue_mode("q", "lazy" if mode % 2 else "default")
            time.sleep(0.01)
        assert got == [*range(count)]


def test_checkpoints_while_others_publish_and_consume(path: Path) -> None:
    count, workers = 3000, 3
    with pyqstore.open(path, memory_budget=BUDGET, **TINY) as store:
        got: dict[str, list[int]] = {f"q{number}": [] for number in range(workers)}
        failed: list[BaseException] = []

        def guarded(work: Callable[..., object], *arguments: object) -> None:
            try:
                work(*arguments)
            except BaseException as error:
                failed.append(error)

        def consume(queue: str) -> None:
            with store.channel() as channel:
                channel.queue_declare(queue, durable=True)
                while len(got[queue]) < count:
                    batch = channel.get_batch(queue, 70, timeout=0.2)
                    got[queue] += [number_of(one) for one in batch["body"].to_pylist()]
                    channel.basic_ack(multiple=True)

        threads = [threading.Thread(target=guarded, args=(consume, queue)) for queue in got]
        threads += [
            threading.Thread(target=guarded, args=(publish, store, queue, range(count), size))
            for queue, size in zip(got, (50, 700, 5000), strict=True)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.checkpoint()
        assert not failed
        assert all(numbers == [*range(count)] for numbers in got.values())
        assert store.stats()["checkpoints"] > 1
    assert pyqstore.verify(path).damages == 0


@pytest.mark.parametrize("size", [200, 6000])
def test_space_comes_back(path: Path, size: int) -> None:
    count = 12_000_000 // size
    options = {**TINY, "checkpoint_bytes": "256KiB"}
    with pyqstore.open(path, memory_budget=BUDGET, **options) as store:
        publish(store, "q", range(count), size)
        wait_until(lambda: disk_bytes(path, "index", "messages") > 8_000_000)
        assert drain(store, "q") == [*range(count)]
        store.checkpoint()
        deadline = time.monotonic() + 60
        while disk_bytes(path, "index", "messages") > 2_000_000:
            assert time.monotonic() < deadline, disk_bytes(path, "index", "messages")
            time.sleep(0.05)
            store.checkpoint()
        assert disk_bytes(path, "journal") < 8_000_000
    assert disk_bytes(path, "index", "messages", "journal", "checkpoint") < 2_000_000


@pytest.mark.parametrize("headers", [0, 1000, 5000])
def test_body_and_properties_with_headers_count_together_for_embed_below(
    store: pyqstore.Store, headers: int
) -> None:
    """A body that goes to the message store is no alpha."""
    properties = pyqstore.Properties(delivery_mode=2, headers={"h": "x" * headers})
    least = max(0, 4096 - headers - 100)  # beside them the other properties take a little
    with store.channel() as channel:
        for name, size in (("below", least), ("not", least + 100)):
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, bytes(size), properties)
    assert store.queue_status("below")["alpha"] == (headers < 4096)
    assert store.queue_status("not")["alpha"] == 0


@pytest.mark.parametrize("first", [0, 1, 100, 4096, "1GiB"])
@pytest.mark.parametrize("second", [0, 4096, "1GiB"])
def test_embed_below_may_differ_at_every_open(
    path: Path, first: int | str, second: int | str
) -> None:
    options = {**TINY, "memory_budget": "64KiB"}
    with pyqstore.open(path, embed_below=first, **options) as store:
        publish(store, "q", range(300), 150)
    with pyqstore.open(path, embed_below=second, **options) as store:
        publish(store, "q", range(300, 600), 150)
        store.checkpoint()
        publish(store, "q", range(600, 700), 5000)
    with pyqstore.open(path, embed_below=first, **options) as store:
        assert drain(store, "q") == [*range(700)]


KILLED = """
import sys, pyqstore
options = dict(memory_budget="1MiB", segment_entries=256, journal_file_bytes="256KiB",
               message_file_bytes="1MiB", checkpoint_bytes="1MiB", checkpoint_interval=None)
store = pyqstore.open(sys.argv[1], **options)
channel = store.channel()
for queue in ("q", "lazy"):
    mode = {"x-queue-mode": "lazy" if queue == "lazy" else "default"}
    channel.queue_declare(queue, durable=True, arguments=mode)
channel.confirm_select()
properties = pyqstore.Properties(delivery_mode=2)
number = 0
while True:
    for _ in range(200):
        size = 6000 if number % 50 == 0 else 400
        for queue in ("q", "lazy"):
            channel.basic_publish("", queue, (b"%d" % number).ljust(size, b"."), properties)
        number += 1
    channel.wait_for_confirms(60)
    print(number, flush=True)
"""


@pytest.mark.crash
def test_killed_with_a_paged_backlog_everything_confirmed_is_there(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        confirmed = 0
        while confirmed < 12_000:
            confirmed = int(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            confirmed = int(line)
    assert pyqstore.verify(path).damages == 0
    shutil.copytree(path, path.with_name("copy"))
    with pyqstore.open(path, memory_budget="1MiB") as store:
        report = store.recovery_report
        assert report["checkpoint_lsn"] > 0
        for queue in ("q", "lazy"):
            assert confirmed <= report["queues"][queue] <= confirmed + 200
            assert store.queue_status(queue)["delta"] > confirmed // 2
            assert drain(store, queue) == [*range(report["queues"][queue])]
        store.checkpoint()
    assert pyqstore.verify(path).damages == 0
    with pyqstore.open(path.with_name("copy")) as store:
        assert store.recovery_report["queues"] == report["queues"]
