"""The data source: ``df.write.format("pyqstore").option("path", DIR).mode("append").save()``, and
``df.writeStream`` alike; ``spark.read`` and ``spark.readStream`` go to ``reader`` and
``stream_reader``.

Which process runs what (Spark 4): ``DataSource.__init__`` and ``writer()`` a planning worker,
before any task; ``write()`` a worker per task; ``commit()`` and ``abort()`` another planning
worker, on an unpickled copy of the writer.  Planning workers are forked, reused for later queries
and never the user's own process, so nothing may stay open.  Steps and promises are in
``spark_udfs.sink``; here Spark's classes meet them.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from . import received, remote, sink
from .opening import StoreBusyError, changing
from .options import OptionError, WriteOptions
from .reader import QStoreFilteringReader, QStoreReader, known_columns
from .remote_sink import RemoteStreamWriter, RemoteWriter
from .staging import StagedFile
from .workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

NAME = "pyqstore"


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task that finished tells the commit."""

    file: StagedFile


class QStoreWriter(DataSourceArrowWriter):
    """One write job; pickled to every task and to the commit, so it holds nothing open."""

    def __init__(self, options: WriteOptions, columns: Sequence[tuple[str, str]]) -> None:
        """Check all that can be checked before a row is computed; raises as ``sink.prepare``."""
        name = uuid.uuid4().hex
        self.job = sink.prepare(
            options,
            columns,
            job=name,
            key=options.txnid or sink.own_key(name),
            forgets=() if options.txnid else (sink.own_key(name),),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one attempt at one partition."""
        from pyspark import TaskContext

        settle()
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("write() runs in a Spark task")
        return StagedMessage(
            sink.stage(
                self.job, iterator, partition=context.partitionId(), attempt=context.taskAttemptId()
            )
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the messages name, once."""
        sink.commit(
            self.job, [message.file for message in messages if isinstance(message, StagedMessage)]
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged; a committed transaction stays.

        Spark also calls this when ``commit`` raised after the store had committed.

        """
        sink.abort(self.job)


@dataclass
class StreamMessage(StagedMessage):
    """The same of a stream's batch: the commit runs in a process that was told of no query."""

    query: str


class QStoreStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a streaming query, each a transaction.

    Spark makes a writer for the tasks of each batch and another for its commit, in other processes:
    what they share travels with the tasks' messages.
    """

    def __init__(self, options: WriteOptions, columns: Sequence[tuple[str, str]]) -> None:
        """Check what needs no store; raises ColumnError, OptionError."""
        options = sink.check_frame(options, columns)
        if options.txnid is not None:
            raise OptionError(
                "option 'txnid' is for jobs: each batch of a stream is a transaction, known by the "
                "query's id, or by the option 'appid', and the batch's number"
            )
        if options.create:
            # One that another process has is there.
            with suppress(StoreBusyError), changing(options.path, wait_s=0, create=True):
                pass
        self.options = options

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
        job.folder.join()
        # Spark's numbers of attempts begin anew with each start of the query, and the folder may
        # have what an earlier one left.
        return StreamMessage(
            sink.stage(
                job, iterator, partition=context.partitionId(), attempt=secrets.randbits(48)
            ),
            query,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the messages name, once, however often Spark repeats the batch."""
        told = [message for message in messages if isinstance(message, StreamMessage)]
        if told:
            job = sink.stream_job(self.options, query=told[0].query, batch=batchId)
            sink.commit(job, [message.file for message in told])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged; a committed batch stays."""
        for message in messages:
            if isinstance(message, StreamMessage):
                sink.abort(sink.stream_job(self.options, query=message.query, batch=batchId))
                return


class QStoreDataSource(DataSource):
    """Messages from rows, and rows from messages.

    Columns: ``columns.PROPERTIES`` and ``received``; options: ``options``.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Of what is read.  OptionError: a wrong option."""
        # Spark does not say whether a job or a query asks.
        streaming = any(name in self.options for name in ("maxRowsPerBatch", "group", "ack"))
        options, _ = remote.read_options(self.options, streaming=streaming)
        return received.ddl(known_columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called in a planning process, with a keyword.

        Raises:
            OptionError: a wrong option.
            ColumnError: the user's schema names what is not there.
        """
        options, servers = remote.read_options(self.options, streaming=False)
        if servers is not None:
            from .remote_reader import RemoteFilteringReader, RemoteReader

            kind = RemoteFilteringReader if options.pushdown else RemoteReader
            return kind(options, schema, servers)
        return (QStoreFilteringReader if options.pushdown else QStoreReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called for a query and for the tasks of each batch, with a keyword; raises as
        ``reader``."""
        try:
            from .stream_reader import QStoreQueueReader, QStoreStreamReader
        except ImportError as error:
            raise NotImplementedError(
                "readStream of 'pyqstore' needs Spark 4.2 or later"
            ) from error
        options, servers = remote.read_options(self.options, streaming=True)
        if servers is not None:
            from .remote_queue_reader import RemoteQueueReader
            from .remote_stream_reader import RemoteStreamReader

            kind = RemoteStreamReader if options.stream else RemoteQueueReader
            return kind(options, schema, servers)
        return (QStoreStreamReader if options.stream else QStoreQueueReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called in a planning process, with keywords.

        Raises:
            OptionError: mode overwrite, or a wrong option.
            And as ``sink.prepare``.
        """
        if overwrite:
            raise OptionError(
                "mode 'overwrite' is not supported: publishing only adds to queues "
                "(use mode 'append'; Channel.queue_purge empties a queue)"
            )
        options, servers = remote.write_options(self.options)
        if options.appid is not None:
            raise OptionError("option 'appid' is for writeStream: a job has its 'txnid'")
        if servers is not None:
            return RemoteWriter(options, servers, _columns(schema))
        return QStoreWriter(options, _columns(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Called for the tasks of each batch and for each commit, with keywords.

        Raises:
            OptionError: output mode complete, or a wrong option.
            ColumnError: the frame's columns do not make messages.
        """
        if overwrite:
            raise OptionError(
                "output mode 'complete' is not supported: publishing only adds to queues "
                "(use 'append')"
            )
        options, servers = remote.write_options(self.options)
        if servers is not None:
            return RemoteStreamWriter(options, servers, _columns(schema))
        return QStoreStreamWriter(options, _columns(schema))


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
