"""Properties as AMQP encodes them, changed without being decoded: nothing else of them changes."""

from __future__ import annotations

__all__ = ["delivery_mode_kept", "led_by_headers", "without_offset"]

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE = 0x8000, 0x4000, 0x2000, 0x1000
_PERSISTENT = b"\x02"
_OFFSET_ENTRY = b"\x0fx-stream-offsetl"
_OFFSET_BYTES = len(_OFFSET_ENTRY) + 8


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


def delivery_mode_kept(blob: bytes) -> bytes:
    """The same for a message that is to be kept: with delivery mode 2."""
    flags = _flags(blob)
    at = _behind_headers(blob, flags)
    if flags & _DELIVERY_MODE:
        if blob[at : at + 1] == _PERSISTENT:
            return blob
        return blob[:at] + _PERSISTENT + blob[at + 1 :]
    head = (flags | _DELIVERY_MODE).to_bytes(2, "big")
    return head + blob[2:at] + _PERSISTENT + blob[at:]


def led_by_headers(blob: bytes) -> bool:
    """Whether the headers may have CC or BCC, which lead to queues by themselves.  It errs on the
    side of True."""
    return b"\x02CC" in blob or b"\x03BCC" in blob


def without_offset(blob: bytes) -> tuple[bytes, int]:
    """The properties without the header x-stream-offset, which the engine puts behind all others,
    and the offset."""
    flags = _flags(blob)
    at = _headers_at(blob, flags)
    end = at + 4 + int.from_bytes(blob[at : at + 4], "big")
    begin = end - _OFFSET_BYTES
    if blob[begin : begin + len(_OFFSET_ENTRY)] != _OFFSET_ENTRY:
        raise ValueError("the message has no x-stream-offset: it is of no stream")
    offset = int.from_bytes(blob[end - 8 : end], "big")
    table = blob[at + 4 : begin]
    if table:
        return blob[:at] + len(table).to_bytes(4, "big") + table + blob[end:], offset
    flags &= ~_HEADERS
    if flags == 0:
        return b"", offset
    return flags.to_bytes(2, "big") + blob[2:at] + blob[end:], offset
