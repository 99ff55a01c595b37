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
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from . import to_stream
from .columns import ColumnError, check_columns, check_rows, shape_batch
from .opening import StoreBusyError, busy, changing
from .options import OptionError, WriteOptions
from .staging import StagedFile, StagingError, StagingFolder

if TYPE_CHECKING:
    import pyarrow as pa

    import pyqstore

_ROUTES_NAMED = 5
_BATCHES_KNOWN = 100  # spark.sql.streaming.minBatchesToRetain
_FORGET_S = 10.0  # that a job which is done waits to have its keys forgotten
_OWN_NAME = re.compile(r"[0-9a-f]{32}")  # of a job, not of a query's batch, whose key stays
UNPUBLISHED = (
    "Nothing is published. Bind a queue for them, or drop them with the option mandatory=false"
)


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
            that of a batch long before, in a stream, which Spark cannot repeat any more.
        aliases: keys under which it may have been committed before, when it had other options.
    """

    options: WriteOptions
    name: str
    key: str
    repeated: bool = False
    forgets: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

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
        stats: the store's statistics just before it was closed; empty when another process had it.
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


def check_frame(options: WriteOptions, columns: Sequence[tuple[str, str]]) -> WriteOptions:
    """What can be refused without the store: ColumnError, OptionError.  The options as they hold
    for such a frame."""
    check_columns(columns, body=options.body)
    names = [name for name, _ in columns]
    options = to_stream.aimed(options, names)
    if (
        options.exchange == ""
        and options.routing_key is None
        and not {"exchange", "routing_key"} & set(names)
    ):
        raise OptionError(
            "nothing says where the messages go: give a column or an option 'routing_key' "
            "(the default exchange takes it as the queue's name), or the option 'exchange'"
        )
    return options


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
        StoreBusyError: another process has the store, and does not look into its inbox.
        pyqstore.NotFound: the exchange does not exist (or, if mandatory, the one queue everything
            would go to).
        OptionError: also when there is no store, and create does not say to make one.
    """
    options = check_frame(options, columns)
    names = [name for name, _ in columns]
    is_adopted = "due" not in names
    try:
        wait_s = 0 if is_adopted else options.lock_timeout
        with changing(options.path, wait_s=wait_s, create=options.create) as store:
            repeated = _look_ahead(store, options, names, key)
    except StoreBusyError:
        if not is_adopted:
            raise
        repeated = is_known_to_owner(options, (key,))
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
    options = job.options
    batches = iter(batches)
    first = next(batches, None)
    batches = chain([] if first is None else [first], batches)
    if first is None or "due" not in first.schema.names:
        return job.folder.write_blocks(
            _shaped(batches, options.body, partition, checks=False),
            partition=partition,
            attempt=attempt,
            exchange=options.exchange,
            routing_key=options.routing_key,
            content_type=options.content_type,
        )
    rows = _shaped(batches, options.body, partition, checks=True)
    return job.folder.write(rows, partition=partition, attempt=attempt)


def commit(job: Job, files: Sequence[StagedFile]) -> CommitReport:
    """Publish exactly these files, by partition, in one transaction under the job's key.

    Durable when this returns.  May be repeated, also after it died anywhere: the key lets the
    transaction in once. Afterwards the staging folder is swept and the store is closed.

    Raises:
        StoreBusyError: another process has the store, and did not begin with the adoption within
            options.lock_timeout.  It never will.
        TimeoutError: it began, and does not answer; only the key tells whether it was committed.
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
    is_adopted = all(file.is_adopted for file in files)
    try:
        done = _commit_here(job, files, 0 if is_adopted else job.options.lock_timeout)
    except StoreBusyError:
        if not is_adopted:
            raise
        done = _commit_by_owner(job, files)
        _sweep(job, lambda keys: _forget_by_owner(job, keys), is_published=done[2] is None)
    committed, unroutable, fault, stats = done
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


_Done = tuple[bool, int, UnroutableError | None, dict[str, Any]]


def _commit_here(job: Job, files: Sequence[StagedFile], wait_s: float) -> _Done:
    with changing(job.options.path, wait_s=wait_s) as store:
        if job.options.stream:  # of a query nobody has looked
            with store.channel() as channel:
                to_stream.lead(store, channel, job.options)
        committed, unroutable, fault = False, 0, None
        if not any(store.transaction_known(key) for key in (job.key, *job.aliases)):
            if job.repeated:
                raise not_the_same_store(job)
            take = _adopt if any(file.is_adopted for file in files) else _publish
            committed, unroutable, fault = take(store, job, files)
        _sweep(job, lambda keys: _forget(store, keys), is_published=fault is None)
        return committed, unroutable, fault, store.stats().to_dict()


def _commit_by_owner(job: Job, files: Sequence[StagedFile]) -> _Done:
    """The same by the process that has the store; its engine adopts the files."""
    import pyqstore

    options = job.options
    keys = (job.key, *job.aliases)
    if job.repeated:
        if not is_known_to_owner(options, keys):
            raise not_the_same_store(job)
        return False, 0, None, {}
    try:
        paths = [job.folder.path_of(file) for file in files]
    except StagingError:
        if is_known_to_owner(options, keys):
            return False, 0, None, {}  # it was committed, and died when its files were swept
        raise
    try:
        done = pyqstore.adopt_into(
            options.path,
            paths,
            job.key,
            mandatory=options.mandatory,
            timeout=options.lock_timeout,
            unless=job.aliases,
        )
    except pyqstore.StoreLocked as error:
        raise busy(options.path, options.lock_timeout, error) from error
    except pyqstore.Unroutable as error:
        return False, error.count, _unroutable_by(error), {}
    except (FileNotFoundError, pyqstore.StoreCorrupt) as error:
        raise StagingError(str(error)) from error
    return done.committed, done.unroutable, None, {}


def _look_key() -> str:
    """Of a transaction without messages, which is forgotten at once."""
    return f"spark-look-{uuid.uuid4()}"


def is_known_to_owner(options: WriteOptions, keys: Sequence[str]) -> bool:
    """Whether one of the keys was committed; the process that has the store looks, so that a job
    whose commit would find nobody fails before its tasks."""
    import pyqstore

    look = _look_key()
    try:
        done = pyqstore.adopt_into(
            options.path, [], look, timeout=options.lock_timeout, unless=keys, forget=[look]
        )
    except pyqstore.StoreLocked as error:
        raise busy(options.path, options.lock_timeout, error) from error
    return done.excluded


def own_key(name: str) -> str:
    """The key of a job that was given none."""
    return f"spark-{name}"


def _sweep(job: Job, forget: Callable[[Sequence[str]], bool], *, is_published: bool) -> None:
    """Remove what is staged, and then the keys that serve nobody, as nothing can be published twice
    any more.

    The folder goes behind its job's key: that of a commit that is killed here is forgotten when the
    folder is old, by another job's commit.
    """
    stale = job.folder.stale()
    keys = [*job.forgets] if is_published else []
    keys += [own_key(name) for name in stale if _OWN_NAME.fullmatch(name)]
    job.folder.clear()
    if not keys or forget(keys):
        job.folder.sweep()
        job.folder.sweep_stale(stale)


def _forget(store: pyqstore.Store, keys: Sequence[str]) -> bool:
    for key in keys:
        store.forget_transaction(key)
    return True


def _forget_by_owner(job: Job, keys: Sequence[str]) -> bool:
    """Whether it did: they may be known for longer."""
    import pyqstore

    look = _look_key()
    try:
        pyqstore.adopt_into(
            job.options.path,
            [],
            look,
            timeout=min(_FORGET_S, job.options.lock_timeout),
            forget=[*keys, look],
        )
    except (pyqstore.Error, OSError):
        return False
    return True


def not_the_same_store(job: Job) -> StagingError:
    """Of a job whose tasks staged nothing, as its key was known."""
    return StagingError(
        f"the transaction '{job.key}' was known when the job began and is not now: "
        f"is this still the same store?"
    )


def _unroutable_by(error: pyqstore.Unroutable) -> UnroutableError:
    words = error.reply_text.removeprefix("PRECONDITION_FAILED - ")
    return UnroutableError(f"{words}. {UNPUBLISHED}")


def _look_ahead(
    store: pyqstore.Store, options: WriteOptions, names: Sequence[str], key: str
) -> bool:
    """Whether the key was committed before; what is missing is told."""
    with store.channel() as channel:
        to_stream.lead(store, channel, options)
        if options.exchange:
            channel.exchange_declare(options.exchange, passive=True)
        elif (
            options.mandatory
            and options.routing_key
            and not {"exchange", "routing_key"} & set(names)
        ):
            channel.queue_declare(options.routing_key, passive=True)
    return store.transaction_known(key)


def stream_job(options: WriteOptions, *, query: str, batch: int) -> Job:
    """One batch of a streaming query, the same in each attempt at it.

    The store knows the keys of a query's last batches, as many as a checkpoint of Spark's keeps:
    Spark repeats the last one, and a copy of a checkpoint that is put back those behind it.  With
    ``appid`` it has a key for each batch, as a new checkpoint begins at batch 0 again.

    Args:
        options: as the user gave them.
        query: the query's id, the same when it starts again from its checkpoint.
        batch: number of the batch, from 0.
    """
    own = f"{query}-{batch}"
    old = batch - _BATCHES_KNOWN
    forgets = (f"spark-stream-{query}-{old}",) if old >= 0 else ()
    if options.appid is None:
        return Job(options, f"stream-{own}", f"spark-stream-{own}", forgets=forgets)
    return Job(
        options,
        f"stream-{own}",
        f"spark-app-{options.appid}-{batch}",
        forgets=forgets,
        aliases=(f"spark-stream-{own}",),
    )


def abort(job: Job) -> None:
    """Remove what was staged.  The store is not touched: a committed transaction stays."""
    job.folder.sweep()


def _adopt(
    store: pyqstore.Store, job: Job, files: Sequence[StagedFile]
) -> tuple[bool, int, UnroutableError | None]:
    """Whether it was committed, how many messages no queue would take, and if that is why."""
    import pyqstore

    paths = [job.folder.path_of(file) for file in files]
    try:
        done = store.adopt(paths, job.key, mandatory=job.options.mandatory)
    except pyqstore.Unroutable as error:
        return False, error.count, _unroutable_by(error)
    except (FileNotFoundError, pyqstore.StoreCorrupt) as error:
        raise StagingError(str(error)) from error
    return done.committed, done.unroutable, None


def _publish(
    store: pyqstore.Store, job: Job, files: Sequence[StagedFile]
) -> tuple[bool, int, UnroutableError | None]:
    """The same for files of Arrow."""
    import pyqstore

    options = job.options
    properties = pyqstore.Properties(content_type=options.content_type, delivery_mode=2)
    unroutable = 0
    with store.channel() as channel:
        channel.tx_select()
        for file in files:
            for batch in job.folder.read(file):
                unroutable += channel.publish_batch(
                    batch, options.exchange, options.routing_key, properties=properties
                ).unroutable
        if unroutable and options.mandatory:
            channel.tx_rollback()
            return False, unroutable, _unroutable(channel, job, files, unroutable)
        committed: bool = channel.tx_commit(key=job.key)
    return committed, unroutable if committed else 0, None


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
    return UnroutableError(f"no queue would take {count} of {rows} messages{where}. {UNPUBLISHED}")


def _shaped(
    batches: Iterable[pa.RecordBatch], body: str, partition: int, *, checks: bool
) -> Iterator[pa.RecordBatch]:
    """What the engine reads; without ``checks`` its writer looks at each row."""
    row = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        try:
            shaped = shape_batch(batch, body=body, first_row=row, outlives=True)
            if checks:
                check_rows(shaped, first_row=row)
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
