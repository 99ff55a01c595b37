"""What a write job does to a store, in three steps that run in three kinds of process.

``prepare`` runs once, in a planning process, before any task: it proves that the store can be had
and that the exchange exists, and makes the staging folder.  ``stage`` runs in every task and
touches no store.  ``commit`` or ``abort`` runs once, in a process that lives on afterwards:
whatever is opened here is closed here.

Nothing here knows Spark; the transaction's key comes from outside, so that a stream can bring its
own.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .checking import RowCheck
from .columns import ColumnError, check_columns, shape_batch
from .options import OptionError, WriteOptions
from .staging import StagedFile, StagingError, StagingFolder

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore

_POLL_S = 0.05
_ROUTES_NAMED = 5


class StoreBusyError(RuntimeError):
    """Another process has the store.  ``pid`` is its number, 0 when the store does not say."""

    def __init__(self, text: str, pid: int = 0) -> None:
        super().__init__(text)
        self.pid = pid


class UnroutableError(RuntimeError):
    """Messages that no queue would take.  Nothing of the job is published."""


@dataclass(frozen=True)
class Job:
    """One write job, carried from ``prepare`` to the tasks and to ``commit``.

    Attributes:
        options: as the user gave them.
        name: unique; names the staging folder.
        key: the transaction's key in the store.
        repeated: the key was committed before the job began: tasks stage nothing.
        forgets: keys that serve nobody after its commit: its own, when it was made up for this job;
            that of the batch before, in a stream, which is never repeated once this one began.
    """

    options: WriteOptions
    name: str
    key: str
    repeated: bool = False
    forgets: tuple[str, ...] = ()

    @property
    def folder(self) -> StagingFolder:
        return StagingFolder(self.options.path, self.name)


@dataclass(frozen=True)
class CommitReport:
    """What a commit did.

    Attributes:
        committed: False when the key had been committed before, or some messages had no queue and
            option mandatory holds: nothing was published.
        rows: messages published; routed: those of them that at least one queue has.
        unroutable: messages that no queue would take: dropped, or with option mandatory what the
            job failed for; returned: the latter.
        files: staged files read; bytes: their size; seconds: opening to closing.
        stats: the store's statistics just before it was closed.
    """

    key: str
    committed: bool
    rows: int
    routed: int
    unroutable: int
    returned: int
    files: int
    bytes: int
    seconds: float
    stats: dict[str, Any]


def open_store(path: str, *, wait_s: float, create: bool = False) -> pyqstore.Store:
    """Open the store at path, waiting wait_s for another process; make it only when asked to.

    Raises:
        StoreBusyError: naming the process that has it.
        OptionError: there is no store.
        pyqstore.StoreError: it cannot be opened for another reason.
    """
    import pyqstore

    deadline = time.monotonic() + wait_s
    while True:
        try:
            return pyqstore.open(path, create=create)
        except pyqstore.StoreNotFound as error:
            hint = "" if create else "; the option create=true makes one"
            raise OptionError(f"option 'path' is '{path}': {error}{hint}") from error
        except pyqstore.StoreLocked as error:
            if time.monotonic() >= deadline:
                pid = int(getattr(error, "pid", 0) or 0)
                raise StoreBusyError(
                    f"the store {path} is locked, and was for {wait_s:g} s: {_advice(pid)}", pid
                ) from error
        time.sleep(_POLL_S)


def check_frame(options: WriteOptions, columns: Sequence[tuple[str, str]]) -> None:
    """What can be refused without the store: ColumnError, OptionError."""
    check_columns(columns, body=options.body)
    names = [name for name, _ in columns]
    if (
        options.exchange == ""
        and options.routing_key is None
        and not {"exchange", "routing_key"} & set(names)
    ):
        raise OptionError(
            "nothing says where the messages go: give a column or an option 'routing_key' "
            "(the default exchange takes it as the queue's name), or the option 'exchange'"
        )


def prepare(
    options: WriteOptions,
    columns: Sequence[tuple[str, str]],
    *,
    job: str,
    key: str,
    forgets: tuple[str, ...] = (),
) -> Job:
    """Everything that can be refused before a row is computed.

    Args:
        columns: (name, Spark's simple name of the type) of the frame.
        job: unique name for the staging folder.
        key: the transaction's key.
        forgets: keys to forget when the commit is done.

    Raises:
        ColumnError, OptionError: the frame or the options do not make messages.
        StoreBusyError: another process has the store.
        pyqstore.NotFound: the exchange does not exist (or, if mandatory, the one queue everything
            would go to).
        OptionError: also when there is no store, and create does not say to make one.
    """
    check_frame(options, columns)
    names = [name for name, _ in columns]
    with open_store(options.path, wait_s=options.lock_timeout, create=options.create) as store:
        with store.channel() as channel:
            if options.exchange:
                channel.exchange_declare(options.exchange, passive=True)
            elif (
                options.mandatory
                and options.routing_key
                and not {"exchange", "routing_key"} & set(names)
            ):
                channel.queue_declare(options.routing_key, passive=True)
        repeated = store.transaction_known(key)
    prepared = Job(options=options, name=job, key=key, repeated=repeated, forgets=forgets)
    if not repeated:
        prepared.folder.create()
    return prepared


def stage(
    job: Job, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> StagedFile:
    """One attempt at one partition: its rows in a file of its own, durable; no store is touched.

    Raises:
        ColumnError: a row holds what no message may have; names the partition and the row.
        OSError, StagingError: the rows could not be written.
    """
    if job.repeated:
        return StagedFile(name="", partition=partition, rows=0, bytes=0, crc32=0)
    with RowCheck() as check:
        rows = _shaped(batches, job.options.body, check, partition)
        return job.folder.write(rows, partition=partition, attempt=attempt)


def commit(job: Job, files: Sequence[StagedFile]) -> CommitReport:
    """Publish exactly these files, by partition, in one transaction under the job's key.

    Durable when this returns.  May be repeated, also after it died anywhere: the key lets the
    transaction in once. Afterwards the staging folder is swept and the store is closed.

    Raises:
        StoreBusyError: another process took the store since ``prepare`` and kept it for
            options.lock_timeout.
        StagingError: a file is not what its task reported; nothing is published.
        UnroutableError: mandatory, and no queue would take some of the messages; nothing is
            published.
        pyqstore.Error: the store refused; nothing is published.
    """
    started = time.monotonic()
    files = sorted((file for file in files if file.rows), key=lambda file: file.partition)
    partitions = [file.partition for file in files]
    if len(set(partitions)) != len(partitions):
        raise StagingError(
            f"two attempts at one partition were reported: {[file.name for file in files]}"
        )
    with open_store(job.options.path, wait_s=job.options.lock_timeout) as store:
        committed, unroutable, fault = False, 0, None
        if not store.transaction_known(job.key):
            if job.repeated:
                raise StagingError(
                    f"the transaction '{job.key}' was known when the job began and is not now: "
                    f"is this still the same store?"
                )
            with store.channel() as channel:
                committed, unroutable = _publish(channel, job, files)
                if not committed and unroutable:
                    fault = _unroutable(channel, job, files, unroutable)
        job.folder.sweep()
        job.folder.sweep_stale()
        for key in job.forgets if fault is None else ():
            # What was staged is gone, so nothing can be published twice any more.
            store.forget_transaction(key)
        stats = store.stats().to_dict()
    rows = sum(file.rows for file in files) if committed else 0
    report = CommitReport(
        key=job.key,
        committed=committed,
        rows=rows,
        routed=rows - unroutable if committed else 0,
        unroutable=unroutable,
        returned=0 if committed else unroutable,
        files=len(files) if committed else 0,
        bytes=sum(file.bytes for file in files) if committed else 0,
        seconds=time.monotonic() - started,
        stats=stats,
    )
    if job.options.report:
        _write_report(job.options.report, report)
    if fault is not None:
        raise fault
    return report


def stream_job(options: WriteOptions, *, query: str, batch: int) -> Job:
    """One batch of a streaming query, the same in each attempt at it.

    The store has one key for each query: that of the batch it committed last.  Spark repeats no
    other one, and when it repeats that one its key is known.

    Args:
        options: as the user gave them.
        query: the query's id, the same when it starts again from its checkpoint.
        batch: number of the batch, from 0.
    """
    return Job(
        options=options,
        name=f"stream-{query}-{batch}",
        key=_stream_key(query, batch),
        forgets=(_stream_key(query, batch - 1),) if batch > 0 else (),
    )


def _stream_key(query: str, batch: int) -> str:
    return f"spark-stream-{query}-{batch}"


def abort(job: Job) -> None:
    """Remove what was staged.  The store is not touched: a committed transaction stays."""
    job.folder.sweep()


def _publish(channel: pyqstore.Channel, job: Job, files: Sequence[StagedFile]) -> tuple[bool, int]:
    """Whether it was committed, and how many messages no queue would take."""
    import pyqstore

    options = job.options
    properties = pyqstore.Properties(content_type=options.content_type, delivery_mode=2)
    unroutable = 0
    channel.tx_select()
    for file in files:
        for batch in job.folder.read(file):
            unroutable += channel.publish_batch(
                batch, options.exchange, options.routing_key, properties=properties
            ).unroutable
    if unroutable and options.mandatory:
        channel.tx_rollback()
        return False, unroutable
    committed: bool = channel.tx_commit(key=job.key)
    return committed, unroutable if committed else 0


def _unroutable(
    channel: pyqstore.Channel, job: Job, files: Sequence[StagedFile], count: int
) -> UnroutableError:
    """Says which routes led nowhere, as far as the tasks told their routes."""
    import pyarrow as pa

    probe = pa.record_batch({"body": [b""]})
    routes = {
        (
            job.options.exchange if exchange is None else exchange,
            (job.options.routing_key or "") if key is None else key,
        )
        for file in files
        for exchange, key in file.routes or ()
    }
    named = []
    for exchange, key in sorted(routes):
        if channel.publish_batch(probe, exchange, key).unroutable:
            named.append(f"exchange '{exchange}', routing key '{key}'")
            if len(named) == _ROUTES_NAMED:
                break
    channel.tx_rollback()
    rows = sum(file.rows for file in files)
    where = f": {'; '.join(named)}" if named else " (their headers decide where they go)"
    return UnroutableError(
        f"no queue would take {count} of {rows} messages{where}. Nothing is published. Bind a "
        f"queue for them, or drop them with the option mandatory=false"
    )


def _shaped(
    batches: Iterable[pa.RecordBatch], body: str, check: RowCheck, partition: int
) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        try:
            shaped = shape_batch(batch, body=body, first_row=row, outlives=True)
            check.check(shaped, first_row=row)
        except ColumnError as error:
            raise ColumnError(f"partition {partition}: {error}") from error
        yield shaped
        row += batch.num_rows


def _write_report(path: str, report: CommitReport) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(report.__dict__, file, default=str)
        os.replace(temporary, path)
    except OSError as error:
        # The messages are in: an exception would make the user send them again.
        warnings.warn(f"pyqstore: the report {path} was not written: {error}", stacklevel=2)


def _advice(pid: int) -> str:
    """Which process has the store, and what to do about it."""
    command = _command(pid)
    process = f"process {pid}" if pid else "another process"
    if "pyspark" in command:
        return (
            f"another Spark job ({process}) is checking or committing there. Wait for it, or give "
            f"this job a longer lock_timeout"
        )
    name = f"{process} ({command})" if command else process
    return (
        f"{name} has it open. Close it there first, or publish from that process with "
        f"spark_udfs.publish(df, channel)"
    )


def _command(pid: int) -> str:
    """The command line of a process, "" where the system does not tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(400).decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""
