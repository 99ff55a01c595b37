"""What the work `paging` does with a store beside filling and draining, in processes of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from .backlogs import BUDGET, Subject, expect
from .child import Figures
from .stores import PERSISTENT, QUEUE, disk_bytes

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
    _wait_until_quiet(subject)
    subject.store.checkpoint()
    left_bytes = disk_bytes(subject.path) - disk_bytes(subject.path / "journal")
    figures = {"seconds": seconds, "kept": kept, "disk_bytes_per_kept": left_bytes / kept}
    figures |= subject.memory()
    keeper.close()  # requeues what it has
    expect(subject.take(messages), kept)
    subject.store.close()
    return figures


def _wait_until_quiet(subject: Subject) -> None:
    """Files are compacted behind the scenes."""
    used, since = disk_bytes(subject.path), time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS:
        time.sleep(_QUIET_SECONDS / 10)
        now = disk_bytes(subject.path)
        if now != used:
            used, since = now, time.monotonic()


def pause(path: str, messages: int, waits: int, checkpoints: bool) -> Figures:
    """Publish and wait, beside checkpoints one after another or without."""
    subject = Subject(path, memory_budget=BUDGET, checkpoint_bytes=0, checkpoint_interval=None)
    subject.publish(subject.batch(100), messages)
    subject.confirm()
    subject.store.checkpoint()
    body = b"x" * 100
    latencies: list[float] = []
    made: list[float] = []
    start = time.perf_counter()
    with _checkpoints(subject, made) if checkpoints else contextlib.nullcontext():
        for _ in range(waits):
            begin = time.perf_counter_ns()
            subject.channel.basic_publish("", QUEUE, body, PERSISTENT)
            subject.confirm()
            latencies.append((time.perf_counter_ns() - begin) / 1000)
    figures: Figures = {"seconds": time.perf_counter() - start, "latencies_us": latencies}
    figures["longest_wait_us"] = max(latencies)
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
