"""Messages that are consumed through Arrow Flight: claimed by the server, in its store.

The claims are those of ``pyqstore.claiming``, whose chunks tasks read by browsing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from .claims import PREFIX, Chunks, check_count, drain_claim, parts_of
from .received import as_spark
from .remote import Remote
from .workers import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyqstore.claiming import Claimed
    from pyqstore.flight.client import Client


@dataclass
class ClaimPartition(InputPartition):
    """Rows that were claimed at one server.  No base constructor: ``value`` is Spark's."""

    shard: int
    chunks: Chunks


def claim(
    client: Client,
    queue: str,
    name: str,
    rows_max: int | None = None,
    done: Sequence[str] = (),
) -> Claimed | None:
    """As ``claiming.claim``; the claims in ``done`` are ended, and forgotten."""
    from pyqstore.claiming import Claimed

    told = client._link.call("claim", queue=queue, name=name, rows_max=rows_max, done=list(done))
    return None if told is None else Claimed(*told)


def end(client: Client, name: str) -> bool:
    """As ``claiming.end_claim``."""
    return bool(client._link.call("end_claim", name=name))


def partitions(shard: int, name: str, claimed: Claimed) -> list[InputPartition]:
    """The claim, divided among tasks."""
    return [ClaimPartition(shard, chunks) for chunks in parts_of(name, claimed.chunks)]


def read(remote: Remote, partition: ClaimPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of some chunks, in a task.

    Raises SourceError: they are not there any more.  ``pyqstore.Error``: the server is gone.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    import pyqstore
    from pyqstore.claiming import rows_of

    settle()
    wanted = to_arrow_schema(schema, timezone="UTC")
    part, count = partition.chunks, 0
    with remote.client(partition.shard) as client:
        try:
            for batch in client.browse(part.claim, part.first, part.count):
                for body in batch["body"]:
                    count += 1
                    for rows in rows_of(body):
                        yield as_spark(rows, wanted)
        except pyqstore.NotFound:
            count = 0
    check_count(part, count, remote.url(partition.shard))


def end_drain(remote: Remote, queue: str, txnid: str) -> bool:
    """As ``claims.end_drain``, at all servers."""
    name, was_there = drain_claim(queue, txnid), False
    for shard in range(remote.count):
        with remote.client(shard) as client:
            was_there = end(client, name) or was_there
    return was_there


def release(remote: Remote, queue: str) -> int:
    """As ``claims.release_claims``, at all servers."""
    released = 0
    for shard in range(remote.count):
        with remote.client(shard) as client:
            released += client._link.call("release_claims", queue=queue, prefix=PREFIX)
    return released
