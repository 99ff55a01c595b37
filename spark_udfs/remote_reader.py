"""Reading through Arrow Flight: streams, in parts and by queries, and queues that are browsed.

Every server is a partition at least.  Rows wait at the server until a task asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from . import claims, lease, remote_claims
from .lease import Renewal
from .options import ReadOptions
from .reader import QStoreFilteringReader, QStoreReader
from .reading import Part, SourceError, Wanted, divided, matching
from .received import as_spark, stream_columns
from .remote import Remote, remote_stream
from .workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyqstore.flight.client import Client


@dataclass
class RemotePartition(InputPartition):
    """Rows at one server.  No base constructor: ``value`` is Spark's."""

    shard: int
    part: Part
    lease: str = ""


class RemoteReader(QStoreReader):
    """A batch read.  Pickled to every task, so it holds nothing open."""

    def __init__(self, options: ReadOptions, schema: StructType, remote: Remote) -> None:
        """ColumnError: the schema names what is not there."""
        super().__init__(options, schema)
        self.remote = remote

    def partitions(self) -> Sequence[InputPartition]:
        """Raises SourceError, ``pyqstore.Error`` before a task runs."""
        if self.options.drain:
            return self._drained() or [RemotePartition(0, Part(0, 0))]
        found: list[RemotePartition] = []
        for shard in range(self.remote.count):
            with self.remote.client(shard) as client:
                check_source(client, self.options)
                held, parts = "", [self.wanted.of_queue]
                if self.options.stream:
                    held = _take_lease(client, self.options, self.wanted)
                    parts = stream_parts(client, self.options, self.wanted)
                found += [RemotePartition(shard, part, held) for part in parts if not part.is_empty]
        return found or [RemotePartition(0, Part(0, 0))]

    def _drained(self) -> list[InputPartition]:
        name = claims.drain_claim(self.options.queue, self.options.txnid or "")
        found: list[InputPartition] = []
        for shard in range(self.remote.count):
            with self.remote.client(shard) as client:
                check_source(client, self.options)
                claimed = remote_claims.claim(client, self.options.queue, name)
            if claimed is None:
                raise claims.ended(self.options, name, "Client")
            found += remote_claims.partitions(shard, name, claimed)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if isinstance(partition, remote_claims.ClaimPartition):
            return remote_claims.read(self.remote, partition, self.schema)
        assert isinstance(partition, RemotePartition)
        return read_partition(self.options, self.schema, self.remote, partition)


class RemoteFilteringReader(QStoreFilteringReader, RemoteReader):
    """The same with filters."""


def read_partition(
    options: ReadOptions, schema: StructType, remote: Remote, partition: RemotePartition
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows, as Arrow batches of Spark's very types.

    Raises SourceError: some are not there any more.  ``pyqstore.Error``: the server is gone.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    settle()
    wanted = to_arrow_schema(schema, timezone="UTC")
    if partition.part.is_empty:
        return
    with remote.client(partition.shard) as client:
        renewal = Renewal(client, partition.lease, options.lease)
        renewal.keep()
        read = _read_stream if options.stream else _read_queue
        for batch in read(client, options, partition.part, wanted.names):
            yield as_spark(batch, wanted)
            renewal.keep()


def _read_stream(
    client: Client, options: ReadOptions, part: Part, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    import pyqstore

    stream = remote_stream(client, options.stream)
    columns = stream_columns(names)
    keys = None if part.keys is None else list(part.keys)
    rows = 0
    try:
        for batch in stream.read(part.start, part.stop, columns, keys):
            rows += batch.num_rows
            yield batch
    except pyqstore.OffsetOutOfRange as error:
        raise gone(client, options, part) from error
    if keys is None and rows != (part.stop or 0) - part.start:
        raise gone(client, options, part)


def _read_queue(
    client: Client, options: ReadOptions, part: Part, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in client.browse(options.queue, part.start):
        kept = matching(batch, part)
        if kept.num_rows:
            yield kept


def check_source(client: Client, options: ReadOptions) -> None:
    """SourceError unless the server has what is to be read."""
    import pyqstore

    name = options.stream or options.queue
    try:
        is_stream = client.queue_status(name).stream
    except pyqstore.NotFound as error:
        there = ", ".join(map(repr, client.queues()[:20]))
        raise SourceError(
            f"no {options.what} at {client.url}; there are {there or 'none'}"
        ) from error
    if is_stream != bool(options.stream):
        right = "stream" if is_stream else "queue"
        raise SourceError(f"'{name}' at {client.url} is a {right}: give it as option '{right}'")


def offset_of(client: Client, options: ReadOptions, place: Any, default: str) -> int:
    """The offset that an option means.  SourceError: one that is not kept any more."""
    stream = remote_stream(client, options.stream)
    offset = stream.offset_of(default if place is None else place)
    if isinstance(place, int) and offset < stream.first:
        raise gone(client, options, Part(offset, offset + 1))
    return offset


def _take_lease(client: Client, options: ReadOptions, wanted: Wanted) -> str:
    """Of what is to be read; whatever is looked up afterwards is there."""
    if not options.lease:
        return ""
    start = max(offset_of(client, options, options.starting, "first"), wanted.part.start)
    return lease.take(client, options.stream, start, options.lease)


def stream_parts(client: Client, options: ReadOptions, wanted: Wanted) -> list[Part]:
    """What a job reads of one server, divided among tasks."""
    stream = remote_stream(client, options.stream)
    status = stream.status()
    starting = offset_of(client, options, options.starting, "first")
    start = max(starting, wanted.part.start, status.first)
    stop = min(offset_of(client, options, options.ending, "next"), status.next)
    if wanted.part.stop is not None:
        stop = min(stop, wanted.part.stop)
    if wanted.since is not None:
        start = max(start, stream.offset_at(wanted.since))
    if wanted.until is not None:
        stop = min(stop, stream.offset_at(wanted.until))
    whole = Part(start, stop, wanted.part.keys)
    return [] if whole.is_empty else divided(status, options, whole)


def gone(client: Client, options: ReadOptions, part: Part) -> SourceError:
    """Says which rows are missing."""
    status = remote_stream(client, options.stream).status()
    return SourceError(
        f"{options.what} at {client.url} has the offsets {status.first} to {status.next - 1}, and "
        f"{part.start} to {(part.stop or 0) - 1} are to be read: they were dropped by the stream's "
        f"limits before they were read, or the stream was deleted and made anew"
    )
