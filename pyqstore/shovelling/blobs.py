"""Properties as AMQP encodes them, changed without being decoded: nothing else of them changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._core import (
    delivery_mode_kept,
    is_persistent,
    led_by_headers,
    with_table,
    without_offset,
)

__all__ = [
    "delivery_mode_kept", "in_order", "is_persistent", "led_by_headers", "without_headers",
    "without_offset",
]  # fmt: skip

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x8000, 0x4000, 0x2000
# Bytes of a value by its type; others have their length in four bytes in front.
_FIXED = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"D", 5),
    **dict.fromkeys(b"V", 0),
}
_SIZED = frozenset(b"SxAF")


def _flags(blob: bytes) -> int:
    return int.from_bytes(blob[:2], "big")


def _headers_at(blob: bytes, flags: int) -> int:
    """Where the headers' length is, or would be."""
    at = 2
    for bit in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & bit:
            at += 1 + blob[at]
    return at


def _behind_headers(blob: bytes, flags: int) -> int:
    at = _headers_at(blob, flags)
    if flags & _HEADERS:
        at += 4 + int.from_bytes(blob[at : at + 4], "big")
    return at


def without_headers(blob: bytes, names: Sequence[bytes]) -> bytes:
    """The properties without these headers, and without a table of headers that is empty; what
    cannot be read stays."""
    flags = _flags(blob)
    if not flags & _HEADERS:
        return blob
    try:
        at, end = _headers_at(blob, flags), _behind_headers(blob, flags)
        kept = [entry for name, entry in _entries(blob[at + 4 : end]) if name not in names]
    except (IndexError, ValueError):
        return blob
    return with_table(blob, at, end, b"".join(kept))


def in_order(blob: bytes) -> bytes:
    """The properties with headers in the order of their names; what cannot be read stays."""
    if not blob or not blob[0] & _HEADERS >> 8:  # the quickest way, for all messages come here
        return blob
    flags = _flags(blob)
    try:
        at, end = _headers_at(blob, flags), _behind_headers(blob, flags)
        entries = sorted(entry for _, entry in _entries(blob[at + 4 : end]))
    except (IndexError, ValueError):
        return blob
    return blob[: at + 4] + b"".join(entries) + blob[end:]


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each name, and the whole entry.  ValueError, IndexError: it is no table."""
    at = 0
    while at < len(table):
        begin = at
        name = table[at + 1 : at + 1 + table[at]]
        at += 1 + len(name)
        kind = table[at]
        at += 1
        if kind in _SIZED:
            at += 4 + int.from_bytes(table[at : at + 4], "big")
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"a header has the type {kind}")
        if at > len(table):
            raise ValueError("a header ends behind the table")
        yield name, table[begin:at]
