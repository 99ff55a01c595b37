"""Routing: what it costs to find a message's queues, from one binding to a hundred thousand.

Messages are transient, in record batches, so that no disk takes part.  Held against the default
exchange, which has no bindings to look through, in the same rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyqstore

from .loads import QUEUE
from .plots import Plot
from .runs import Case, Options, Result, Sample
from .stores import opened_store

TITLE = "Routing"
SAME = "Keys that come again: 1,000 of them, or as many as there are bindings"
NEW = "Keys that never come again"
DEFAULT = "default exchange"
_EXCHANGE = "x"
_BINDINGS = (1, 10, 100, 1000, 10_000, 100_000)
_ROWS = 10_000
_BATCHES = 10
_KEYS_MOST = 1000
_SEED = 1

PLOTS = [
    Plot("Routing a message, keys that come again", "bindings", "ns_per_message", group=SAME,
         log_x=True, log_y=True),
    Plot("Routing a message, keys that never come again", "bindings", "ns_per_message", group=NEW,
         log_x=True, log_y=True),
]  # fmt: skip

Key = Callable[[int, int], str]


@dataclass(frozen=True)
class Shape:
    """An exchange with bindings of one form, and keys that fit them, or do not."""

    kind: str
    binding: Callable[[int], str]
    key: Key
    """Of a binding's number and a message's number; only the first tells where it goes."""
    routed: bool = True


def _plain(number: int, _message: int) -> str:
    return f"k{number}"


SAME_SHAPES = {
    "direct": Shape("direct", "k{}".format, _plain),
    "direct, unroutable": Shape(
        "direct", "k{}".format, lambda number, _: f"none{number}", routed=False
    ),
    "fanout to one queue": Shape("fanout", "k{}".format, _plain),
    "topic, words": Shape("topic", "a.k{}.b".format, lambda number, _: f"a.k{number}.b"),
    "topic, k.*.x": Shape("topic", "k{}.*.x".format, lambda number, _: f"k{number}.y.x"),
    "topic, k.#": Shape("topic", "k{}.#".format, lambda number, _: f"k{number}.y.z"),
    "topic, #.k": Shape("topic", "#.k{}".format, lambda number, _: f"y.z.k{number}"),
    "topic, *.k.#.x": Shape("topic", "*.k{}.#.x".format, lambda number, _: f"y.k{number}.z.x"),
}
NEW_SHAPES = {
    "direct, unroutable": Shape(
        "direct", "k{}".format, lambda _, message: f"n{message}", routed=False
    ),
    "fanout to one queue": Shape("fanout", "k{}".format, lambda _, message: f"n{message}"),
    "topic, k.*.x": Shape("topic", "k{}.*.x".format, lambda number, m: f"k{number}.{m}.x"),
    "topic, k.#": Shape("topic", "k{}.#".format, lambda number, m: f"k{number}.{m}.z"),
    "topic, #.k": Shape("topic", "#.k{}".format, lambda number, m: f"{m}.z.k{number}"),
    "topic, *.k.#.x": Shape("topic", "*.k{}.#.x".format, lambda number, m: f"{m}.k{number}.z.x"),
    "topic, unroutable": Shape(
        "topic", "k{}.*.x".format, lambda number, m: f"k{number}.{m}.y", routed=False
    ),
}


def cases(options: Options) -> list[Case]:
    """Each shape over the bindings, behind the default exchange."""
    batches = options.count(_BATCHES)
    rows = min(_ROWS, options.count(10 * _ROWS, 100))
    most = options.count(max(_BINDINGS))
    counts = dict.fromkeys(min(count, most) for count in options.sweep(*_BINDINGS))
    found = []
    for group, shapes in ((SAME, SAME_SHAPES), (NEW, NEW_SHAPES)):
        found.append(Case(DEFAULT, partial(_run_default, rows, batches), group=group))
        for name, shape in shapes.items():
            for bindings in counts:
                run = partial(_run, shape, bindings, rows, batches)
                found.append(Case(name, run, {"bindings": bindings}, DEFAULT, group))
    return found


def _run_default(rows: int, batches: int, directory: Path) -> Sample:
    with opened_store(directory) as store, store.channel() as channel:
        channel.queue_declare(QUEUE)
        data = [_batch([QUEUE] * rows)] * batches
        return _published(store, channel, "", data, rows * batches)


def _run(shape: Shape, bindings: int, rows: int, batches: int, directory: Path) -> Sample:
    """Bind, then time the publishing: every binding but a few of the many has its turn."""
    with opened_store(directory) as store, store.channel() as channel:
        channel.queue_declare(QUEUE)
        channel.exchange_declare(_EXCHANGE, shape.kind)
        for number in range(bindings):
            channel.queue_bind(QUEUE, _EXCHANGE, shape.binding(number))
        choose = random.Random(_SEED)
        known = [choose.randrange(bindings) for _ in range(min(bindings, _KEYS_MOST))]
        keys = [shape.key(choose.choice(known), message) for message in range(rows * batches)]
        data = [_batch(keys[first : first + rows]) for first in range(0, len(keys), rows)]
        return _published(store, channel, _EXCHANGE, data, len(keys) if shape.routed else 0)


def _batch(keys: list[str]) -> Any:
    """Rows of one byte: what is measured is their way."""
    return pa.record_batch({"body": pa.array([b"x"] * len(keys), pa.binary()), "routing_key": keys})


def _published(
    store: pyqstore.Store, channel: pyqstore.Channel, exchange: str, data: list[Any], routed: int
) -> Sample:
    transient = pyqstore.Properties(delivery_mode=1)
    start = time.perf_counter()
    for batch in data:
        channel.publish_batch(batch, exchange, properties=transient)
    store.sync()
    seconds = time.perf_counter() - start
    if store.queue_status(QUEUE)["messages_ready"] != routed:
        raise RuntimeError("messages went elsewhere than their bindings say")
    messages = sum(batch.num_rows for batch in data)
    return Sample(seconds, messages, figures={"ns_per_message": seconds * 1e9 / messages})


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    del results
    return [
        "The ratio is messages a second over those of the default exchange; ns per message has all"
        " of publishing in it, not routing alone.",
        "The store remembers where keys went: those that never come again show what looking takes.",
        "All bindings lead to one queue, which gets each message once.",
    ]
