"""Receiving: prefetch, ways to acknowledge, record batches, acks in any order.

Messages are persistent, of 100 B, and ready in memory; a round ends when its acks are durable.
Held against a sequential read of the same bodies from the disk, in the same rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyqstore

from . import floor
from .loads import QUEUE, publish_rows
from .plots import Plot
from .runs import Case, Options, Result, Sample
from .stores import opened_store, prepared

TITLE = "Receiving and acknowledging"
BODY_BYTES = 100
PREFETCH = "Prefetch: a callback for each message"
WAYS = "Ways to receive and to acknowledge"
BATCHES = "Rows of get_batch, one ack for each batch"
ORDERS = "Unacknowledged messages, acknowledged one by one"

_PREFETCHES = (1, 3, 10, 30, 100, 300, 1000)
_MULTIPLE = 100
_BATCH_ROWS = (1, 10, 100, 1000, 10_000, 65_536)
_UNACKED = (1000, 10_000, 100_000, 1_000_000)
_MESSAGES = 40_000
_BATCH_MESSAGES = 400_000
_BATCH_STEPS = 5000
_SEED = 1

PLOTS = [
    Plot("Callbacks over prefetch", "prefetch", "messages_per_s", group=PREFETCH,
         log_x=True, log_y=True, x_label="prefetch, messages"),
    Plot("Ways to receive and to acknowledge", "case", "messages_per_s", group=WAYS),
    Plot("get_batch over its rows", "rows", "messages_per_s", group=BATCHES,
         log_x=True, log_y=True, x_label="max_messages of get_batch"),
    Plot("Cost of an ack over how many are unacknowledged", "unacked", "ns_per_ack", group=ORDERS,
         log_x=True, x_label="unacknowledged messages"),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """All sweeps, each behind a read of its bytes from the disk."""
    return [*prefetches(options), *ways(options), *batches(options), *orders(options)]


def prefetches(options: Options) -> list[Case]:
    """A consumer with a callback, from one message at a time to many."""
    count = options.count(_MESSAGES, 20)
    found = [_read(count, PREFETCH)]
    for every in (1, 0):
        for prefetch in options.sweep(*_PREFETCHES):
            # Acks have to come before the prefetch is used up; half of it keeps the consumer fed.
            acks_every = every or max(1, prefetch // 2)
            receive = partial(by_callback, prefetch=prefetch, acks_every=acks_every)
            name = "an ack each" if every else "multiple acks, after half the prefetch"
            run = partial(_run, receive, count)
            found.append(Case(name, run, {"prefetch": prefetch}, floor.READ, PREFETCH))
    return found


def ways(options: Options) -> list[Case]:
    """Callbacks, an iterator, basic_get and get_batch, with and without acks."""
    count = options.count(_MESSAGES, 20)
    found = [_read(count, WAYS)]
    each_way: dict[str, Receive] = {
        "basic_get, an ack each": partial(by_get, auto_ack=False),
        "basic_get, auto_ack": partial(by_get, auto_ack=True),
        "iterator, an ack each": by_iterator,
        "callback, an ack each": partial(by_callback, prefetch=0, acks_every=1),
        f"callback, an ack for {_MULTIPLE}": partial(by_callback, prefetch=0, acks_every=_MULTIPLE),
        "callback, auto_ack": partial(by_callback, prefetch=0, acks_every=0),
        "get_batch of 1,000, an ack each row": partial(by_batch, rows=1000, singly=True),
        "get_batch of 1,000, an ack each batch": partial(by_batch, rows=1000),
        "get_batch of 1,000, auto_ack": partial(by_batch, rows=1000, auto_ack=True),
    }
    for name, receive in each_way.items():
        found.append(Case(name, partial(_run, receive, count), floor=floor.READ, group=WAYS))
    return found


def batches(options: Options) -> list[Case]:
    """Few and many rows of a batch, acknowledged by one multiple ack, and without acks."""
    total = options.count(_BATCH_MESSAGES, 20)
    found = [_read(total, BATCHES)]
    for name, auto_ack in (("an ack each batch", False), ("auto_ack", True)):
        for rows in options.sweep(*_BATCH_ROWS):
            receive = partial(by_batch, rows=rows, auto_ack=auto_ack)
            run = partial(_run, receive, min(total, rows * options.count(_BATCH_STEPS, 5)))
            found.append(Case(name, run, {"rows": rows}, floor.READ, BATCHES))
    return found


def orders(options: Options) -> list[Case]:
    """Thousands to a million received and not acknowledged, then acknowledged one by one."""
    counts = dict.fromkeys(options.count(most, 10) for most in options.sweep(*_UNACKED))
    found = []
    for name in ("first to last", "last to first", "in random order"):
        for unacked in counts:
            run = partial(_run_acks, name, unacked)
            found.append(Case(name, run, {"unacked": unacked}, group=ORDERS))
    return found


def _read(messages: int, group: str) -> Case:
    return floor.read(max(messages * BODY_BYTES, 4 * floor.MIB), group=group)


# Ways to receive so many messages and to acknowledge them.

Receive = Callable[[pyqstore.Channel, int], None]


def by_callback(channel: pyqstore.Channel, count: int, *, prefetch: int, acks_every: int) -> None:
    """A consumer with a callback; acks_every 0: without acks."""
    left = count

    def received(message: pyqstore.Message) -> None:
        nonlocal left
        left -= 1
        if acks_every == 1:
            message.ack()
        elif acks_every and (left % acks_every == 0):
            channel.basic_ack(message.delivery_tag, multiple=True)
        if left == 0:
            channel.stop_consuming()

    if prefetch:
        channel.basic_qos(prefetch)
    channel.basic_consume(QUEUE, received, auto_ack=acks_every == 0)
    channel.start_consuming()


def by_iterator(channel: pyqstore.Channel, count: int) -> None:
    """The messages of a for loop, each acknowledged."""
    for number, message in enumerate(channel.consume(QUEUE), 1):
        message.ack()
        if number == count:
            break


def by_get(channel: pyqstore.Channel, count: int, *, auto_ack: bool) -> None:
    """One call for each message, and one for its ack."""
    for _ in range(count):
        message = channel.basic_get(QUEUE, auto_ack)
        assert message is not None
        if not auto_ack:
            channel.basic_ack(message.delivery_tag)


def by_batch(
    channel: pyqstore.Channel,
    count: int,
    *,
    rows: int,
    auto_ack: bool = False,
    singly: bool = False,
) -> None:
    """Record batches, with one ack for all rows, one for each, or none."""
    while count > 0:
        batch = channel.get_batch(QUEUE, min(rows, count), auto_ack=auto_ack)
        if not batch.num_rows:
            raise RuntimeError(f"{count} messages did not come")
        count -= batch.num_rows
        if singly:
            for tag in batch["delivery_tag"].to_pylist():
                channel.basic_ack(tag)
        elif not auto_ack:
            channel.basic_ack(batch["delivery_tag"][-1].as_py(), multiple=True)


# Rounds.


def _run(receive: Receive, count: int, directory: Path) -> Sample:
    """Fill the queue, then time the receiving, until the last ack is durable."""
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        publish_rows(channel, count, BODY_BYTES)
        start = time.perf_counter()
        receive(channel, count)
        store.sync()
        seconds = time.perf_counter() - start
        _check_empty(store)
    return Sample(seconds, count, count * BODY_BYTES)


def _run_acks(order: str, count: int, directory: Path) -> Sample:
    """Receive so many, then time an ack for each, in an order."""
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        publish_rows(channel, count, BODY_BYTES)
        tags: list[int] = []
        while len(tags) < count:
            got = channel.get_batch(QUEUE)["delivery_tag"].to_pylist()
            if not got:
                raise RuntimeError(f"{count - len(tags)} messages did not come")
            tags += got
        if order == "in random order":
            random.Random(_SEED).shuffle(tags)
        elif order == "last to first":
            tags.reverse()
        start = time.perf_counter()
        for tag in tags:
            channel.basic_ack(tag)
        acked = time.perf_counter() - start
        store.sync()
        seconds = time.perf_counter() - start
        _check_empty(store)
    return Sample(seconds, count, figures={"ns_per_ack": acked * 1e9 / count})


def _check_empty(store: pyqstore.Store) -> None:
    status = store.queue_status(QUEUE)
    if status["messages_ready"] or status["messages_unacked"]:
        raise RuntimeError("not all messages were received and acknowledged")


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    del results
    return [
        "The messages are in memory: a ratio above 1 is faster than the disk would read them.",
        "Acks of persistent messages are journalled; a round ends when they are durable.",
        "ns per ack is without that last sync.",
    ]
