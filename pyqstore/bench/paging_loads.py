"""What the workload `paging` does beside filling and draining, in processes of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial

from .backlogs import BUDGET, Subject
from .child import Figures
from .loads import QUEUE, expect, once_confirmed
from .runs import repeated
from .stores import disk_bytes, wait_until_quiet

_SEGMENT = 16_384  # messages
_STEP_BYTES = 1 << 20
_LOOKS = 40
_QUIET_SECONDS = 0.5


def churn(path: str, messages: int, body_bytes: int) -> Figures:
    """Publish and consume, a megabyte at a time."""
    subject = Subject(path)
    batch = subject.batch(body_bytes, min(messages, _STEP_BYTES // body_bytes))
    used: list[int] = []
    done = 0
    start = time.perf_counter()
    while done < messages:
        count = min(batch.num_rows, messages - done)
        subject.publish(batch, count)
        while subject.take(count):
            pass
        done += count
        if len(used) < done * _LOOKS // messages:
            used.append(disk_bytes(subject.path))
    subject.confirm()
    seconds = time.perf_counter() - start
    steady = used[len(used) // 10 :]
    figures = {
        "seconds": seconds,
        "segments_written": subject.store.stats()["segments_written"],
        "disk_least_bytes": min(steady),
        "disk_most_bytes": max(steady),
        **subject.memory(),
    }
    subject.store.close()
    return figures


def sparse(path: str, messages: int) -> Figures:
    """Consume all but the first of every segment, and look at what is left."""
    subject = Subject(path)
    subject.publish(subject.batch(100), messages)
    subject.confirm()
    subject.store.checkpoint()
    start = time.perf_counter()
    keeper = subject.store.channel()
    kept = 0
    for left in range(messages, 0, -_SEGMENT):
        keeper.basic_get(QUEUE)
        kept += 1
        span = min(left, _SEGMENT) - 1
        while span > 0:
            got = subject.take(span)
            if not got:
                raise RuntimeError(f"{span} messages did not come")
            span -= got
    seconds = time.perf_counter() - start
    subject.store.checkpoint()
    # Files are compacted behind the scenes.
    wait_until_quiet(partial(disk_bytes, subject.path), _QUIET_SECONDS)
    subject.store.checkpoint()
    left_bytes = disk_bytes(subject.path) - disk_bytes(subject.path / "journal")
    figures = {"seconds": seconds, "kept": kept, "disk_bytes_per_kept": left_bytes / kept}
    figures |= subject.memory()
    keeper.close()  # requeues what it has
    expect(subject.take(messages), kept)
    subject.store.close()
    return figures


def pause(path: str, messages: int, waits: int, checkpoints: bool) -> Figures:
    """Publish and wait, beside checkpoints one after another or without."""
    subject = Subject(path, memory_budget=BUDGET, checkpoint_bytes=0, checkpoint_interval=None)
    subject.publish(subject.batch(100), messages)
    subject.confirm()
    subject.store.checkpoint()
    made: list[float] = []
    once = partial(once_confirmed, subject.channel, 1, b"x" * 100)
    with _checkpoints(subject, made) if checkpoints else contextlib.nullcontext():
        sample = repeated(waits, once, 1, 100)
    figures: Figures = {"seconds": sample.seconds, "latencies_us": sample.latencies_us}
    figures["longest_wait_us"] = max(sample.latencies_us)
    if checkpoints:
        figures |= {"checkpoints": len(made), "longest_checkpoint_s": max(made)}
    subject.store.close()
    return figures


@contextlib.contextmanager
def _checkpoints(subject: Subject, made: list[float]) -> Iterator[None]:
    """Checkpoints, each begun when the one before has ended; how long each took is added."""
    stop = threading.Event()

    def make() -> None:
        while not made or not stop.is_set():
            start = time.perf_counter()
            subject.store.checkpoint()
            made.append(time.perf_counter() - start)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
