"""The batches of a Spark frame, in the driver: all partitions computed at once, each into a file.

Spark hands a frame over one partition after the other.  Where executors see the store's directory
their tasks write to it side by side, as those of the data source do, and the driver reads the files
in the order of partitions.  They are a way from process to process, so nothing is synced.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .staging import UNSEEN, StagedFile, StagingFolder

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = "name string, partition int, rows bigint, bytes bigint, crc32 bigint"


@contextmanager
def gathered(df: Any, store_path: str) -> Iterator[Iterator[pa.RecordBatch] | None]:
    """The frame's batches, in files that go at the end of the block.

    None: executors do not see the store's directory, or have another one there.  Raises what the
    job raises, and OSError.
    """
    folder = StagingFolder(store_path, f"publish-{uuid.uuid4().hex}")
    folder.create()
    try:
        files = _stage(df, folder)
        if files is None or any(not (folder.path / file.name).exists() for file in files):
            yield None
        else:
            yield _read(folder, files)
    finally:
        folder.sweep()


def _stage(df: Any, folder: StagingFolder) -> list[StagedFile] | None:
    """What the tasks wrote, by partition; None: they do not see the folder."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        from spark_udfs.workers import settle

        settle()
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("this runs in a Spark task")
        if not folder.path.is_dir():  # the driver has just made it
            raise folder.unseen()
        file = folder.write(
            batches,
            partition=context.partitionId(),
            attempt=context.taskAttemptId(),
            tells_routes=False,
            is_durable=False,
        )
        if file.rows:
            told = asdict(file)
            del told["routes"]
            yield pa.RecordBatch.from_pylist([told], schema=_schema())

    try:
        rows = df.mapInArrow(stage, _ROWS).collect()
    except Exception as error:
        if UNSEEN in str(error):
            return None
        raise
    return sorted((StagedFile(**row.asDict()) for row in rows), key=lambda file: file.partition)


def _schema() -> pa.Schema:
    import pyarrow as pa

    numbers = {name: pa.int64() for name in ("rows", "bytes", "crc32")}
    return pa.schema({"name": pa.string(), "partition": pa.int32(), **numbers})


def _read(folder: StagingFolder, files: list[StagedFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from folder.read(file)
