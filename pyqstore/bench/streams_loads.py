"""What the workload "streams" does with a stream; each in a process of its own, in turns.

What is compared takes turns in one process, and ratios are of neighbours: A B A B.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyqstore

from . import gauges
from .child import Figures
from .loads import batch_of, expect, parts, rows_of
from .plots import MIB
from .stores import disk_bytes, settle

FEW = ["offset", "timestamp", "body"]
READERS = 8
MANY_READERS = 100
SEGMENTS = 1000
_TURNS = 7
_TAIL_TURNS = 5
_LOOKUPS = 40
_A_TENTH = (1 << 20) / 10  # of a block: what is less is heads of files
_OPENS = 7
_STREAM = "s"


def _stream(store: pyqstore.Store) -> Any:
    return store.stream(_STREAM)


def _fill(path: Path, messages: int, body_bytes: int, **options: Any) -> None:
    """A stream of which all is in files."""
    with pyqstore.open(path, checkpoint_bytes=0, checkpoint_interval=None, **options) as store:
        stream = _stream(store)
        for part in parts(batch_of(rows_of(body_bytes), body_bytes), messages):
            stream.publish_batch(part)
        store.checkpoint()


def _files(path: Path) -> list[Path]:
    return sorted((path / "streams").glob("*.str"))


def _read(stream: Any, columns: Sequence[str] | None) -> int:
    return sum(len(batch) for batch in stream.read("first", columns=columns))


def _timed(clock: Callable[[], float], what: Callable[[], int], expected: int) -> float:
    start = clock()
    got = what()
    taken = clock() - start
    expect(got, expected)
    return taken


def raw(files: Sequence[Path]) -> int:
    """Read files with pread, a MiB at a time, into one buffer: how many bytes."""
    buffer, total = memoryview(bytearray(MIB)), 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            at = 0
            while got := os.preadv(descriptor, [buffer], at):
                at += got
            total += at
        finally:
            os.close(descriptor)
    return total


def read(path: str, messages: int, body_bytes: int) -> Figures:
    """A stream from its files beside pread of them: warm by the thread's own time, which others on
    the machine touch least, cold by the clock on the wall."""
    _fill(Path(path), messages, body_bytes)
    files = _files(Path(path))
    file_bytes = raw(files)
    used = disk_bytes(Path(path) / "streams")
    ratios: dict[str, list[float]] = {"warm": [], "warm_all": [], "cold": []}
    with pyqstore.open(path) as store:
        stream = _stream(store)
        ways = {"warm": FEW, "warm_all": None}
        begun = time.perf_counter()
        for _ in range(_TURNS):
            floor = _timed(time.thread_time, lambda: raw(files), file_bytes)
            for name, columns in ways.items():
                taken = _timed(time.thread_time, partial(_read, stream, columns), messages)
                ratios[name].append(floor / taken)
        seconds = (time.perf_counter() - begun) / _TURNS
        for _ in range(_TURNS):
            gauges.forget_pages(Path(path))
            floor = _timed(time.perf_counter, lambda: raw(files), file_bytes)
            gauges.forget_pages(Path(path))
            taken = _timed(time.perf_counter, lambda: _read(stream, FEW), messages)
            ratios["cold"].append(floor / taken)
        for _ in range(MANY_READERS):
            next(iter(stream.read("first", columns=FEW)))
        store.checkpoint()
        grown = disk_bytes(Path(path) / "streams") / used
    return {
        "seconds": seconds,
        "file_bytes_per_row": used / messages,
        "disk_of_100_readers_to_1": grown,
        **{f"{name}_read_to_pread_ratio": median(found) for name, found in ratios.items()},
    }


def look_up(path: str, messages: int, body_bytes: int) -> Figures:
    """The first row of an offset or a time that nobody read lately: how many blocks are read."""
    _fill(Path(path), messages, body_bytes)
    chosen = random.Random(7)
    read_bytes, seconds = [], []
    for turn in range(_LOOKUPS):
        with pyqstore.open(path) as store:
            stream = _stream(store)
            offset = chosen.randrange(messages)
            when = next(iter(stream.read(offset, columns=FEW)))["timestamp"][0].as_py()
        with pyqstore.open(path) as store:
            stream = _stream(store)
            begun, start = _read_bytes(), time.perf_counter()
            where = offset if turn % 2 else stream.offset_at(when)
            batch = next(iter(stream.read(where, columns=FEW)))
            seconds.append(time.perf_counter() - start)
            read_bytes.append(_read_bytes() - begun)
            expect(batch["offset"][0].as_py(), where)
    return {
        "seconds": sum(seconds),
        "look_up_p50_us": median(seconds) * 1e6,
        "blocks_read_for_each": median(read_bytes) // _A_TENTH / 10,
        "blocks_read_at_most": max(read_bytes) // _A_TENTH / 10,
    }


def _read_bytes() -> int:
    """What this thread has read so far, from the page cache too."""
    told = Path("/proc/thread-self/io").read_text(encoding="ascii")
    return int(told.split("rchar: ")[1].split()[0]) - len(told)


def tail(path: str, messages: int, body_bytes: int) -> Figures:
    """A publisher alone, and with readers that get each batch as it comes, in turn."""
    ratios, seconds = [], 0.0
    batch = batch_of(rows_of(body_bytes), body_bytes)
    with pyqstore.open(path) as store:
        stream = _stream(store)
        settle(Path(path))
        for _ in range(_TAIL_TURNS):
            alone = _publish(stream, batch, messages)
            with _Followers(stream, messages) as followers:
                beside = _publish(stream, batch, messages)
            expect(followers.read, READERS * messages)
            ratios.append(alone / beside)
            seconds += beside
    return {"seconds": seconds / _TAIL_TURNS, "publish_with_8_readers_to_none": median(ratios)}


def _publish(stream: Any, batch: Any, messages: int) -> float:
    start = time.perf_counter()
    for part in parts(batch, messages):
        stream.publish_batch(part)
    return time.perf_counter() - start


class _Followers:
    """Readers at the end of a stream, each in a thread, until each has so many messages."""

    def __init__(self, stream: Any, messages: int) -> None:
        self.read = 0
        self._messages = messages
        self._lock = threading.Lock()
        readers = [stream.read("next", columns=FEW, follow=True) for _ in range(READERS)]
        self._threads = [threading.Thread(target=self._go, args=(each,)) for each in readers]

    def _go(self, reader: Any) -> None:
        rows = 0
        while rows < self._messages:
            rows += len(reader.read_next_batch())
        with self._lock:
            self.read += rows

    def __enter__(self) -> _Followers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()


def open_segments(path: str, segments: int, body_bytes: int) -> Figures:
    """Opening a store whose stream has so many segments beside one whose stream has one, by the
    thread's own time: each waits for the same syncs."""
    paths = {"many": Path(path) / "many", "one": Path(path) / "one"}
    options: dict[str, Any] = {"segment_bytes": 64 << 10}
    batch = batch_of((128 << 10) // body_bytes, body_bytes)
    Path(path).mkdir()
    for name, count in (("many", segments), ("one", 1)):
        with pyqstore.open(paths[name], checkpoint_bytes=0, checkpoint_interval=None) as store:
            stream = store.stream(_STREAM, **(options if name == "many" else {}))
            for _ in range(count):
                stream.publish_batch(batch)
                store.checkpoint()
        with pyqstore.open(paths[name]) as store:  # lets go of the journal that filling left
            store.checkpoint()
    there = len(_files(paths["many"]))
    taken: dict[str, list[float]] = {"many": [], "one": []}
    for _ in range(_OPENS):
        for name, where in paths.items():
            start = time.thread_time()
            store = pyqstore.open(where)
            taken[name].append(time.thread_time() - start)
            store.close()
    more = median(taken["many"]) - median(taken["one"])
    return {
        "seconds": median(taken["many"]),
        "segments": there,
        "open_ms_for_1000_segments": more * 1e3 / there * SEGMENTS,
    }
