"""The data source: ``df.write.format("pyqstore").option("path", DIR).mode("append").save()``.

Which process runs what (Spark 4): ``DataSource.__init__`` and ``writer()`` a planning worker,
before any task; ``write()`` a worker per task; ``commit()`` and ``abort()`` another planning
worker, on an unpickled copy of the writer.  Planning workers are forked, reused for later queries
and never the user's own process, so nothing may stay open.  Steps and promises are in
``spark_udfs.sink``; here Spark's classes meet them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from . import sink
from .options import OptionError, WriteOptions
from .staging import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader
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
            key=options.txnid or f"spark-{name}",
            forgets_key=options.txnid is None,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one attempt at one partition."""
        from pyspark import TaskContext

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


class QStoreDataSource(DataSource):
    """Messages from rows; columns: ``columns.PROPERTIES``, options: ``options.WriteOptions``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> NoReturn:
        raise NotImplementedError(
            "format 'pyqstore' writes only: read a queue with Channel.get_batch(queue)"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError(
            "format 'pyqstore' writes only: read a queue with Channel.get_batch(queue)"
        )

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
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return QStoreWriter(WriteOptions.parse(self.options), columns)
