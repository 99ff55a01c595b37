"""Record batches: durable publishing over rows of a batch, columns, types of body.

Beside basic_publish one by one, and held against the same bytes of bodies streamed to the disk, in
the same rounds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import pyqstore

from . import floor
from .loads import PERSISTENT, QUEUE, bodies, confirm
from .plots import Plot
from .runs import Case, Options, Result, Sample
from .stores import opened

TITLE = "Publishing record batches"
BODY_BYTES = 100
ROWS = "Rows of a batch, bodies of 100 B"
COLUMNS = "Columns of a batch, 10,000 rows, bodies of 100 B"
TYPES = "Type of the body's column, 10,000 rows of 100 B"

_ROWS = (1, 10, 100, 1000, 10_000, 100_000)
_MESSAGES = 500_000
_STEPS_MOST = 1000  # with a wait after each
_BATCH_ROWS = 10_000
_BATCHES = 30
_SINGLES = 50_000

PLOTS = [
    Plot("Publishing over the rows of a batch", "rows", "messages_per_s", group=ROWS,
         log_x=True, log_y=True, x_label="rows of a batch, or messages between waits"),
    Plot("Over the rows of a batch: ratio to the disk's stream", "rows", "ratio_to_floor",
         group=ROWS, log_x=True, log_y=True, x_label="rows of a batch, or messages between waits"),
    Plot("What columns cost: 10,000 rows a batch", "case", "messages_per_s", group=COLUMNS),
    Plot("What the type of the body costs: 10,000 rows a batch", "case", "messages_per_s",
         group=TYPES),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """All sweeps, each behind the stream of its bytes."""
    return [*rows(options), *columns(options), *types(options)]


def rows(options: Options) -> list[Case]:
    """Batches from one row on, waited for one by one or all at the end, and singles."""
    total = options.count(_MESSAGES, 100)
    found = [_stream(total, ROWS)]
    ways: dict[str, tuple[Step, bool]] = {
        "batches, one wait at the end": (publish_batch, False),
        "batches, a wait for each": (publish_batch, True),
        "basic_publish, a wait after so many": (publish_singly, True),
    }
    for (name, (step, waits)), count in itertools.product(ways.items(), options.sweep(*_ROWS)):
        most = total if step is publish_batch else options.count(_SINGLES, 100)
        steps = max(1, min(most // count, options.count(_STEPS_MOST, 5)))
        run = partial(_run, step, {"body": bodies(count, BODY_BYTES)}, steps, waits)
        found.append(Case(name, run, {"rows": count}, floor.STREAM, ROWS))
    return found


def columns(options: Options) -> list[Case]:
    """From the body alone to all that a message can carry."""
    return [
        _stream(_BATCH_ROWS * options.count(_BATCHES), COLUMNS),
        *(_case(name, given, options, COLUMNS) for name, given in columns_of(_rows(options))),
    ]


def types(options: Options) -> list[Case]:
    """Each layout that Arrow has for bytes and text."""
    given = bodies(_rows(options), BODY_BYTES)
    return [
        _stream(_BATCH_ROWS * options.count(_BATCHES), TYPES),
        *(
            _case(str(kind), {"body": given.cast(pa.string()).cast(kind)}, options, TYPES)
            for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.string())
        ),
    ]


def columns_of(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The body alone, then with one thing more each time."""
    given: dict[str, Any] = {"body": bodies(count, BODY_BYTES)}
    yield "body", dict(given)
    given["routing_key"] = pa.array([QUEUE] * count)
    yield "+ routing_key", dict(given)
    headers = [[("shop", "paris"), ("number", str(number))] for number in range(count)]
    given["headers"] = pa.array(headers, pa.map_(pa.string(), pa.string()))
    yield "+ headers, 2 each", dict(given)
    texts = [f"{number:08d}" for number in range(count)]
    given |= {
        name: pa.array(texts)
        for name in ("message_id", "correlation_id", "type", "app_id", "reply_to", "user_id")
    }
    given |= {
        "content_type": pa.array(["text/plain"] * count).dictionary_encode(),
        "content_encoding": pa.array(["utf-8"] * count).dictionary_encode(),
        "priority": pa.array([1] * count, pa.uint8()),
        "delivery_mode": pa.array([2] * count, pa.uint8()),
        "expiration_ms": pa.array([60_000] * count, pa.int64()),
        "timestamp": pa.array(range(count), pa.timestamp("s", "UTC")),
    }
    yield "+ all properties", given


def _rows(options: Options) -> int:
    return min(_BATCH_ROWS, options.count(_MESSAGES, 100))


def _stream(messages: int, group: str) -> Case:
    return floor.stream(max(messages * BODY_BYTES, 4 * floor.MIB), group=group)


def _case(name: str, given: dict[str, Any], options: Options, group: str) -> Case:
    run = partial(_run, publish_batch, given, options.count(_BATCHES), False)
    return Case(name, run, floor=floor.STREAM, group=group)


# What is measured.

Step = Callable[[pyqstore.Channel, Any], None]


def publish_batch(channel: pyqstore.Channel, batch: Any) -> None:
    """All rows at once."""
    channel.publish_batch(batch, "", QUEUE)


def publish_singly(channel: pyqstore.Channel, batch: Any) -> None:
    """As many messages with the same body, one by one."""
    body = b"x" * BODY_BYTES
    for _ in range(batch.num_rows):
        channel.basic_publish("", QUEUE, body, PERSISTENT)


def _run(step: Step, given: dict[str, Any], steps: int, waits: bool, directory: Path) -> Sample:
    """So many steps, with a wait for the confirms after each, or after all of them."""
    batch = pa.record_batch(given)
    messages = steps * batch.num_rows
    with opened(directory, messages, BODY_BYTES) as channel:
        start = time.perf_counter()
        for _ in range(steps):
            step(channel, batch)
            if waits:
                confirm(channel)
        confirm(channel)
        seconds = time.perf_counter() - start
    return Sample(seconds, messages, messages * BODY_BYTES)


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    del results
    return [
        "Each round ends when everything is confirmed.  The stream writes the bodies alone: records"
        " carry some more.",
        "Batches are made before the clock runs.",
    ]
