"""The disk's own floor: the same bytes by pwrite and fdatasync alone, in the same run.

Files are written and synced before the clock runs, as the journal's are: then the floor overwrites.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .runs import Case, Sample

MIB = 1 << 20
FILE_BYTES = 64 * MIB
STREAM = "raw stream"
NEW_FILES = "raw new files"
READ = "raw read"


def sync_name(record_bytes: int) -> str:
    """The name of the floor that syncs records of so many bytes."""
    return f"raw sync {size(record_bytes)}"


def size(count: int) -> str:
    """Bytes for people, where the number is round: 100 B, 4 KiB, 1 MiB."""
    for unit, bytes_of_it in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1024)):
        if count >= bytes_of_it and count % bytes_of_it == 0:
            return f"{count // bytes_of_it} {unit}"
    return f"{count} B"


def stream(total_bytes: int, step_bytes: int = MIB, group: str = "") -> Case:
    """1 MiB and one fdatasync at a time, over a file that is there: the most a disk can do."""
    steps = max(1, total_bytes // step_bytes)

    def run(directory: Path) -> Sample:
        data = b"x" * step_bytes
        with written(directory / "raw", steps * step_bytes) as file:
            start = time.perf_counter()
            for step in range(steps):
                os.pwrite(file, data, step * step_bytes)
                os.fdatasync(file)
            seconds = time.perf_counter() - start
        return Sample(seconds, bytes=steps * step_bytes)

    return Case(STREAM, run, group=group)


def sync(record_bytes: int, count: int, group: str = "") -> Case:
    """A record and one fdatasync at a time, each behind the one before: the least a confirm can
    take."""

    def run(directory: Path) -> Sample:
        data = b"x" * record_bytes
        latencies = []
        with written(directory / "raw", record_bytes * count) as file:
            start = time.perf_counter()
            for number in range(count):
                begin = time.perf_counter_ns()
                os.pwrite(file, data, number * record_bytes)
                os.fdatasync(file)
                latencies.append((time.perf_counter_ns() - begin) / 1000)
            seconds = time.perf_counter() - start
        return Sample(seconds, messages=count, bytes=record_bytes * count, latencies_us=latencies)

    return Case(sync_name(record_bytes), run, group=group)


def new_files(total_bytes: int, file_bytes: int = FILE_BYTES, group: str = "") -> Case:
    """1 MiB and one fdatasync at a time into new files: what a growing backlog must do."""
    steps = max(1, total_bytes // MIB)

    def run(directory: Path) -> Sample:
        data = b"x" * MIB
        start = time.perf_counter()
        file = -1
        for step in range(steps):
            offset = step * MIB % file_bytes
            if offset == 0:
                if file >= 0:
                    os.close(file)
                path = directory / f"raw-{step}"
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.pwrite(file, data, offset)
            os.fdatasync(file)
        os.close(file)
        return Sample(time.perf_counter() - start, bytes=steps * MIB)

    return Case(NEW_FILES, run, group=group)


def read(total_bytes: int, group: str = "") -> Case:
    """1 MiB at a time from the disk, front to back, none of it in memory before."""
    steps = max(1, total_bytes // MIB)

    def run(directory: Path) -> Sample:
        buffer = bytearray(MIB)
        with written(directory / "raw", steps * MIB) as file:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            for step in range(steps):
                os.preadv(file, [buffer], step * MIB)
            seconds = time.perf_counter() - start
        return Sample(seconds, bytes=steps * MIB)

    return Case(READ, run, group=group)


@contextmanager
def written(path: Path, total_bytes: int) -> Iterator[int]:
    """A file whose blocks are there, filled and on the disk."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        zeros = bytes(MIB)
        for offset in range(0, total_bytes, MIB):
            os.pwrite(file, zeros[: total_bytes - offset], offset)
        os.fsync(file)
        yield file
    finally:
        os.close(file)
