"""``spark.readStream`` of a queue through Arrow Flight, at one server or at several.

Offsets are those of ``stream_reader.QStoreQueueReader``.  A batch has a claim at each server, of
the same name, in which its rows are until the batch is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from . import claims, remote_claims
from .options import ReadOptions
from .remote import Clients, Remote
from .remote_reader import check_source
from .stream_reader import Offset, QStoreQueueReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RemoteQueueReader(QStoreQueueReader):
    """A queue: a batch's messages are consumed once, and kept until it is done."""

    def __init__(self, options: ReadOptions, schema: StructType, remote: Remote) -> None:
        """ColumnError: the schema names what is not there."""
        super().__init__(options, schema)
        self.remote = remote
        self._clients = Clients(remote)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, the same at each attempt."""
        assert isinstance(partition, remote_claims.ClaimPartition)
        return remote_claims.read(self.remote, partition, self.schema)

    def _look(self) -> None:
        for shard in range(self.remote.count):
            check_source(self._clients.get(shard), self.options)

    def _consume(self, end: Offset) -> Sequence[InputPartition]:
        batch = self._batch(end)
        found: list[InputPartition] = []
        rows, count = 0, self.remote.count
        for turn in range(count):  # each batch begins at another server: none is left behind
            shard = (batch.number + turn) % count
            left = None if end["rows"] is None else max(0, end["rows"] - rows)
            claimed = remote_claims.claim(
                self._clients.get(shard),
                self.options.queue,
                batch.claim,
                left,
                [batch.before.claim],
            )
            if claimed is None:
                raise claims.lost(self.options, batch.claim)
            self._taken += claimed.taken
            rows += claimed.rows
            found += remote_claims.partitions(shard, batch.claim, claimed)
        return found

    def _finish(self, end: Offset) -> None:
        for shard in range(self.remote.count if end["batch"] else 0):
            remote_claims.end(self._clients.get(shard), self._batch(end).claim)

    def _ready(self) -> int:
        name = self.options.queue
        return sum(
            int(self._clients.get(shard).queue_status(name).messages_ready)
            for shard in range(self.remote.count)
        )

    def stop(self) -> None:
        """The query ends."""
        self._clients.close()
