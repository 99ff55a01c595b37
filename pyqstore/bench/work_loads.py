"""What the workload "streams" does with work queues; in a process of its own, in turns."""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyqstore

from .child import Figures
from .loads import batch_of, expect, parts, rows_of

WORK_QUEUES = 4
_TURNS = 5
_TAKEN = 4096
_SEED = 7
_LIMIT = 10


def work(path: str, messages: int, body_bytes: int) -> Figures:
    """The same messages through an ordinary queue and through a work queue, in turn; then what a
    checkpoint takes where each message of other work queues was settled alone and half came
    back."""
    with pyqstore.open(path, checkpoint_bytes=0, checkpoint_interval=None) as store:
        channel = store.channel()
        _fill(store, channel, messages, body_bytes)
        each, ratios, seconds = messages // _TURNS, [], 0.0
        for _ in range(_TURNS):
            queue = _take(channel, "q", each)
            taken = _take(channel, "w0", each)
            ratios.append(queue / taken)
            seconds += taken
        store.checkpoint()
        before = _checkpoint_bytes(Path(path))
        fates = random.Random(_SEED)
        for name in _names()[1:]:
            for third in (3, 2, 1):
                _settle_alone(channel, name, messages * third // 3, fates)
        store.checkpoint()
        grown = _checkpoint_bytes(Path(path)) - before
    return {
        "seconds": seconds,
        "work_queue_to_queue_ratio": median(ratios),
        "state_bytes_per_message_and_queue": grown / messages / (WORK_QUEUES - 1),
    }


def _names() -> list[str]:
    return [f"w{number}" for number in range(WORK_QUEUES)]


def _fill(store: pyqstore.Store, channel: Any, messages: int, body_bytes: int) -> None:
    """All is in files."""
    stream = store.stream("s")
    channel.queue_declare("q", durable=True)
    for name in _names():
        arguments = {"x-stream-source": "s", "x-stream-offset": "first"}
        limit = {"x-delivery-limit": _LIMIT} if name != "w0" else {}
        channel.queue_declare(name, durable=True, arguments={**arguments, **limit})
    for part in parts(batch_of(rows_of(body_bytes), body_bytes), messages):
        stream.publish_batch(part)
        channel.publish_batch(part, routing_key="q")
    store.sync()
    store.checkpoint()


def _take(channel: Any, queue: str, count: int) -> float:
    start, taken = time.perf_counter(), 0
    while taken < count:
        batch = channel.get_batch(queue, min(_TAKEN, count - taken))
        expect(len(batch) > 0, True)
        channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)
        taken += len(batch)
    return time.perf_counter() - start


def _settle_alone(channel: Any, queue: str, count: int, fates: random.Random) -> None:
    """Each of the first messages: acknowledged, or back in the queue when all were got."""
    tags: list[int] = []
    while len(tags) < count and len(batch := channel.get_batch(queue, count - len(tags))) > 0:
        tags += batch["delivery_tag"].to_pylist()
    for tag in tags:
        if fates.random() < 0.5:
            channel.basic_ack(tag)
        else:
            channel.basic_nack(tag, requeue=True)


def _checkpoint_bytes(path: Path) -> int:
    return max((path / "checkpoint").glob("*.ckp")).stat().st_size
