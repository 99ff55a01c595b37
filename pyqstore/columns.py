"""The Arrow columns of messages, as the engine's table has them (``docs/ARROW.md``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ._ffi import ffi, lib

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

__all__ = ["COLUMNS", "PLACES", "Column", "schema_of"]

# The batches that have a column, as bits.
DELIVERED: int = lib.QS_RECEIVED_DELIVERED
BROWSED: int = lib.QS_RECEIVED_BROWSED
STREAM: int = lib.QS_RECEIVED_STREAM
POLLED: int = lib.QS_RECEIVED_POLLED

# How a column is read in a batch that is published.
IGNORED: int = lib.QS_COLUMN_IGNORED
BODY: int = lib.QS_COLUMN_BODY
TEXT: int = lib.QS_COLUMN_TEXT
HEADERS: int = lib.QS_COLUMN_HEADERS
INTEGER: int = lib.QS_COLUMN_INTEGER
TIMESTAMP: int = lib.QS_COLUMN_TIMESTAMP
INSTANT: int = lib.QS_COLUMN_INSTANT


class Column(NamedTuple):
    """A column.

    Attributes:
        format: Arrow's, of the received column; of a dictionary, its codes'.
        meaning: of the received column.
        received: the batches that have it; 0 of one that is only published.
        part: of a stream's batch, ``_core.COLUMN_*``; 0: always there.
        published: how the column is read.
        low, high: the numbers that a published column may have, both inclusive.
    """

    name: str
    format: str
    meaning: str
    received: int
    part: int
    published: int
    low: int
    high: int


def _rows() -> Iterator[Column]:
    index = 0
    while row := lib.qs_column_at(index):
        name, form, words = (
            ffi.string(each).decode() for each in (row.name, row.format, row.meaning)
        )
        yield Column(name, form, words, row.received, row.part, row.published, row.low, row.high)
        index += 1


COLUMNS: tuple[Column, ...] = tuple(_rows())
"""In the order of received batches."""
_PUBLISHED = {column.name for column in COLUMNS if column.published != IGNORED}
PLACES: tuple[str, ...] = tuple(
    column.name for column in COLUMNS if column.received & ~POLLED and column.name not in _PUBLISHED
)
"""Columns that tell where a message was, and how often: publishing ignores them."""


def schema_of(received: int, parts: int = 0) -> pa.Schema:
    """The schema of a received batch: ``DELIVERED``, ``BROWSED`` or ``STREAM``, of a stream with
    these parts; 0: all."""
    import pyarrow as pa

    schema, error = ffi.new("struct ArrowSchema *"), ffi.new("qs_error *")
    if lib.qs_columns_schema(received, parts or 2**32 - 1, schema, error) != 0:
        raise MemoryError(ffi.string(error.text).decode())
    return pa.Schema._import_from_c(int(ffi.cast("uintptr_t", schema)))
