"""An Arrow data source of Spark that counts rows, and does nothing else with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "pyqstore-counting"


@dataclass
class Counted(WriterCommitMessage):
    """What a task had."""

    rows: int


class CountingWriter(DataSourceArrowWriter):
    """The least that a writer can do."""

    def __init__(self, report: str) -> None:
        self._report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count the rows of a partition."""
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write down how many there were."""
        rows = sum(each.rows for each in messages if isinstance(each, Counted))
        Path(self._report).write_text(str(rows), encoding="ascii")


class CountingSource(DataSource):
    """Option ``report``: the file that gets the number of rows."""

    @classmethod
    def name(cls) -> str:
        """For ``format()``."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Whatever the columns are."""
        return CountingWriter(self.options["report"])


def registered(spark: SparkSession) -> None:
    """Have a session know it.  Spark's own processes do not find this module: it goes by value."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spark.dataSource.register(CountingSource)
