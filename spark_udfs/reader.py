"""``spark.read.format("pyqstore")``: Spark's classes for ``spark_udfs.reading`` and ``spool``.

Which process runs what (Spark 4): ``reader()``, ``pushFilters()`` and ``partitions()`` a planning
worker, whenever a plan is made, be it for ``explain()`` alone; ``read()`` a worker for each task,
on an unpickled copy of the reader.  There is no call at the end of a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from . import claims, reading, received, spool
from .columns import ColumnError
from .opening import patient
from .options import ReadOptions
from .reading import Part, Wanted
from .staging import StagedFile
from .workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NOTHING = Part(0, 0)
_MICROSECOND = timedelta(microseconds=1)


@dataclass
class RowsPartition(InputPartition):
    """Rows that are in the store.  No base constructor: ``value`` is Spark's."""

    part: Part


@dataclass
class FilePartition(InputPartition):
    """Rows that were taken from a queue."""

    spool: spool.Spool
    file: StagedFile


@dataclass
class ChunksPartition(InputPartition):
    """Rows that were claimed from a queue."""

    chunks: claims.Chunks


class QStoreReader(DataSourceReader):
    """A batch read.  Pickled to every task, so it holds nothing open."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """ColumnError: the schema names what is not there."""
        check_schema(options, schema)
        self.options = options
        self.schema = schema
        self.wanted = Wanted()

    @patient
    def partitions(self) -> Sequence[InputPartition]:
        """Raises SourceError, StoreBusyError, OptionError before a task runs."""
        found: list[InputPartition]
        if self.options.drain:
            found = partitions_of(*claims.drain(self.options))
        else:
            plan = reading.stream_parts if self.options.stream else reading.queue_parts
            found = [RowsPartition(part) for part in plan(self.options, self.wanted)]
        return found or [RowsPartition(_NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, the same at each attempt."""
        return read_partition(self.options, self.schema, partition)


class QStoreFilteringReader(QStoreReader):
    """The same with filters.  Asked for, because Spark fails a read whose reader takes filters
    while its own setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read; returns what Spark has still to filter by."""
        return [item for item in filters if not self._push(item)]

    def _push(self, item: Filter) -> bool:
        """Whether Spark need not look again."""
        if not isinstance(item, (*_RANGES, EqualTo, In, IsNotNull)) or len(item.attribute) != 1:
            return False
        name = item.attribute[0]
        if isinstance(item, IsNotNull):
            return name in ("offset", "routing_key")
        if name == "offset" and isinstance(item, (*_RANGES, EqualTo)):
            start, stop = _range(item, 1)
            self.wanted = self.wanted.offsets(start, stop)
            return True
        if name == "timestamp" and isinstance(item, (*_RANGES, EqualTo)):
            if isinstance(item.value, datetime):
                since, until = _range(item, _MICROSECOND)
                self.wanted = self.wanted.times(_zoned(since), _zoned(until))
            return False  # cheap to look again, and it is Spark who knows its clock
        if name == "routing_key" and isinstance(item, (EqualTo, In)):
            values = item.value if isinstance(item, In) else (item.value,)
            keys = [value for value in values if isinstance(value, str)]
            # In a stream's reader these words stand for others.
            if not any({"*", "#"} & set(key.split(".")) for key in keys):
                self.wanted = self.wanted.keys(keys)
                return True
        return False


_RANGES = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _range(item: Any, step: Any) -> tuple[Any, Any]:
    """From which value on, and before which, of a filter with a value."""
    value = item.value
    if isinstance(item, EqualTo):
        return value, value + step
    if isinstance(item, (GreaterThan, GreaterThanOrEqual)):
        return (value + step if isinstance(item, GreaterThan) else value), None
    return None, (value + step if isinstance(item, LessThanOrEqual) else value)


def _zoned(when: datetime | None) -> datetime | None:
    """Spark's literals are of UTC when they have no zone."""
    return when.replace(tzinfo=UTC) if when is not None and when.tzinfo is None else when


def known_columns(options: ReadOptions) -> dict[str, str]:
    """What can be read, with Spark's names of the types."""
    return received.STREAM if options.stream else received.QUEUE


def check_schema(options: ReadOptions, schema: StructType) -> None:
    """ColumnError: the user's schema names what is not there."""
    if not schema.fields:
        raise ColumnError("the schema has no columns")
    received.check_schema(
        [(field.name, field.dataType.simpleString()) for field in schema.fields],
        known_columns(options),
    )


def partitions_of(
    batch: claims.QueueBatch | claims.Drain, taken: claims.Taken
) -> list[InputPartition]:
    """Of what was consumed."""
    parts: list[InputPartition] = [ChunksPartition(chunks) for chunks in taken.chunks]
    return parts or [FilePartition(batch.spool, file) for file in taken.files]


def read_partition(
    options: ReadOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows, as Arrow batches of Spark's very types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    settle()
    wanted = to_arrow_schema(schema, timezone="UTC")
    if isinstance(partition, FilePartition):
        return spool.read_file(partition.spool, partition.file, wanted)
    if isinstance(partition, ChunksPartition):
        return claims.read_chunks(options, partition.chunks, wanted)
    if isinstance(partition, RowsPartition) and not partition.part.is_empty:
        read = reading.read_stream if options.stream else reading.read_queue
        return read(options, partition.part, wanted)
    return iter(())
