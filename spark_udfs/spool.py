"""Messages taken from a queue for Spark, which may ask for the same rows again.

Layout, inside the store's directory::

    staging/spool-<name>/0-0.arrow, 1-0.arrow ...     the rows, in their order
    staging/spool-<name>/manifest.json                says which files, with their sizes and CRCs

The order is the promise: the files are durable, then the manifest, then one transaction
acknowledges the messages under the spool's key.  While the key is unknown nothing was consumed and
nobody has read the files: they are made anew.  Once it is known the files are the only copy of the
messages, and they are not swept by age.  Reading them needs no store.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import ReadOptions
from .reading import SourceError, check_source
from .received import as_spark
from .staging import KEPT_PREFIX, StagedFile, StagingError, StagingFolder, sync_directory

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore

FILE_BYTES = 64 << 20
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 65_536
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Spool:
    """A spool by its name, which is also its transaction's key."""

    path: str
    name: str

    @property
    def folder(self) -> StagingFolder:
        return StagingFolder(self.path, self.name)

    @property
    def manifest(self) -> Path:
        return self.folder.path / _MANIFEST

    def files(self) -> list[StagedFile]:
        """What the manifest says.  SourceError: there is none."""
        try:
            told = json.loads(self.manifest.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise SourceError(
                f"what was taken from the queue is not in {self.folder.path} any more: it was "
                f"ended, or the folder was removed. Its messages are acknowledged; under the key "
                f"'{self.name}' nothing can be taken again before Store.forget_transaction"
            ) from error
        return [StagedFile(**file) for file in told["files"]]

    def remove(self) -> None:
        """The rows are not needed any more.  Never raises.  What is killed on the way may be
        repeated: the manifest, which tells that there is something to remove, goes last."""
        folder = self.folder
        folder.clear(but=_MANIFEST)
        folder.sweep()


def drain_spool(path: str, queue: str, txnid: str) -> Spool:
    """That of a job that drains a queue."""
    return Spool(path, f"{KEPT_PREFIX}drain-{digest_of(queue, txnid)}")


def digest_of(queue: str, txnid: str) -> str:
    """Stands for a drain in names."""
    return hashlib.sha256(f"{queue}\0{txnid}".encode()).hexdigest()[:32]


def batch_spool(path: str, query: str, batch: int) -> Spool:
    """That of a batch of a streaming query."""
    return Spool(path, f"{KEPT_PREFIX}{query}-{batch}")


def take(
    store: pyqstore.Store, options: ReadOptions, spool: Spool, rows_max: int | None
) -> list[StagedFile]:
    """Consume what is ready in the queue, once: repeated, it tells the same files.

    Args:
        rows_max: at most so many messages; None: all there are.

    Raises:
        SourceError: there is no such queue, or the spool was removed after it was taken.
    """
    if not store.transaction_known(spool.name):
        check_source(store, options)
        spool.remove()  # an attempt that died before its commit
        with store.channel() as channel:
            _take(channel, options.queue, spool, rows_max)
    return spool.files()


def _take(channel: pyqstore.Channel, queue: str, spool: Spool, rows_max: int | None) -> None:
    folder = spool.folder
    folder.create()
    source = _Source(channel, queue, rows_max)
    channel.tx_select()
    files: list[StagedFile] = []
    while not source.is_over:
        file = folder.write(source.batches(), partition=len(files), attempt=0, tells_routes=False)
        if file.rows:
            files.append(file)
    _write_manifest(spool, files)
    if source.last_tag:
        channel.basic_ack(source.last_tag, multiple=True)
    channel.tx_commit(key=spool.name)


class _Source:
    """Batches out of a queue, in runs that fill a file each."""

    def __init__(self, channel: pyqstore.Channel, queue: str, rows_max: int | None) -> None:
        self._channel = channel
        self._queue = queue
        self._left = rows_max
        self.last_tag = 0
        self.is_over = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Until a file is full or the queue is empty."""
        from pyqstore.claiming import numbered

        filled = 0
        while filled < FILE_BYTES and not self.is_over:
            most = _BATCH_ROWS if self._left is None else min(self._left, _BATCH_ROWS)
            batch = (
                self._channel.get_batch(self._queue, most, max_bytes=_BATCH_BYTES) if most else None
            )
            if batch is None or batch.num_rows == 0:
                self.is_over = True
                return
            first = self.last_tag
            self.last_tag = batch["delivery_tag"][-1].as_py()
            if self._left is not None:
                self._left -= batch.num_rows
            filled += batch.nbytes
            yield numbered(batch, first)


def _write_manifest(spool: Spool, files: Sequence[StagedFile]) -> None:
    """Durable with all directories on the way to it."""
    told: list[dict[str, Any]] = [{**asdict(file), "routes": None} for file in files]
    temporary = spool.manifest.with_suffix(".tmp")
    with open(temporary, "x", encoding="utf-8") as out:
        json.dump({"files": told}, out)
        out.flush()
        os.fsync(out.fileno())
    os.rename(temporary, spool.manifest)
    for directory in (spool.folder.path, spool.folder.root, Path(spool.path)):
        sync_directory(directory)


def read_file(spool: Spool, file: StagedFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in a task.

    Raises:
        SourceError: the file is not what the manifest says, or this machine does not see the store.
    """
    try:
        for batch in spool.folder.read(file):
            yield as_spark(batch, schema)
    except StagingError as error:
        if Path(spool.path).is_dir():
            raise SourceError(str(error)) from error
        raise SourceError(
            f"executor {socket.gethostname()} does not see {spool.path}: a store that Spark "
            f"reads must lie in a directory that every executor sees under this name"
        ) from error
