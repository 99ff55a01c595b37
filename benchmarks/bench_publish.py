"""Durable publishing beside the disk itself: the same bytes, the same run, the same directory.

Each benchmark publishes 100-byte persistent messages to one durable queue in confirm mode and ends
when everything is confirmed.  Beside them stands a loop of pwrite and fdatasync in C over a file
that is there already (`native/raw.c`).  `extra_info` tells messages or bytes a round; messages per
second are that by the round's time.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

BenchmarkFixture = Any  # pytest-benchmark types its fixture, but not the method that is used here
BODY = b"x" * 100
ROWS = 10_000
BATCHES = 50
SINGLES = 50_000
WAITS = 500
ROUNDS = 5
STEP = 1 << 20
PERSISTENT = pyqstore.Properties(delivery_mode=2)
RAW_LIBRARY = Path("build/release/benchmarks/libbench_raw.so")


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[pyqstore.Channel]:
    """A channel in confirm mode on a new store with one durable queue, "q"."""
    with pyqstore.open(tmp_path / "bench.qs") as store, store.channel() as opened:
        opened.queue_declare("q", durable=True)
        opened.confirm_select()
        time.sleep(0.3)  # the store makes its next journal file behind the scenes
        yield opened


def measure(benchmark: BenchmarkFixture, work: Any, **info: int) -> None:
    """Run work in rounds and note what a round did."""
    benchmark.extra_info.update(info)
    benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=1)


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Any]:
    """raw(step_bytes, step_count): the C loop over a file whose blocks are there already."""
    if not RAW_LIBRARY.exists():
        pytest.fail(f"{RAW_LIBRARY} is missing: run ./dev bench, which builds it")
    library = ctypes.CDLL(str(RAW_LIBRARY.resolve()))
    library.raw_write.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
    path = tmp_path / "raw"
    path.write_bytes(bytes(ROWS * BATCHES * len(BODY)))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    data = b"x" * STEP

    def write(step_bytes: int, step_count: int) -> None:
        error = library.raw_write(descriptor, data, step_bytes, step_count)
        assert error == 0, os.strerror(error)

    yield write
    os.close(descriptor)


@pytest.mark.benchmark(group="throughput")
def test_raw_write(benchmark: BenchmarkFixture, raw: Any) -> None:
    """1 MiB and one fdatasync at a time: what the disk can do at best."""
    count = ROWS * BATCHES * len(BODY) // STEP
    measure(benchmark, lambda: raw(STEP, count), bytes=count * STEP)


@pytest.mark.benchmark(group="throughput")
def test_publish_batch(benchmark: BenchmarkFixture, channel: pyqstore.Channel) -> None:
    """Record batches of 10,000 rows, confirmed at the end of the round."""
    batch = pa.record_batch({"body": pa.array([BODY] * ROWS, pa.binary())})

    def work() -> None:
        for _ in range(BATCHES):
            channel.publish_batch(batch, "", "q")
        assert channel.wait_for_confirms(timeout=60)

    measure(benchmark, work, messages=ROWS * BATCHES, bytes=ROWS * BATCHES * len(BODY))


@pytest.mark.benchmark(group="throughput")
def test_publish_pipelined(benchmark: BenchmarkFixture, channel: pyqstore.Channel) -> None:
    """basic_publish one after the other, confirmed at the end of the round."""

    def work() -> None:
        for _ in range(SINGLES):
            channel.basic_publish("", "q", BODY, PERSISTENT)
        assert channel.wait_for_confirms(timeout=60)

    measure(benchmark, work, messages=SINGLES, bytes=SINGLES * len(BODY))


@pytest.mark.benchmark(group="latency")
def test_raw_sync(benchmark: BenchmarkFixture, raw: Any) -> None:
    """4 KiB and one fdatasync at a time."""
    measure(benchmark, lambda: raw(4096, WAITS), messages=WAITS)


@pytest.mark.benchmark(group="latency")
def test_publish_and_wait(benchmark: BenchmarkFixture, channel: pyqstore.Channel) -> None:
    """One message, its confirm, the next."""

    def work() -> None:
        for _ in range(WAITS):
            channel.basic_publish("", "q", BODY, PERSISTENT)
            channel.wait_for_confirms(timeout=60)

    measure(benchmark, work, messages=WAITS)


@pytest.mark.benchmark(group="receive")
def test_get_batch_and_ack(benchmark: BenchmarkFixture, channel: pyqstore.Channel) -> None:
    """get_batch of 10,000 messages that are in memory, and one multiple ack for each."""
    batch = pa.record_batch({"body": pa.array([BODY] * ROWS, pa.binary())})

    def fill() -> None:
        for _ in range(BATCHES):
            channel.publish_batch(batch, "", "q")
        assert channel.wait_for_confirms(timeout=60)

    def work() -> None:
        received = 0
        while received < ROWS * BATCHES:
            got = channel.get_batch("q", max_messages=ROWS)
            received += got.num_rows
            channel.basic_ack(got["delivery_tag"][-1].as_py(), multiple=True)

    benchmark.extra_info.update(messages=ROWS * BATCHES)
    benchmark.pedantic(work, setup=fill, rounds=ROUNDS)
