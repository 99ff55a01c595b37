"""What reading a store does, in steps that run in different processes; nothing here knows Spark.

A planning process opens the store for reading, names the rows and closes it.  Every task opens it
again for reading, which any number of processes may do at once, reads its part and closes it.  No
file is written.  Where another process has the store open they ask that one.  An owner that cannot
be asked keeps readers out, and readers keep an owner out, so each waits for the other for a while.

Rows of a stream are known by their offsets, so its parts may be read one by one, again and in any
order.  A queue may change between two openings: one task reads all of it, in one opening.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from . import lease
from .opening import asking
from .options import OptionError, ReadOptions
from .received import as_spark, stream_columns

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore
    from pyqstore.flight.asked import Asked
    from pyqstore.flight.remote_stream import ReadStream

PART_BYTES = 64 << 20
_FRESH_S = 1.0


class SourceError(RuntimeError):
    """What is to be read is not there, or not any more."""


@dataclass(frozen=True)
class Part:
    """The rows of one task: of a stream those from ``start`` to before ``stop``; of a queue all of
    them, or what lies between.

    ``keys``: only these routing keys; None: all.  ``since``, ``until``: of a queue, only what has a
    property ``timestamp`` from the one to before the other.
    """

    start: int = 0
    stop: int | None = None
    keys: tuple[str, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        return self.keys == () or (self.stop is not None and self.start >= self.stop)


@dataclass(frozen=True)
class Wanted:
    """What filters leave: ``Part`` without times, and times, ``since`` to before ``until``."""

    part: Part = Part()
    since: datetime | None = None
    until: datetime | None = None

    def offsets(self, start: int | None, stop: int | None) -> Wanted:
        """Also from start on, and before stop."""
        part = self.part
        if start is not None:
            part = replace(part, start=max(part.start, start))
        if stop is not None:
            part = replace(part, stop=stop if part.stop is None else min(part.stop, stop))
        return replace(self, part=part)

    def times(self, since: datetime | None, until: datetime | None) -> Wanted:
        """Also of ``since`` or later, and before ``until``."""
        after = [when for when in (self.since, since) if when is not None]
        before = [when for when in (self.until, until) if when is not None]
        return replace(
            self, since=max(after) if after else None, until=min(before) if before else None
        )

    def keys(self, keys: Sequence[str]) -> Wanted:
        """Also with one of these routing keys."""
        kept = tuple(
            key for key in dict.fromkeys(keys) if self.part.keys is None or key in self.part.keys
        )
        return replace(self, part=replace(self.part, keys=kept))

    @property
    def of_queue(self) -> Part:
        """What is read of a queue, which has no place for a time: each message is looked at."""
        return replace(self.part, since=self.since, until=self.until)


EVERYTHING = Wanted()


@contextmanager
def open_source(options: ReadOptions, *, read_only: bool = True) -> Iterator[Asked]:
    """The store, to be asked, with the queue or the stream in it.

    Raises:
        SourceError: there is none of that name, or it is of the other kind.
        And as ``open_store``.
    """
    with asking(options.path, wait_s=options.lock_timeout, read_only=read_only) as store:
        check_source(store, options)
        yield store


def check_source(store: pyqstore.Store | Asked, options: ReadOptions) -> None:
    """SourceError unless the store has what is to be read."""
    import pyqstore

    name = options.stream or options.queue
    try:
        is_stream = store.queue_status(name).stream
    except pyqstore.NotFound as error:
        kinds = {other: store.queue_status(other).stream for other in store.queues()}
        there = [other for other, kind in kinds.items() if kind == bool(options.stream)]
        raise SourceError(
            f"no {options.what} in the store {options.path}; there are "
            f"{', '.join(map(repr, there[:20])) or 'none'}"
        ) from error
    if is_stream != bool(options.stream):
        right = "stream" if is_stream else "queue"
        raise SourceError(f"'{name}' is a {right}: give it as option '{right}'")


# Streams.


def offset_of(
    store: Asked, options: ReadOptions, place: str | int | datetime | None, default: str
) -> int:
    """The offset that an option means.  SourceError: an offset that is not kept any more."""
    stream = store.stream(options.stream)
    offset, first = stream.offset_of(default if place is None else place), stream.first
    if isinstance(place, int) and offset < first:
        raise SourceError(
            f"{options.what} begins at offset {first}: what was before {first} is dropped, and "
            f"offset {place} with it"
        )
    return offset


def group_offset(store: Asked, options: ReadOptions, default: int) -> int:
    """Where the options' group goes on; ``default`` if it has no cursor."""
    from pyqstore import Committed

    return store.stream(options.stream).offset_of(Committed(options.group or "", default))


def stream_parts(options: ReadOptions, wanted: Wanted = EVERYTHING) -> list[Part]:
    """What a job reads, divided among tasks.

    Raises:
        SourceError: there is no such stream, or the starting offset was dropped.
        And as ``open_store``.
    """
    # A lease is written.
    with open_source(options, read_only=not options.lease) as store:
        starting = offset_of(store, options, options.starting, "first")
        if options.lease:  # whatever is looked up from here on is there
            lease.take(store, options.stream, max(starting, wanted.part.start), options.lease)
        stream = store.stream(options.stream)
        status = stream.status()
        start = max(starting, wanted.part.start, status.first)
        ends = [offset_of(store, options, options.ending, "next"), status.next]
        if wanted.part.stop is not None:
            ends.append(wanted.part.stop)
        if wanted.since is not None:
            start = max(start, stream.offset_at(wanted.since))
        if wanted.until is not None:
            ends.append(stream.offset_at(wanted.until))
        whole = Part(start, min(ends), wanted.part.keys)
        return [] if whole.is_empty else divided(status, options, whole)


def divided(status: pyqstore.StreamStatus, options: ReadOptions, whole: Part) -> list[Part]:
    """Parts of about ``PART_BYTES``, and at least as many as the options say.

    A block of the stream that lies across a border is read by both sides.
    """
    assert whole.stop is not None
    rows = whole.stop - whole.start
    kept = max(1, status.next - status.first)
    stored = max(status.disk_bytes, status.ram_bytes) * rows // kept
    parts = min(rows, max(options.min_partitions, -(-stored // PART_BYTES)))
    borders = [whole.start + rows * number // parts for number in range(parts + 1)]
    return [replace(whole, start=start, stop=stop) for start, stop in itertools.pairwise(borders)]


def read_stream(options: ReadOptions, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in a task.

    Raises:
        SourceError: some are not there any more, or this machine does not see the store.
        And as ``open_store``.
    """
    import pyqstore

    with _in_task(options) as store:
        stream = store.stream(options.stream)
        if part.stop is None or stream.next < part.stop:
            raise gone(options, part, stream)
        rows = 0
        keys = None if part.keys is None else list(part.keys)
        try:
            columns = stream_columns(schema.names)
            for batch in stream.read(part.start, part.stop, columns, keys):
                rows += batch.num_rows
                yield as_spark(batch, schema)
        except pyqstore.OffsetOutOfRange as error:
            raise gone(options, part, stream) from error
        if keys is None and rows != part.stop - part.start:
            raise gone(options, part, stream)


MADE_ANEW = (
    "{} was deleted and made anew since the query's checkpoint was written. To go on with what"
    " there is, start a query with a new checkpoint"
)


def gone(options: ReadOptions, part: Part, stream: ReadStream) -> SourceError:
    """Says which rows are missing, and why that can be."""
    return SourceError(
        f"{options.what} has the offsets {stream.first} to {stream.next - 1}, and "
        f"{part.start} to {(part.stop or 0) - 1} are to be read: they were dropped by the stream's "
        f"limits before they were read, or the stream was deleted and made anew. To go on with "
        f"what there is, start a query with a new checkpoint"
    )


# Queues.


def queue_parts(options: ReadOptions, wanted: Wanted = EVERYTHING) -> list[Part]:
    """What a job that browses a queue reads: one part, as a queue may change between two openings.

    Raises:
        SourceError: there is no such queue.
        And as ``open_store``.
    """
    with open_source(options):
        return [] if wanted.part.is_empty else [wanted.of_queue]


def read_queue(options: ReadOptions, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a queue as they are now, in a task; nothing is delivered."""
    with _in_task(options) as store:
        for batch in store.browse(options.queue, part.start):
            kept = matching(batch, part)
            if kept.num_rows:
                yield as_spark(kept, schema)


def matching(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """Those of a queue's rows that a part asks for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pa.timestamp("us", "UTC")
    if part.stop is not None:
        batch = batch.filter(pc.less(batch["sequence"], pa.scalar(part.stop, pa.uint64())))
    if part.keys is not None:
        keys = batch["routing_key"].cast(pa.string())
        batch = batch.filter(pc.is_in(keys, pa.array(part.keys, pa.string())))
    for compare, bound in ((pc.greater_equal, part.since), (pc.less, part.until)):
        if bound is not None:  # a filter leaves out what has no time, as SQL does
            times = batch["timestamp"].cast(kind)
            batch = batch.filter(compare(times, pa.scalar(bound, kind)))
    return batch


@contextmanager
def _in_task(options: ReadOptions) -> Iterator[Asked]:
    with asking_in_task(options) as store:
        check_source(store, options)
        yield store


@contextmanager
def asking_in_task(options: ReadOptions) -> Iterator[Asked]:
    """The store, to be asked.  SourceError: this machine does not see it; and as ``open_store``."""
    reached = ExitStack()
    try:
        store = reached.enter_context(asking(options.path, wait_s=options.lock_timeout))
    except OptionError as error:
        raise SourceError(
            f"executor {socket.gethostname()} does not see {options.path}: a store that Spark "
            f"reads must lie in a directory that every executor sees under this name"
        ) from error
    with reached:
        yield store


class Watch:
    """Tells without opening the store whether it may have changed.

    A query that waits for rows asks a hundred times a second, and each opening would keep an owner
    out for a moment and replay the journal.  Everything durable goes through the journal's files.
    """

    def __init__(self, path: str) -> None:
        self._journal = Path(path) / "journal"
        self._seen: object = None

    def note(self) -> None:
        """The store is open here, and nobody changes it."""
        seen, newest = self._look()
        # A change in the same moment need not change a file's time.
        self._seen = seen if time.time() - newest > _FRESH_S else None

    def is_unchanged(self) -> bool:
        """Whether everything is as it was at ``note``."""
        return self._seen is not None and self._look()[0] == self._seen

    def _look(self) -> tuple[object, float]:
        try:
            found = [(entry.name, entry.stat()) for entry in os.scandir(self._journal)]
        except OSError:
            return None, time.time()
        newest = max((stat.st_mtime for _, stat in found), default=time.time())
        marks = [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found]
        return sorted(marks), newest
