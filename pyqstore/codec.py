"""Stateless functions over buffers: safe in any process, no store needed.

They are the engine's own code, for tools that look into files and for workers that exchange them.
A buffer is anything contiguous that exports one: bytes, bytearray, memoryview, numpy and Arrow
buffers. It is read during the call, without the GIL, and not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._ffi import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["check_properties", "crc32c"]


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
