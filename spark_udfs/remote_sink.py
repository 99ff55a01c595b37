"""Writing through Arrow Flight, in two phases: tasks stage their rows at a server, the commit names
the attempts that count.

``remote_commit`` has the second one.
"""

from __future__ import annotations

import itertools
import secrets
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from . import sink, to_stream
from .columns import _plain
from .dealing import deal
from .options import OptionError, WriteOptions
from .remote import Remote
from .remote_commit import RemoteMessage, commit, properties_of, settled, where
from .sink import Job
from .workers import settle

_ABORT_S = 1.0  # what it leaves is swept when it is old

if TYPE_CHECKING:
    import pyarrow as pa

    from pyqstore.flight.results import Staged


def prepare(
    options: WriteOptions, remote: Remote, columns: Sequence[tuple[str, str]], job: Job
) -> Job:
    """Everything that can be refused before a row is computed; raises as ``sink.prepare``."""
    options = _check_frame(options, columns)
    to_one_queue = options.mandatory and not {"exchange", "routing_key"} & dict(columns).keys()
    for shard in range(remote.count):
        with remote.client(shard) as client:
            to_stream.lead(client, client, options)
            if options.exchange:
                client.exchange_declare(options.exchange, passive=True)
            elif to_one_queue and options.routing_key:
                client.queue_declare(options.routing_key, passive=True)
    is_known = options.txnid is not None and settled(remote, job.key)
    return Job(options, job.name, job.key, repeated=is_known, forgets=job.forgets)


def stage(
    job: Job, remote: Remote, batches: Iterable[pa.RecordBatch], partition: int, attempt: int | str
) -> RemoteMessage:
    """One attempt at one partition: its rows at a server, durable and in no queue."""
    if job.repeated:
        return RemoteMessage({})

    def stage_at(shard: int, rows: Iterator[pa.RecordBatch]) -> Staged:
        import pyarrow as pa

        first = next(rows)
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rows))
        with remote.client(shard) as client:
            return client.stage(
                reader, job.name, partition, attempt, *where(job), properties=properties_of(job)
            )

    own = partition % remote.count
    rows = sink._shaped(batches, job.options.body, partition, checks=True)
    if job.options.shard_by:
        column = _shaped_name(job.options)
        return RemoteMessage(deal(rows, column, remote.count, own, stage_at))
    first = next(rows, None)
    if first is None:
        return RemoteMessage({})
    return RemoteMessage({own: stage_at(own, itertools.chain([first], rows))})


def _check_frame(options: WriteOptions, columns: Sequence[tuple[str, str]]) -> WriteOptions:
    """As ``sink.check_frame``; OptionError: the keys of shards are not there, or of another
    type."""
    kinds = {name: _plain(kind) for name, kind in columns}
    name = options.shard_by
    if name and name not in kinds:
        raise OptionError(f"option 'shard_by' is '{name}', and there is no such column")
    if name and kinds[name] not in ("string", "binary"):
        raise OptionError(f"option 'shard_by': column '{name}' is {kinds[name]}, not string")
    return sink.check_frame(options, columns)


def _shaped_name(options: WriteOptions) -> str:
    """Of the column of the keys, as the engine names it."""
    return "body" if options.shard_by == options.body else options.shard_by


def abort(job: Job, remote: Remote) -> None:
    """Remove what was staged; what was committed stays."""
    import pyqstore

    for shard in range(remote.count):
        with suppress(pyqstore.Error), remote.client(shard, _ABORT_S) as client:
            client.abort_staged(job.name)


class RemoteWriter(DataSourceArrowWriter):
    """One write job; pickled to every task and to the commit, so it holds nothing open."""

    def __init__(
        self, options: WriteOptions, remote: Remote, columns: Sequence[tuple[str, str]]
    ) -> None:
        """Raises as ``prepare``."""
        name = uuid.uuid4().hex
        key = options.txnid or sink.own_key(name)
        forgets = () if options.txnid else (key,)
        self.remote = remote
        self.job = prepare(options, remote, columns, Job(options, name, key, forgets=forgets))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one attempt at one partition."""
        from pyspark import TaskContext

        settle()
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() runs in a Spark task")
        return stage(
            self.job, self.remote, iterator, context.partitionId(), context.taskAttemptId()
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the messages name, once."""
        told = [each for each in messages if isinstance(each, RemoteMessage)]
        commit(self.job, self.remote, told)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged; Spark also calls this when ``commit`` raised."""
        abort(self.job, self.remote)


class RemoteStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a streaming query, each a transaction, known as ``sink.stream_job`` says."""

    def __init__(
        self, options: WriteOptions, remote: Remote, columns: Sequence[tuple[str, str]]
    ) -> None:
        """Check what needs no server; raises ColumnError, OptionError."""
        options = _check_frame(options, columns)
        if options.txnid is not None:
            raise OptionError("option 'txnid' is for jobs; a stream may have an 'appid'")
        self.options = options
        self.remote = remote

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one attempt at one partition of a batch."""
        from pyspark import TaskContext

        settle()
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() runs in a Spark task")
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise RuntimeError("the task does not belong to a batch of a streaming query")
        job = sink.stream_job(self.options, query=query, batch=int(batch))
        # Numbers of attempts begin anew with each start of the query.
        told = stage(job, self.remote, iterator, context.partitionId(), secrets.token_hex(8))
        told.query = query
        return told

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the messages name, once, however often Spark repeats the batch."""
        told = [each for each in messages if isinstance(each, RemoteMessage)]
        if told:
            commit(self._job(told, batchId), self.remote, told)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged; a committed batch stays."""
        told = [each for each in messages if isinstance(each, RemoteMessage)]
        if told:
            abort(self._job(told, batchId), self.remote)

    def _job(self, told: Sequence[RemoteMessage], batch: int) -> Job:
        return sink.stream_job(self.options, query=told[0].query, batch=batch)
