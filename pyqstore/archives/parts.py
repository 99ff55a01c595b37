"""The bytes of a part: pieces of journal files, and bodies of message files that they name.

docs/FORMAT.md describes them.  A part that is read back must have the right checksum, and its
fields are checked as well.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Head", "Part", "Piece", "decoded", "head_name", "parsed_name"]

_MAGIC = b"QSPART01"
_FORMAT = 1
_LENGTH = struct.Struct("<I")
_SHA_BYTES = 32
_SENSELESS = (ValueError, TypeError, KeyError, OverflowError, RecursionError, pa.ArrowException)
_FIELDS = [10, 16, 16]  # digits of a name's numbers


@dataclass(frozen=True)
class Piece:
    """Bytes of a journal file, or a record of a message file in generation 0."""

    file: int
    at: int
    bytes: int


@dataclass(frozen=True)
class Head:
    """The fields of a part's name."""

    number: int
    """Counts the parts of a stream from 1."""
    from_lsn: int
    """The LSN of the first block in it."""
    time_us: int
    """Nothing in it was durable before: µs since 1970."""


@dataclass
class Part:
    """The contents of one object."""

    uuid: str
    """The store's UUID, hexadecimal."""
    stream: str
    head: Head
    before: str
    """The SHA-256 of the part before it; "" in a first one."""
    to_lsn: int = 0
    times: list[tuple[int, int]] = field(default_factory=list)
    """Moments, µs since 1970, and the LSN up to which the journal was durable then."""
    pieces: list[Piece] = field(default_factory=list)
    bodies: list[Piece] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    """The bytes of the pieces, then of the bodies."""

    @property
    def name(self) -> str:
        """The name of its object."""
        return f"parts/{self.stream}/{head_name(self.head)}"

    def encoded(self) -> tuple[bytes, str]:
        """The object, and its SHA-256."""
        whole = b"".join(self.data)
        told = {
            "format": _FORMAT,
            "uuid": self.uuid,
            "stream": self.stream,
            "number": self.head.number,
            "before": self.before,
            "from_lsn": self.head.from_lsn,
            "to_lsn": self.to_lsn,
            "time_us": self.head.time_us,
            "times": self.times,
            "pieces": [[each.file, each.at, each.bytes] for each in self.pieces],
            "bodies": [[each.file, each.at, each.bytes] for each in self.bodies],
            "bytes": len(whole),
        }
        text = json.dumps(told, separators=(",", ":")).encode()
        packed = pa.compress(whole, codec="zstd", asbytes=True) if whole else b""
        content = b"".join((_MAGIC, _LENGTH.pack(len(text)), text, packed))
        digest = hashlib.sha256(content)
        return content + digest.digest(), digest.hexdigest()


def head_name(head: Head) -> str:
    """The object's name: names sort in the order of parts."""
    return f"{head.number:010d}-{head.from_lsn:016x}-{head.time_us:016x}.part"


def parsed_name(name: str) -> Head | None:
    """The reverse of ``head_name``.  None: it is not a part's name."""
    stem, dot, suffix = name.partition(".")
    fields = stem.split("-")
    if dot != "." or suffix != "part" or [len(each) for each in fields] != _FIELDS:
        return None
    try:
        head = Head(int(fields[0]), int(fields[1], 16), int(fields[2], 16))
    except ValueError:
        return None
    return head if head_name(head) == name else None


def decoded(view: memoryview) -> tuple[Part, str, memoryview]:
    """A part without its ``data``, its SHA-256, and the data.  ValueError: it is no valid part."""
    if len(view) < len(_MAGIC) + _LENGTH.size + _SHA_BYTES or view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin as a part does, or is cut off")
    digest = hashlib.sha256(view[:-_SHA_BYTES])
    if digest.digest() != view[-_SHA_BYTES:]:
        raise ValueError("its checksum is wrong")
    begin = len(_MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack(view[len(_MAGIC) : begin])
    try:
        told = json.loads(bytes(view[begin : begin + length]))
        part, data = _parsed(told, view[begin + length : -_SHA_BYTES])
    except _SENSELESS as error:
        raise ValueError(f"it is no part: {error!r}") from None
    return part, digest.hexdigest(), data


def _parsed(told: Any, packed: memoryview) -> tuple[Part, memoryview]:
    if told["format"] != _FORMAT:
        raise ValueError(f"its format is {told['format']!r}, and this version knows {_FORMAT}")
    size = int(told["bytes"])
    pieces = [Piece(*map(int, each)) for each in told["pieces"]]
    bodies = [Piece(*map(int, each)) for each in told["bodies"]]
    found = [*pieces, *bodies]
    if any(min(each.file, each.at, each.bytes) < 0 for each in found):
        raise ValueError("a number is negative")
    if sum(each.bytes for each in found) != size:
        raise ValueError("its pieces are not what it holds")
    data = memoryview(pa.decompress(packed, size, codec="zstd") if size else b"")
    part = Part(
        str(told["uuid"]),
        str(told["stream"]),
        Head(int(told["number"]), int(told["from_lsn"]), int(told["time_us"])),
        str(told["before"]),
        int(told["to_lsn"]),
        [(int(time), int(lsn)) for time, lsn in told["times"]],
        pieces,
        bodies,
    )
    return part, data
