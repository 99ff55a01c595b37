"""Messages that a batch of a streaming query consumes from a queue.

By default they are claimed (``pyqstore.claiming``): the claim is a durable queue of the store,
``spark-claim-ID-BATCH``, which has the rows in chunks.  When the batch is done it is deleted.

With ``ack=take`` the rows go to a spool instead (``spool``).  A batch is told again as it was
consumed, whatever the option says by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .opening import changing
from .options import ReadOptions
from .reading import SourceError, check_source, open_in_task
from .received import as_spark
from .spool import Spool, batch_spool, fill
from .staging import StagedFile

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    import pyqstore

PREFIX = "spark-claim-"
PART_CHUNKS = 4
# A chunk is more than its bodies, and may have a single one that is larger than a chunk.
_BODY_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class QueueBatch:
    """A batch of a streaming query: ``query`` as its offsets have it, ``number`` from 1 on."""

    path: str
    query: str
    number: int

    @property
    def claim(self) -> str:
        """The name of the claim's queue, and the key of its last transaction."""
        return f"{PREFIX}{self.query}-{self.number}"

    @property
    def spool(self) -> Spool:
        return batch_spool(self.path, self.query, self.number)

    @property
    def before(self) -> QueueBatch:
        return QueueBatch(self.path, self.query, self.number - 1)


@dataclass(frozen=True)
class Chunks:
    """Chunks of a claim for one task; the claim's first has the number 0."""

    claim: str
    first: int
    count: int


@dataclass(frozen=True)
class Taken:
    """What a batch has: chunks of a claim, or files of a spool.

    Attributes:
        rows: how many messages were consumed by this call; 0 where it told again what there was.
    """

    rows: int
    chunks: tuple[Chunks, ...] = ()
    files: tuple[StagedFile, ...] = ()


def take(options: ReadOptions, batch: QueueBatch, *, rows_max: int | None) -> Taken:
    """Consume what is ready in the queue, once: repeated, it tells the same rows.

    What the store still knows of the batch before goes: that is done.

    Args:
        rows_max: at most so many messages; None: all there are.

    Raises:
        SourceError: there is no such queue, or what was consumed was removed since.
        And as ``open_store``.
    """
    from pyqstore.claiming import end_claim

    with _open(options) as store:
        taken = _take(store, options, batch, rows_max)
        end_claim(store, batch.before.claim)
        for key in (batch.before.claim, batch.before.spool.name):
            store.forget_transaction(key)
    return taken


def end(options: ReadOptions, batch: QueueBatch) -> None:
    """The batch is done: its messages are acknowledged for good.  Fine where they are already."""
    from pyqstore.claiming import end_claim

    if batch.spool.manifest.exists():
        batch.spool.remove()
        return
    with _open(options) as store:
        end_claim(store, batch.claim)


def release_claims(path: str | os.PathLike[str], queue: str) -> int:
    """As ``ending.release_claims``, in a directory."""
    import pyqstore
    from pyqstore.claiming import release

    with pyqstore.open(path, create=False, body_bytes_max=_BODY_BYTES_MAX) as store:
        return release(store, queue, PREFIX)


def read_chunks(options: ReadOptions, part: Chunks, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of some chunks, in a task.

    Raises:
        SourceError: they are not there any more, or this machine does not see the store.
        And as ``open_store``.
    """
    import pyqstore
    from pyqstore.claiming import rows_of

    count = 0
    with open_in_task(options) as store:
        try:
            for batch in store.browse(part.claim, part.first, part.count):
                for body in batch["body"]:
                    count += 1
                    for rows in rows_of(body):
                        yield as_spark(rows, schema)
        except pyqstore.NotFound:
            count = 0
    check_count(part, count, f"the store {options.path}")


def check_count(part: Chunks, count: int, where: str) -> None:
    """SourceError unless so many chunks are those of the part."""
    if count != part.count:
        raise SourceError(
            f"{part.count} chunks of '{part.claim}' are to be read, and {count} are in {where}: "
            f"the batch was done, or was released, meanwhile"
        )


def parts_of(claim: str, count: int) -> tuple[Chunks, ...]:
    """A claim's chunks, divided among tasks."""
    return tuple(
        Chunks(claim, first, min(PART_CHUNKS, count - first))
        for first in range(0, count, PART_CHUNKS)
    )


def lost(options: ReadOptions, claim: str) -> SourceError:
    """Says why a batch has not its rows any more."""
    return SourceError(
        f"what the batch had claimed, '{claim}', is not its own any more: it was released. To go "
        f"on with what is in {options.what}, start a query with a new checkpoint"
    )


def _open(options: ReadOptions) -> AbstractContextManager[pyqstore.Store]:
    return changing(
        options.path, wait_s=options.lock_timeout, settings={"body_bytes_max": _BODY_BYTES_MAX}
    )


def _take(
    store: pyqstore.Store, options: ReadOptions, batch: QueueBatch, rows_max: int | None
) -> Taken:
    from pyqstore.claiming import claim, has_claim, is_lost

    if store.transaction_known(batch.spool.name):
        return Taken(0, files=tuple(batch.spool.files()))
    if is_lost(store, batch.claim):
        raise lost(options, batch.claim)
    has_one = has_claim(store, batch.claim)
    if options.ack == "take" and not has_one:
        fill(store, options, batch.spool, rows_max)
        files = batch.spool.files()
        return Taken(sum(file.rows for file in files), files=tuple(files))
    if not store.transaction_known(batch.claim):
        check_source(store, options)
    claimed = claim(store, options.queue, batch.claim, rows_max)
    if claimed is None:
        raise lost(options, batch.claim)
    return Taken(claimed.taken, parts_of(batch.claim, claimed.chunks))
