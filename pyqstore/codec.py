"""Stateless functions over buffers: safe in any process, no store needed.

They are the engine's own code, for tools that look into files and for workers that exchange them.
A buffer is anything contiguous that exports one: bytes, bytearray, memoryview, numpy and Arrow
buffers. It is read during the call, without the GIL, and not kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ._ffi import ffi, lib
from .errors import PreconditionFailed

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from typing_extensions import Buffer

__all__ = ["check_properties", "check_rows", "crc32c", "crc32c_column", "shard_column"]


def crc32c(data: Buffer, seed: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) checksum of a buffer, 0 to 2**32 - 1.

    ``seed`` is the checksum of the bytes before these: ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    An empty buffer leaves it as it is.

    Raises ``OverflowError`` when ``seed`` is no 32-bit number, ``TypeError`` when ``data`` is no
    buffer, and ``BufferError`` or ``ValueError`` when it is not contiguous.

    Source: RFC 3720, section 12.1 and appendix B.4.
    """
    view = ffi.from_buffer("char[]", data)
    crc: int = lib.qs_crc32c(seed, view, len(view))
    return crc


def check_properties(blob: Buffer) -> None:
    """Check that a buffer holds well-formed message properties, nested header tables included.

    Properties are stored as they stand in an AMQP 0-9-1 content header: 16 bits of flags and the
    values of those present. An empty buffer stands for no properties and is well formed.

    Raises ``ValueError`` that names the damaged property; the rest as ``crc32c``.

    Source: AMQP 0-9-1, section 4.2.6.1, with RabbitMQ's field types.
    """
    view = ffi.from_buffer("char[]", blob)
    error = ffi.new("qs_error *")
    if lib.qs_properties_check(view, len(view), error) != 0:
        raise ValueError(ffi.string(error.text).decode())


def check_rows(batch: pa.RecordBatch, first_row: int = 0) -> None:
    """Check that each row makes a message, as ``publish_batch`` does, for a store with the default
    limits.

    What depends on exchanges and queues is not looked at. Times without a zone are UTC. Of several
    faults in one batch ``publish_batch`` may name another.

    Args:
        batch: n rows; the bodies are the column ``body``.
        first_row: number of the first row, from which errors count.

    Raises ``ValueError`` that names the column or the row, ``PreconditionFailed`` for a body or an
    expiration that is too large, and for headers CC and BCC, and ``TypeError`` for another object.
    """
    schema, array = ffi.new("struct ArrowSchema *"), ffi.new("struct ArrowArray *")
    error = ffi.new("qs_error *")
    if not hasattr(batch, "_export_to_c"):
        raise TypeError(f"batch: a pyarrow.RecordBatch is wanted, not {type(batch).__name__}")
    batch._export_to_c(int(ffi.cast("uintptr_t", array)), int(ffi.cast("uintptr_t", schema)))
    try:
        status = lib.qs_rows_check(schema, array, first_row, time.time_ns() // 1000, error)
    finally:
        array.release(array)
        schema.release(schema)
    if status == 0:
        return
    text = ffi.string(error.text).decode("utf-8", "replace")
    if status == lib.QS_PRECONDITION_FAILED:
        raise PreconditionFailed(status, f"PRECONDITION_FAILED - {text}")
    raise MemoryError(text) if status == lib.QS_ENOMEM else ValueError(text)


def crc32c_column(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the CRC-32C checksum of each value.

    ``column``: n strings or binaries. Returns n ``int64``, null where the value is.

    Raises ``TypeError`` for other types, and ``OverflowError`` for more than 2 GiB.
    """
    return _of_rows(column, lib.qs_crc32c_column)


def shard_column(column: pa.Array[Any], shards: int) -> pa.Array[Any]:
    """Return the shard of each key, 0 to ``shards`` - 1, where an exchange of type
    ``x-consistent-hash`` sends it.

    With ``shards`` queues or streams bound with equal weights, 0 is the one that was bound first.
    ``column``: n strings or binaries. Returns n ``int64``, null where the key is.

    Raises ``ValueError`` when ``shards`` is not 1 to 2**31 - 1; the rest as ``crc32c_column``.

    Source: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.
    """
    if not 1 <= shards < 2**31:
        raise ValueError(f"shards is {shards}, expected 1 to {2**31 - 1}")
    return _of_rows(column, lib.qs_shard_column, shards)


def _of_rows(column: pa.Array[Any], function: Any, *arguments: int) -> pa.Array[Any]:
    """What a function of ``qs_strings`` makes of each row."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    types = pa.types
    if not (
        types.is_binary(column.type)
        or types.is_string(column.type)
        or types.is_large_binary(column.type)
        or types.is_large_string(column.type)
        or types.is_binary_view(column.type)
        or types.is_string_view(column.type)
    ):
        raise TypeError(f"expected strings or binaries, not {column.type}")
    try:
        plain = column if types.is_string(column.type) else column.cast(pa.binary())
    except pa.ArrowInvalid as fault:
        raise OverflowError(str(fault)) from fault
    count = len(plain)
    _, offsets, data = plain.buffers()
    rows = ffi.new("qs_strings *")
    keep = []  # what rows points into
    if count > 0:
        keep = [ffi.from_buffer("int32_t[]", offsets), ffi.from_buffer("char[]", data or b"")]
        rows.offsets, rows.data = keep[0] + plain.offset, keep[1]
        rows.data_bytes, rows.count = len(keep[1]), count
    found = bytearray(4 * count)
    error = ffi.new("qs_error *")
    if function(rows, *arguments, ffi.from_buffer("uint32_t[]", found), error) != 0:
        raise ValueError(ffi.string(error.text).decode())
    numbers = pa.Array.from_buffers(pa.uint32(), count, [None, pa.py_buffer(found)])
    return pc.if_else(plain.is_valid(), numbers.cast(pa.int64()), pa.scalar(None, pa.int64()))
