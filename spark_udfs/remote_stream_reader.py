"""``spark.readStream`` of a stream through Arrow Flight, at one server or at several.

Offsets are JSON, ``{"stream": name, "offsets": [next, ...], "ids": [the stream's, ...]}``, a number
for each server in the order of the option ``url``, which therefore stays as it is for as long as
the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from .lease import MovingLease
from .options import ReadOptions
from .reading import MADE_ANEW, Part, SourceError, divided
from .remote import Clients, Remote, remote_stream
from .remote_reader import RemotePartition, check_source, gone, offset_of, read_partition
from .stream_reader import Offset, _StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyqstore.figures import StreamStatus


class RemoteStreamReader(_StreamReader):
    """Offsets are the streams' own: a batch is the same whenever it is read."""

    def __init__(self, options: ReadOptions, schema: StructType, remote: Remote) -> None:
        """ColumnError: the schema names what is not there."""
        super().__init__(options, schema)
        self.remote = remote
        self._next = [0] * remote.count
        self._ids = [0] * remote.count
        self._target: list[int] | None = None
        self._clients = Clients(remote)
        self._leases = [MovingLease(options.stream, options.lease) for _ in range(remote.count)]

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins.  SourceError: no such stream, or an offset
        that was dropped."""
        starts = [self._start(shard) for shard in range(self.remote.count)]
        self._latest()
        self._done = self._offset(starts)
        return self._offset(starts)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch."""
        begins = self._begins(start)
        self.commit(start)
        for shard, begin in enumerate(begins):
            self._hold(shard, begin)
        ends = self._latest() if self._target is None else self._target
        for shard in range(self.remote.count):
            self._check_same(shard, start)
        for shard, (begin, end) in enumerate(zip(begins, self._next, strict=True)):
            if begin > end:
                raise gone(self._clients.get(shard), self.options, Part(begin, begin + 1))
        ready = [max(0, end - begin) for begin, end in zip(begins, ends, strict=True)]
        if isinstance(limit, ReadMaxRows):
            ready = shares(ready, limit.max_rows)
        if not any(ready):
            return start
        return self._offset([begin + rows for begin, rows in zip(begins, ready, strict=True)])

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._target = self._latest()

    def reportLatestOffset(self) -> Offset:
        """For the query's progress: what was seen last."""
        return self._offset(self._next)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The batch, divided.  SourceError: rows of it were dropped."""
        found: list[InputPartition] = []
        for shard, (begin, stop) in enumerate(
            zip(self._begins(start), self._begins(end), strict=True)
        ):
            part = Part(begin, stop)
            if part.is_empty:
                continue
            self._hold(shard, begin)
            client = self._clients.get(shard)
            status = self._see(shard)
            self._check_same(shard, end)
            if not status.first <= begin <= stop <= status.next:
                raise gone(client, self.options, part)
            held = self._leases[shard].name
            parts = divided(status, self.options, part)
            found += [RemotePartition(shard, one, held) for one in parts]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, the same at each attempt."""
        assert isinstance(partition, RemotePartition)
        return read_partition(self.options, self.schema, self.remote, partition)

    def _finish(self, end: Offset) -> None:
        """Move the group's cursors, if there is a group.  SourceError: a stream was made anew."""
        import pyqstore

        if self.options.group is None:
            return
        for shard, offset in enumerate(self._begins(end)):
            client = self._clients.get(shard)
            self._see(shard)
            self._check_same(shard, end)
            try:
                remote_stream(client, self.options.stream).commit_offset(self.options.group, offset)
            except pyqstore.OffsetOutOfRange as error:
                raise gone(client, self.options, Part(offset, offset + 1)) from error

    def _hold(self, shard: int, offset: int) -> None:
        """Have the stream keep what is there from an offset on, if the options ask for that."""
        if self._leases[shard].is_due():
            self._leases[shard].move(self._clients.get(shard), offset)

    def stop(self) -> None:
        """The query ends."""
        self._clients.close()

    def _start(self, shard: int) -> int:
        from pyqstore import Committed

        client, options = self._clients.get(shard), self.options
        check_source(client, options)
        start = offset_of(client, options, options.starting, "first")
        if options.group is None:
            return start
        stream = remote_stream(client, options.stream)
        return stream.offset_of(Committed(options.group, start))

    def _latest(self) -> list[int]:
        for shard in range(self.remote.count):
            self._see(shard)
        return list(self._next)

    def _see(self, shard: int) -> StreamStatus:
        """What the stream at one server is now."""
        status = remote_stream(self._clients.get(shard), self.options.stream).status()
        self._next[shard], self._ids[shard] = status.next, status.id
        return status

    def _check_same(self, shard: int, offset: Offset) -> None:
        """SourceError: it is one of a stream that was deleted."""
        noted = offset["ids"][shard] if "ids" in offset else 0
        if noted and self._ids[shard] not in (0, noted):  # an old server tells none
            what = f"{self.options.what} at {self._clients.get(shard).url}"
            raise SourceError(MADE_ANEW.format(what))

    def _begins(self, offset: Offset) -> list[int]:
        """SourceError: an offset of another source, out of an old checkpoint."""
        self.check(offset, "stream")
        found = offset.get("offsets")
        if not isinstance(found, list) or len(found) != self.remote.count:
            raise SourceError(
                f"the checkpoint is that of a query that read {offset}, and this one reads "
                f"{self.remote.count} servers: give it a checkpoint of its own"
            )
        return found

    def _offset(self, offsets: Sequence[int]) -> Offset:
        return {"stream": self.options.stream, "offsets": list(offsets), "ids": list(self._ids)}


def shares(ready: Sequence[int], most: int) -> list[int]:
    """So many rows of each server that all together are ``most``, as even as what is there."""
    found = [0] * len(ready)
    left = min(most, sum(ready))
    while left:
        open_shards = [shard for shard, rows in enumerate(ready) if found[shard] < rows]
        share = max(1, left // len(open_shards))
        for shard in open_shards:
            more = min(share, ready[shard] - found[shard], left)
            found[shard] += more
            left -= more
    return found
