"""Streams beside queues, and queues that are read from the page cache.

Batches published to a stream and to a queue, and the bytes of a row in their files.  A queue of
bodies of 100 B and of 1 KiB that was paged out, with a budget of 64 MiB: a round takes turns, the
files are read with pread, then a quarter of the queue is received and acknowledged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ..fields import FieldValue
from . import child
from .backlogs import Subject
from .child import Figures
from .floor import size
from .loads import batch_of, expect, publish_batches, rows_of
from .plots import MIB, Plot
from .runs import Case, Options, Result, Sample, Value
from .stores import disk_bytes, opened_store, prepared

TITLE = "Streams, and what is read from the page cache"
PUBLISH = "Publishing record batches to a stream and to a queue"
TO_QUEUE, TO_STREAM = "to a queue", "to a stream"
DRAIN = "Draining a paged queue from the page cache"
RATIO = "drain_to_pread_ratio"
_BACKLOGS = {100: 4_000_000, 1024: 500_000}
_TURNS = 4
_PUBLISHED = {100: 1_000_000, 1024: 150_000}
_ARGUMENTS: dict[str, dict[str, FieldValue]] = {TO_QUEUE: {}, TO_STREAM: {"x-queue-type": "stream"}}

PLOTS = [
    Plot("Publishing record batches", "body_bytes", "messages_per_s", "to", group=PUBLISH,
         even=True, x_label="bytes of a body"),
    Plot("Draining a paged queue, over pread of its files", "body_bytes", RATIO, group=DRAIN,
         even=True, x_label="bytes of a body", unit="ratio, of bytes in files"),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """Batches, and a backlog, of each size of bodies."""
    found = []
    for body_bytes, most in _PUBLISHED.items():
        messages = options.count(most, 100)
        for name in (TO_QUEUE, TO_STREAM):
            run = partial(_run_publish, name, messages, body_bytes)
            parameters = {"to": name, **_sizes(messages, body_bytes)}
            floor = f"{TO_QUEUE}, {body_bytes} B" if name == TO_STREAM else None
            case = Case(f"{name}, {body_bytes} B", run, parameters, floor, PUBLISH)
            found.append(case)
    for body_bytes, most in _BACKLOGS.items():
        messages = options.count(most, 100)
        parameters = _sizes(messages, body_bytes)
        run = partial(_run_drain, messages, body_bytes)
        found.append(Case("drain", run, parameters, group=DRAIN))
    return found


def _sizes(messages: int, body_bytes: int) -> dict[str, Value]:
    return {"body_bytes": body_bytes, "messages": messages}


def _run_publish(name: str, messages: int, body_bytes: int, directory: Path) -> Sample:
    with opened_store(directory, checkpoint_bytes=0, checkpoint_interval=None) as store:
        channel = prepared(store, messages, body_bytes)
        channel.queue_declare("s", durable=True, arguments=_ARGUMENTS[name])
        batch = batch_of(rows_of(body_bytes), body_bytes)
        start = time.perf_counter()
        publish_batches(channel, batch, messages, key="s")
        seconds = time.perf_counter() - start
        store.checkpoint()
        folders = [Path(store.path) / folder for folder in ("index", "streams")]
        occupied = sum(disk_bytes(folder) for folder in folders)
        there = channel.queue_declare("s", passive=True).message_count
    expect(there, messages)
    figures = {"file_bytes_per_row": occupied / messages}
    return Sample(seconds, messages, messages * body_bytes, figures=figures)


def _run_drain(messages: int, body_bytes: int, directory: Path) -> Sample:
    path = directory / "store"
    figures = child.call(drain, path=path, messages=messages, body_bytes=body_bytes)
    seconds = figures.pop("seconds")
    return Sample(seconds, messages, messages * body_bytes, figures=figures)


def drain(path: str, messages: int, body_bytes: int) -> Figures:
    """Page a backlog out; then read its files, and drain a quarter of it, in turn."""
    subject = Subject(path, checkpoint_bytes=0, checkpoint_interval=None)
    batch = subject.batch(body_bytes)
    subject.publish(batch, messages)
    subject.confirm()
    subject.store.checkpoint()
    files = sorted((subject.path / "index").glob("*.seg"))
    ratios, seconds, received = [], 0.0, 0
    file_bytes, _ = read_data(files)
    for turn in range(1, _TURNS + 1):
        _, reading = read_data(files)
        begun, start = received, time.perf_counter()
        while received < messages * turn // _TURNS:
            got = subject.take(min(batch.num_rows, messages * turn // _TURNS - received))
            expect(got > 0, True)
            received += got
        taken = time.perf_counter() - start
        ratios.append((received - begun) / messages / taken * reading)
        seconds += taken
    expect(subject.take(1), 0)
    subject.store.close()
    return {"seconds": seconds, RATIO: median(ratios), "file_bytes_per_row": file_bytes / messages}


def read_data(files: Sequence[Path]) -> tuple[int, float]:
    """Read what is in files, a MiB at a time and without their holes: bytes, seconds."""
    buffer = memoryview(bytearray(MIB))
    total, start = 0, time.perf_counter()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for begin, end in _stretches(descriptor):
                for at in range(begin, end, MIB):
                    total += os.preadv(descriptor, [buffer[: end - at]], at)
        finally:
            os.close(descriptor)
    return total, time.perf_counter() - start


def _stretches(descriptor: int) -> list[tuple[int, int]]:
    """Where a file has bytes, and no hole."""
    found, end, file_bytes = [], 0, os.fstat(descriptor).st_size
    while end < file_bytes:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            break
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        found.append((begin, end))
    return found


def notes(_results: list[Result]) -> list[str]:
    """What the numbers are."""
    sizes = " and ".join(map(size, _BACKLOGS))
    return [
        "Publishing to a stream is held against publishing to a queue in the same round; rows are"
        " in files after a checkpoint.",
        f"Bodies of {sizes}. Nothing comes from the device: a round writes the files that it reads,"
        " and less than memory holds.",
        "The ratio is of bytes in files a second, without holes: what a drain takes of them, with"
        " get_batch and an ack for each batch, over what pread gives of the same files a moment"
        " before; the median of four turns.",
    ]
