"""One message to many queues: bytes journalled and on disk over one copy, copies a second.

A body is to be written once, whatever the number of queues it goes to.  Held against the bodies
streamed to the disk once, in the same rounds.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyqstore

from . import floor
from .loads import batch_of, publish_batches
from .plots import Plot
from .runs import Case, Options, Result, Sample
from .stores import disk_bytes, opened_store, settle

TITLE = "One message to many queues"
_EXCHANGE = "fan"
_QUEUES = (1, 2, 5, 10, 20, 50, 100)
_BODY_SIZES = (100, 1024, 8192)
_BODIES_BYTES = 16 << 20
_MESSAGES_MOST = 20_000
_BATCH_ROWS = 1000
_MESSAGE_FILE_BYTES = 1 << 20

_X = "queues that each message goes to"
PLOTS = [
    Plot("Bytes written for each byte of one copy: journal and message store", "queues",
         "written_over_one_copy", log_x=True, x_label=_X, unit="times one copy"),
    Plot("Bytes on disk after a checkpoint for each byte of one copy", "queues",
         "disk_over_one_copy", log_x=True, log_y=True, x_label=_X, unit="times one copy"),
    Plot("Copies into queues", "queues", "copies_per_s", log_x=True, log_y=True, x_label=_X,
         unit="copies/s"),
    Plot("Bodies published, over the disk's stream of one copy", "queues", "ratio_to_floor",
         log_x=True, log_y=True, x_label=_X),
]  # fmt: skip


class _Written(NamedTuple):
    """What publishing took."""

    seconds: float
    written_bytes: int
    disk_bytes: int


def cases(options: Options) -> list[Case]:
    """From one queue to a hundred, for each size of body."""
    total = options.count(_BODIES_BYTES, 4 * max(_BODY_SIZES))
    found = [floor.stream(max(total, 4 * floor.MIB))]
    for body_bytes, queues in itertools.product(_BODY_SIZES, options.sweep(*_QUEUES)):
        # Fewer would be less than the blocks of a file can tell.
        count = min(total // body_bytes, options.count(_MESSAGES_MOST, 300))
        run = partial(_run, body_bytes, queues, count)
        name = f"bodies of {floor.size(body_bytes)}"
        found.append(Case(name, run, {"queues": queues}, floor.STREAM))
    return found


def _run(body_bytes: int, queues: int, count: int, directory: Path) -> Sample:
    """The same messages to one queue, then to all, each in a store of its own."""
    one = _publish(directory / "one", body_bytes, 1, count)
    many = one if queues == 1 else _publish(directory / "many", body_bytes, queues, count)
    figures = {
        "copies_per_s": count * queues / many.seconds,
        "written_over_one_copy": many.written_bytes / one.written_bytes,
        "disk_over_one_copy": many.disk_bytes / one.disk_bytes,
        "written_bytes_per_message": many.written_bytes / count,
        "disk_bytes_per_message": many.disk_bytes / count,
    }
    return Sample(many.seconds, count, count * body_bytes, figures=figures)


def _publish(directory: Path, body_bytes: int, queues: int, count: int) -> _Written:
    """Publish to so many queues, until all is confirmed; then a checkpoint, and look what is
    there."""
    directory.mkdir()
    batch = batch_of(_BATCH_ROWS, body_bytes)
    with (
        opened_store(directory, message_file_bytes=_MESSAGE_FILE_BYTES) as store,
        store.channel() as channel,
    ):
        channel.exchange_declare(_EXCHANGE, "fanout", durable=True)
        for number in range(queues):
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", _EXCHANGE)
        channel.confirm_select()
        store.checkpoint()
        settle(Path(store.path))
        written_before, disk_before = _written(store), _kept(store)
        start = time.perf_counter()
        publish_batches(channel, batch, count, _EXCHANGE, None)
        seconds = time.perf_counter() - start
        written = _written(store) - written_before
        if any(store.queue_status(name)["messages_ready"] != count for name in store.queues()):
            raise RuntimeError("a queue did not get every message")
        store.checkpoint()
        return _Written(seconds, written, _kept(store) - disk_before)


def _written(store: pyqstore.Store) -> int:
    numbers = store.stats()
    return int(numbers["bytes_journalled"] + numbers["bytes_stored"])


def _kept(store: pyqstore.Store) -> int:
    """What the store's files take without the journal, whose files are there to be used again."""
    path = Path(store.path)
    return disk_bytes(path) - disk_bytes(path / "journal")


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    del results
    return [
        "One copy: what the same messages take to one queue, in the same round.",
        "On disk is what files occupy after a checkpoint, the journal's own files not counted: they"
        " are used again.",
        f"Files of the message store are of {floor.size(_MESSAGE_FILE_BYTES)} here: beside so few"
        " messages the usual ones of 64 MiB would tell of themselves alone.",
    ]
