"""Streams beside queues and beside pread, and queues that are read from the page cache.

Batches published to a stream and to a queue, and the bytes of a row in their files.  Streams that
are read, warm and cold, beside pread of their files; a publisher with and without readers at the
end; finding an offset or a time; opening many segments.  A queue of bodies of 100 B and of 1 KiB
that was paged out, with a budget of 64 MiB: a round takes turns, the files are read with pread,
then a quarter of the queue is received and acknowledged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ..fields import FieldValue
from . import child, streams_loads, work_loads
from .backlogs import Subject
from .child import Figures
from .floor import size
from .goals import beside
from .loads import batch_of, expect, publish_batches, rows_of
from .plots import MIB, Plot
from .runs import Case, Options, Result, Sample, Value
from .stores import disk_bytes, opened_store, prepared

TITLE = "Streams, and what is read from the page cache"
PUBLISH = "Publishing record batches to a stream and to a queue"
TO_QUEUE, TO_STREAM = "to a queue", "to a stream"
DRAIN = "Draining a paged queue from the page cache"
READ = "Reading a stream from its files"
TAIL = "A publisher and 8 readers at the end of its stream"
LOOK_UP = "Finding an offset or a time"
OPEN = "Opening a stream of many segments"
WORK = "Consuming through a work queue over a stream, and through a queue"
RATIO = "drain_to_pread_ratio"
CPU_RATIO = "drain_cpu_to_pread_ratio"
WRITTEN = "bytes_written_per_byte_of_body"
_BACKLOGS = {100: 4_000_000, 1024: 500_000}
_TURNS = 4
_READ = 2_000_000
_TAIL = 400_000
_LOOK_UP = 1_000_000
_WORK = 400_000
_BODY_BYTES = 100
_PUBLISHED = {100: 1_000_000, 1024: 150_000}
# Of each metric the goal, and whether less is better.
GOALS: dict[str, tuple[float, bool]] = {
    "warm_read_to_pread_ratio": (0.7, False),
    "warm_all_read_to_pread_ratio": (0.7, False),
    "cold_read_to_pread_ratio": (0.9, False),
    "file_bytes_per_row": (108, True),
    WRITTEN: (1.25, True),
    "disk_of_100_readers_to_1": (1.0, True),
    "publish_with_8_readers_to_none": (0.8, False),
    "blocks_read_for_each": (2, True),
    "blocks_read_at_most": (2, True),
    "open_ms_for_1000_segments": (1, True),
    "work_queue_to_queue_ratio": (0.9, False),
    "state_bytes_per_message_and_queue": (0.5, True),
    RATIO: (0.4, False),
    CPU_RATIO: (0.4, False),
}
_TO_QUEUE_GOAL = 1.2
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
    return found + _stream_cases(options)


def _stream_cases(options: Options) -> list[Case]:
    messages = [options.count(most, 1000) for most in (_READ, _LOOK_UP, _TAIL, _WORK)]
    segments = options.count(streams_loads.SEGMENTS, 10)
    loads: list[tuple[str, str, Callable[..., Figures], int]] = [
        ("read", READ, streams_loads.read, messages[0]),
        ("look up", LOOK_UP, streams_loads.look_up, messages[1]),
        ("publish", TAIL, streams_loads.tail, messages[2]),
        ("work", WORK, work_loads.work, messages[3]),
    ]
    found = []
    for name, group, load, count in loads:
        run = partial(_run_load, load, {"messages": count}, count)
        found.append(Case(name, run, _sizes(count, _BODY_BYTES), group=group))
    run = partial(_run_load, streams_loads.open_segments, {"segments": segments}, 0)
    found.append(Case("open", run, {"body_bytes": _BODY_BYTES}, group=OPEN))
    return found


def _run_load(
    load: Callable[..., Figures], counts: dict[str, int], messages: int, directory: Path
) -> Sample:
    path = directory / "store"
    figures = child.call(load, path=path, body_bytes=_BODY_BYTES, **counts)
    return Sample(figures.pop("seconds"), messages, messages * _BODY_BYTES, figures=figures)


def _sizes(messages: int, body_bytes: int) -> dict[str, Value]:
    return {"body_bytes": body_bytes, "messages": messages}


def _run_publish(name: str, messages: int, body_bytes: int, directory: Path) -> Sample:
    with opened_store(directory, checkpoint_bytes=0, checkpoint_interval=None) as store:
        channel = prepared(store, messages, body_bytes)
        channel.queue_declare("s", durable=True, arguments=_ARGUMENTS[name])
        batch = batch_of(rows_of(body_bytes), body_bytes)
        written, start = _written_bytes(), time.perf_counter()
        publish_batches(channel, batch, messages, key="s")
        seconds = time.perf_counter() - start
        store.checkpoint()
        written = _written_bytes() - written
        folders = [Path(store.path) / folder for folder in ("index", "streams")]
        occupied = sum(disk_bytes(folder) for folder in folders)
        there = channel.queue_declare("s", passive=True).message_count
    expect(there, messages)
    figures = {
        "file_bytes_per_row": occupied / messages,
        WRITTEN: written / (messages * body_bytes),
    }
    return Sample(seconds, messages, messages * body_bytes, figures=figures)


def _written_bytes() -> int:
    """What this process gave to calls that write, journal and all."""
    figures = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(figures[figures.index("wchar:") + 1])


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
    ratios, cpu_ratios, seconds, received = [], [], 0.0, 0
    file_bytes, _ = read_data(files)
    for turn in range(1, _TURNS + 1):
        reading_cpu = time.thread_time()
        _, reading = read_data(files)
        reading_cpu = time.thread_time() - reading_cpu
        begun, start, start_cpu = received, time.perf_counter(), time.process_time()
        while received < messages * turn // _TURNS:
            got = subject.take(min(batch.num_rows, messages * turn // _TURNS - received))
            expect(got > 0, True)
            received += got
        taken = time.perf_counter() - start
        part = (received - begun) / messages
        ratios.append(part / taken * reading)
        cpu_ratios.append(part / (time.process_time() - start_cpu) * reading_cpu)
        seconds += taken
    expect(subject.take(1), 0)
    subject.store.close()
    return {
        "seconds": seconds,
        RATIO: median(ratios),
        CPU_RATIO: median(cpu_ratios),
        "file_bytes_per_row": file_bytes / messages,
    }


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


def notes(results: list[Result]) -> list[str]:
    """What the numbers are, and each goal beside what came."""
    sizes = " and ".join(map(size, _BACKLOGS))
    return [
        "Publishing to a stream is held against publishing to a queue in the same round; rows are"
        " in files after a checkpoint, and what was written until then counts: journal, files and"
        " checkpoint, and 16 MiB of zeros ahead of the journal.",
        f"Bodies of {sizes} in queues. Nothing comes from the device but what is read cold: a round"
        " writes the files that it reads, and less than memory holds.",
        "The ratio of a drain is of bytes in files a second, without holes: what a drain takes of"
        " them, with get_batch and an ack for each batch, over what pread gives of the same files a"
        " moment before; the median of four turns. The second ratio is of processor time, of all"
        " threads that drain: others on the machine touch it less, and it does not count that two"
        " threads work at once.",
        "Reading takes turns with pread of the same files, a MiB at a time into one buffer: warm by"
        " the thread's own time, cold by the clock after the pages were forgotten. Warm: offset,"
        " timestamp and body; warm_all: every column.",
        "A work queue over a stream takes turns with a queue that has the same messages: get_batch"
        " and an ack for each batch. The bytes of a state are those of a checkpoint, of work queues"
        " with a delivery limit whose messages were settled one by one, and half of which came back"
        " up to three times.",
        *_against_goals(results),
    ]


def _against_goals(results: list[Result]) -> list[str]:
    found: list[str] = []
    for result in results:
        parameters = result.case.parameters
        of = f"{result.case.name}, {parameters['body_bytes']} B"
        for name, (goal, less) in GOALS.items():
            spread = result.metric(name)
            if name in {"file_bytes_per_row", WRITTEN} and not _is_of_streams(result.case):
                continue
            if spread is not None:
                found.append(beside(f"{of}: {name}", spread, goal, less))
        if parameters.get("to") == TO_STREAM and result.ratio_to_floor is not None:
            found.append(
                beside(f"{of}: over a queue", result.ratio_to_floor, _TO_QUEUE_GOAL, False)
            )
    return found


def _is_of_streams(case: Case) -> bool:
    """Whether its rows are of a stream, and of the size that the goal for its files is of."""
    is_queue = case.group == DRAIN or case.parameters.get("to") == TO_QUEUE
    return not is_queue and case.parameters["body_bytes"] == _BODY_BYTES
