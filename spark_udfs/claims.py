"""Messages that a batch of a streaming query, or a job that drains, consumes from a queue.

By default they are claimed (``pyqstore.claiming``): the claim is a durable queue of the store,
``spark-claim-ID-BATCH``, which has the rows in chunks.  When the batch is done it is deleted.

With ``ack=take``, and where a job drains, the rows go to a spool instead (``spool``), if this
process can open the store.  What was consumed is told again as it was, whatever the option says by
then, and whichever process has the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import spool
from .opening import StoreBusyError, asking
from .options import OptionError, ReadOptions
from .reading import SourceError, asking_in_task, check_source
from .received import as_spark
from .spool import Spool, batch_spool, digest_of, drain_spool
from .staging import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore
    from pyqstore.flight.asked import Asked

PREFIX = "spark-claim-"
_DRAINED = "spark-drain-"
_END_S = 3.0  # that the end of a drain waits for the store
PART_CHUNKS = 4
# A chunk is more than its bodies, and may have a single one that is larger than a chunk.
_SETTINGS: dict[str, Any] = {"body_bytes_max": 1 << 30}


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

    def lost(self, options: ReadOptions) -> SourceError:
        """Says why the batch has not its rows any more."""
        return lost(options, self.claim)


@dataclass(frozen=True)
class Drain:
    """What a job drains, ``queue`` under ``txnid``."""

    path: str
    queue: str
    txnid: str

    @property
    def claim(self) -> str:
        """As of a batch."""
        return drain_claim(self.queue, self.txnid)

    @property
    def spool(self) -> Spool:
        return drain_spool(self.path, self.queue, self.txnid)

    def lost(self, options: ReadOptions) -> SourceError:
        """Says why what was drained cannot be read again."""
        return ended(options, self.claim, "Store")


@dataclass(frozen=True)
class Chunks:
    """Chunks of a claim for one task; the claim's first has the number 0."""

    claim: str
    first: int
    count: int


@dataclass(frozen=True)
class Taken:
    """What a batch or a job has: chunks of a claim, or files of a spool.

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
    with _asking(options) as asked:
        taken = _taken(asked, options, batch, rows_max, into_files=options.ack == "take")
        _end_before(asked, batch)
    return taken


def drain(options: ReadOptions) -> tuple[Drain, Taken]:
    """Consume what is ready in the queue, once under the job's ``txnid``; raises as ``take``."""
    drained = Drain(options.path, options.queue, options.txnid or "")
    with _asking(options) as asked:
        return drained, _taken(asked, options, drained, None, into_files=True)


def end_drain(path: str | os.PathLike[str], queue: str, txnid: str) -> bool:
    """As ``ending.end_drain``, in a directory."""
    drained = Drain(os.path.abspath(path), queue, txnid)
    was_there = drained.spool.manifest.exists()
    if was_there:
        drained.spool.remove()
    try:
        with asking(drained.path, wait_s=_END_S, read_only=False) as asked:
            return bool(asked.call("end_claim", name=drained.claim)) or was_there
    except (OptionError, StoreBusyError):  # there is no store, or none that could have claimed
        return was_there


def end(options: ReadOptions, batch: QueueBatch) -> None:
    """The batch is done: its messages are acknowledged for good.  Fine where they are already."""
    if batch.spool.manifest.exists():
        batch.spool.remove()
        return
    with _asking(options) as store:
        store.call("end_claim", name=batch.claim)


def release_claims(path: str | os.PathLike[str], queue: str) -> int:
    """As ``ending.release_claims``, in a directory."""
    import pyqstore
    from pyqstore.claiming import release
    from pyqstore.flight.asked import owner_of

    try:
        store = pyqstore.open(path, create=False, **_SETTINGS)
    except pyqstore.StoreLocked:
        owner = owner_of(path)
        if owner is None:
            raise
        return int(owner.call("release_claims", queue=queue, prefix=PREFIX))
    with store:
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
    with asking_in_task(options) as store:
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


def drain_claim(queue: str, txnid: str) -> str:
    """The name of what a job drains."""
    return _DRAINED + digest_of(queue, txnid)


def ended(options: ReadOptions, claim: str, by: str) -> SourceError:
    """Says why what was drained cannot be read again; ``by``: what can have it forgotten."""
    return SourceError(
        f"what was drained from {options.what} under txnid '{options.txnid}' was ended: nothing "
        f"can be taken again under it before {by}.forget_transaction('{claim}')"
    )


def _asking(options: ReadOptions) -> AbstractContextManager[Asked]:
    return asking(options.path, wait_s=options.lock_timeout, read_only=False, settings=_SETTINGS)


def _taken(
    asked: Asked,
    options: ReadOptions,
    batch: QueueBatch | Drain,
    rows_max: int | None,
    *,
    into_files: bool,
) -> Taken:
    """An owner writes no files for others: what is taken there is claimed."""
    from pyqstore.claiming import Claimed
    from pyqstore.flight.asked import Here

    if asked.transaction_known(batch.spool.name):
        return Taken(0, files=tuple(batch.spool.files()))
    if into_files and isinstance(asked, Here) and not _has_claimed(asked.store, batch.claim):
        files = spool.take(asked.store, options, batch.spool, rows_max)
        return Taken(sum(file.rows for file in files), files=tuple(files))
    if not asked.transaction_known(batch.claim):
        check_source(asked, options)
    if batch.spool.manifest.exists():  # of an attempt that died before its commit
        batch.spool.remove()
    told = asked.call("claim", queue=options.queue, name=batch.claim, rows_max=rows_max)
    if told is None:
        raise batch.lost(options)
    claimed = Claimed(*told)
    return Taken(claimed.taken, parts_of(batch.claim, claimed.chunks))


def _has_claimed(store: pyqstore.Store, claim: str) -> bool:
    from pyqstore.claiming import has_claim, is_lost

    return has_claim(store, claim) or is_lost(store, claim)


def _end_before(store: Asked, batch: QueueBatch) -> None:
    """The batch before it is done."""
    store.call("end_claim", name=batch.before.claim)
    for key in (batch.before.claim, batch.before.spool.name):
        store.call("forget_transaction", key=key)
