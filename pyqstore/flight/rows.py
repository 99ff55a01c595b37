"""Rows that a call returns: those of a stream, and of a queue that is browsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ..store import Store
from ..stream import Stream, check_stream
from ..waiting import SLICE_NS
from .wire import unpack_start

__all__ = ["READS", "IsGone", "Rows", "packed"]

_IDLE_SLICES = 10

IsGone = Callable[[], bool]
"""Asked between batches: whether the caller went.  What it raises ends the call."""
Rows = tuple[pa.Schema, Iterable[pa.RecordBatch]]


def _read(
    store: Store,
    is_gone: IsGone,
    stream: str,
    start: Any = "first",
    stop: Any = None,
    columns: list[str] | None = None,
    routing_keys: list[str] | None = None,
    follow: bool = False,
) -> Rows:
    check_stream(store, stream)
    begin, end = unpack_start(start), unpack_start(stop)
    reader = Stream(store, stream)._reader(begin, end, columns, routing_keys, follow)

    def batches() -> Iterator[pa.RecordBatch]:
        idle = 0
        while not reader.over and not is_gone():
            batch = reader.next(timeout_ns=SLICE_NS)
            if batch is not None and len(batch) > 0:
                idle = 0
                yield batch
            elif (idle := idle + 1) % _IDLE_SLICES == 0:
                yield _empty(reader.schema)  # so that the client can look around

    return reader.schema, batches()


def _browse(
    store: Store, is_gone: IsGone, queue: str, start: int = 0, limit: int | None = None
) -> Rows:
    found = store.browse(queue, start, limit)
    first = next(found, None)
    if first is None:
        return pa.schema([]), ()

    def batches() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in found:
            if is_gone():
                return
            yield batch

    return first.schema, batches()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def packed(batch: pa.RecordBatch) -> memoryview:
    """The batch as a stream of Arrow's IPC format, with its schema and dictionaries."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


READS: dict[str, Callable[..., Rows]] = {"read": _read, "browse": _browse}
"""By the names of their tickets; each is given the store, what tells whether the caller went, and
the ticket's arguments."""
