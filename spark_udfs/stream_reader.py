"""``spark.readStream.format("pyqstore")``: from a stream, and from a queue.

Which process runs what (Spark 4.2): everything but ``read()`` one long-lived process for each
query, in which the store is never left open.  Spark writes the end of a batch to its checkpoint
before it asks for the batch's partitions.  It calls ``commit()`` with it when the next batch begins
or the query starts again, which may be never; but it asks for what follows a batch as soon as that
is in its log as done, also when nothing follows.  Both are taken for the end of the batch.

Offsets are JSON.  Of a stream: ``{"stream": name, "offset": next, "id": its own}``.  Of a queue:
``{"queue": name, "query": id, "batch": number, "rows": most}``: the batch's rows are claimed when
Spark asks for its partitions, never before its number is in the checkpoint, so what is consumed has
always a batch that it belongs to.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from . import claims, reading
from .lease import MovingLease
from .opening import asking, patient
from .options import ReadOptions
from .reader import (
    RowsPartition,
    check_schema,
    partitions_of,
    read_partition,
)
from .reading import Part, SourceError, Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyqstore import Store
    from pyqstore.figures import StreamStatus
    from pyqstore.flight.asked import Asked

Offset = dict[str, Any]
_DELAYED_S = 0.5


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both kinds share.  A copy of it is pickled to every task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """ColumnError: the schema names what is not there."""
        check_schema(options, schema)
        self.options = options
        self.schema = schema
        self.watch = Watch(options.path)
        self._done: Offset | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the option maxRowsPerBatch says."""
        most = self.options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, the same at each attempt."""
        return read_partition(self.options, self.schema, partition)

    @patient
    def commit(self, end: Offset) -> None:
        """The batch that ends there is done."""
        if end != self._done:
            self._finish(end)
            self._done = end

    def _finish(self, end: Offset) -> None:
        """Fine if it was done before."""
        raise NotImplementedError

    def check(self, offset: Offset, kind: str) -> None:
        """SourceError: an offset of another source, out of an old checkpoint."""
        name = getattr(self.options, kind)
        if offset.get(kind) != name:
            raise SourceError(
                f"the checkpoint is that of a query that read {offset}, and this one reads "
                f"{self.options.what}: give it a checkpoint of its own"
            )


class QStoreStreamReader(_StreamReader):
    """A stream: offsets are its own, batches are the same whenever they are read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._next = self._id = 0
        self._target: int | None = None
        self._lease = MovingLease(options.stream, options.lease)

    @patient
    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins.

        Raises SourceError (no such stream, an offset that was dropped), StoreBusyError.
        """
        options = self.options
        with reading.open_source(options) as store:
            start = reading.offset_of(store, options, options.starting, "first")
            if options.group is not None:
                start = reading.group_offset(store, options, start)
            self._see(store)
        self._done = self._offset(start)  # nothing to note
        return self._offset(start)

    @patient
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch."""
        self.check(start, "stream")
        self.commit(start)
        self._hold(start["offset"])
        end = self._latest() if self._target is None else self._target
        self._check_same(start)
        if start["offset"] > self._next:
            with reading.open_source(self.options) as store:
                part = Part(start["offset"], start["offset"] + 1)
                raise reading.gone(self.options, part, store.stream(self.options.stream))
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["offset"] + limit.max_rows)
        return self._offset(end) if end > start["offset"] else start

    @patient
    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._target = self._latest()

    def reportLatestOffset(self) -> Offset:
        """For the query's progress: what was seen last."""
        return self._offset(self._next)

    @patient
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The batch, divided.  SourceError: rows of it were dropped."""
        self.check(end, "stream")
        part = Part(start["offset"], end["offset"])
        if part.is_empty:
            return []
        self._hold(part.start)
        with reading.open_source(self.options) as store:
            stream = store.stream(self.options.stream)
            status = self._see(store)
            self._check_same(end)
            if not status.first <= part.start <= end["offset"] <= status.next:
                raise reading.gone(self.options, part, stream)
            return [RowsPartition(each) for each in reading.divided(status, self.options, part)]

    def _finish(self, end: Offset) -> None:
        """Move the group's cursor, if there is one.  SourceError: the stream was made anew."""
        if self.options.group is None:
            return
        name, offset = self.options.stream, end["offset"]
        with asking(self.options.path, wait_s=self.options.lock_timeout, read_only=False) as store:
            stream = store.stream(name)
            status = self._see(store)
            self._check_same(end)
            if offset > status.next:
                raise reading.gone(self.options, Part(offset, offset + 1), stream)
            stream.commit_offset(self.options.group, offset)

    def _hold(self, offset: int) -> None:
        """Have the stream keep what is there from an offset on, if the options ask for that."""
        if self._lease.is_due():
            with reading.open_source(self.options, read_only=False) as store:
                self._lease.move(store, offset)

    def _offset(self, offset: int) -> Offset:
        return {"stream": self.options.stream, "offset": offset, "id": self._id}

    def _see(self, store: Store | Asked) -> StreamStatus:
        """What the stream is now."""
        status = store.stream(self.options.stream).status()
        self._next, self._id = status.next, status.id
        return status

    def _check_same(self, offset: Offset) -> None:
        """SourceError: it is one of a stream that was deleted."""
        if self._id not in (0, offset.get("id", self._id)):
            raise SourceError(reading.MADE_ANEW.format(self.options.what))

    def _latest(self) -> int:
        if not self.watch.is_unchanged():
            with reading.open_source(self.options) as store:
                if store.is_still:
                    self.watch.note()
                self._see(store)
        return self._next


class QStoreQueueReader(_StreamReader):
    """A queue: a batch's messages are consumed once, and kept until it is done (``claims``)."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._taken = 0
        self._target: int | None = None
        self._next_look = 0.0

    @patient
    def initialOffset(self) -> Offset:
        """Nothing is taken.  SourceError: there is no such queue."""
        self._look()
        return {"queue": self.options.queue, "query": uuid.uuid4().hex, "batch": 0, "rows": None}

    def _look(self) -> None:
        """SourceError: there is no such queue."""
        with reading.open_source(self.options):
            pass

    @patient
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The next batch's number, if there are messages; nothing is taken yet."""
        self.check(start, "queue")
        self.commit(start)
        left = None if self._target is None else self._target - self._taken
        if (left is not None and left <= 0) or not self._ready():
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bounds = [bound for bound in (most, left) if bound is not None]
        return {**start, "batch": start["batch"] + 1, "rows": min(bounds, default=None)}

    @patient
    def prepareForTriggerAvailableNow(self) -> None:
        """Take no more than what is there now."""
        self._target = self._ready()

    @patient
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Consume the batch, or tell again what it consumed."""
        self.check(end, "queue")
        ends = [(offset["query"], offset["batch"]) for offset in (start, end)]
        return [] if end["batch"] == 0 or ends[0] == ends[1] else self._consume(end)

    def _consume(self, end: Offset) -> Sequence[InputPartition]:
        batch = self._batch(end)
        taken = claims.take(self.options, batch, rows_max=end["rows"])
        self._taken += taken.rows
        return partitions_of(batch, taken)

    def _finish(self, end: Offset) -> None:
        if end["batch"]:
            claims.end(self.options, self._batch(end))

    def _batch(self, offset: Offset) -> claims.QueueBatch:
        return claims.QueueBatch(self.options.path, offset["query"], offset["batch"])

    def _ready(self) -> int:
        if self.watch.is_unchanged() or time.monotonic() < self._next_look:
            return 0
        with reading.open_source(self.options) as store:
            status = store.queue_status(self.options.queue)
            if status.messages_ready == 0 and status.messages_delayed:
                self._next_look = time.monotonic() + _DELAYED_S  # no file changes when one is due
            elif status.messages_ready == 0 and store.is_still:
                self.watch.note()
            return int(status.messages_ready)
