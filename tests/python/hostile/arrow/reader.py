"""What a hand-made batch says: a reader too simple to be wrong, and the limits of the interface.

Nobody tells a consumer how long a buffer is: lengths, offsets and sizes are believed.  So ``fit``
makes each buffer as long as they claim, and no longer.
"""

import re
import struct
from dataclasses import dataclass
from typing import Any

from pyqstore.times import utc_of

from .node import INT_FORMATS, SMALL_MAX, TEXTS, Node

ROOM = 8192
POINTERS = 64
_KNOWN = {"body", "exchange", "routing_key", "headers", "content_encoding", "expiration_ms"}
_KNOWN |= {*TEXTS, "priority", "delivery_mode", "timestamp"}
_FLOATS = {b"f": "f", b"g": "d"}
_NUMBERS = {**INT_FORMATS, **_FLOATS}
_DIVISORS = {b"s": 1, b"m": 10**3, b"u": 10**6, b"n": 10**9}


class UnfitError(Exception):
    """No consumer could tell that this claims more than there is."""


class WrongError(Exception):
    """This is no batch of messages."""


@dataclass(frozen=True)
class Row:
    """A message."""

    exchange: str
    routing_key: str
    body: bytes
    properties: tuple[tuple[str, object], ...]


# Buffers as long as they are claimed to be.


def fit(root: Node) -> None:
    """Make the buffers of a batch as long as its numbers say."""
    counts = {root.schema_children, root.array_children}
    if any(count is not None and count > POINTERS for count in counts):
        raise UnfitError
    if not root.length >= 0 or not root.offset >= 0:
        return
    for child in root.children:
        if child is not None:
            _fit(child, root.offset, root.length)
    _fit_bits(root, root.offset, root.length)


def _fit(node: Node, first: int, rows: int) -> None:
    if node.offset < 0 or node.length < first + rows or node.format is None:
        return
    if node.dictionary is not None:  # all of it, whatever the rows use
        _fit(node.dictionary, 0, max(node.dictionary.length, 0))
    if rows == 0:
        for child in node.children:  # a map's entries have dictionaries, too
            if child is not None:
                _fit(child, 0, 0)
        return
    first += node.offset
    if max(first, rows) > SMALL_MAX:
        raise UnfitError
    _fit_bits(node, first, rows)
    if node.format in _NUMBERS or node.format.startswith(b"ts"):
        _pad(node, 1, struct.calcsize(_NUMBERS.get(node.format, "q")) * (first + rows))
    elif node.format.startswith(b"w:") and (width := _width(node.format)) is not None:
        _pad(node, 1, width * (first + rows))
    elif node.format in (b"u", b"z", b"U", b"Z", b"+m"):
        _fit_offsets(node, first, rows)
    elif node.format in (b"vu", b"vz"):
        _fit_views(node, first, rows)


def _fit_bits(node: Node, first: int, rows: int) -> None:
    if node.null_count != 0:
        if max(first, rows) > SMALL_MAX:
            raise UnfitError
        _pad(node, 0, (first + rows + 7) // 8)


def _pad(node: Node, index: int, size: int) -> None:
    part = node.buffers[index] if index < len(node.buffers) else None
    if part is None:
        return
    if size > ROOM:
        raise UnfitError
    node.buffers[index] = part.ljust(size, b"\0")


def _fit_offsets(node: Node, first: int, rows: int) -> None:
    wide = node.format in (b"U", b"Z")
    _pad(node, 1, (8 if wide else 4) * (first + rows + 1))
    if len(node.buffers) < 2 or node.buffers[1] is None:
        return
    used = _offsets(node, first, rows)
    if used != sorted(used) or used[0] < 0:
        return
    if node.format != b"+m":
        _pad(node, 2, used[-1])
    elif node.children and node.children[0] is not None:
        entries, count = node.children[0], used[-1] - used[0]
        if entries.offset < 0:
            return
        begin = entries.offset + used[0]
        _fit_bits(entries, begin, count)
        for child in entries.children:
            if child is not None:
                _fit(child, begin, count)


def _offsets(node: Node, first: int, rows: int) -> list[int]:
    letter, width = ("q", 8) if node.format in (b"U", b"Z") else ("i", 4)
    return list(struct.unpack_from(f"<{rows + 1}{letter}", node.buffers[1] or b"", width * first))


def _fit_views(node: Node, first: int, rows: int) -> None:
    count = len(node.buffers) if node.buffer_count is None else node.buffer_count
    if count > POINTERS:
        raise UnfitError
    _pad(node, 1, 16 * (first + rows))
    if not 3 < count <= len(node.buffers):
        return
    _pad(node, count - 1, 8 * (count - 3))
    sizes = node.buffers[count - 1]
    if sizes is not None:
        for index, size in enumerate(struct.unpack_from(f"<{count - 3}q", sizes)):
            _pad(node, 2 + index, size)


def _width(kind: bytes) -> int | None:
    digits = kind[2:]
    return int(digits) if re.fullmatch(rb"\d+", digits) and int(digits) < 2**31 else None


# Reading.


def read(root: Node, exchange: str, routing_key: str) -> list[Row]:
    """The messages of a batch that fits, or WrongError."""
    _structure(root, 1, len(root.children))
    if root.format != b"+s" or not 0 <= root.length <= SMALL_MAX or root.offset < 0:
        raise WrongError("root")
    if root.schema_released or root.array_released:
        raise WrongError("released")
    if None in _bits(root, root.offset, root.length):
        raise WrongError("a row is null")
    columns: dict[str, list[object]] = {}
    for child in root.children:
        if child is None or child.name is None or child.format is None:
            raise WrongError("a column is missing")
        name = child.name.decode(errors="replace")
        if name not in _KNOWN or name in columns:
            raise WrongError(f"column {name}")
        columns[name] = _column(child, name, root.offset, root.length)
    if "body" not in columns or None in columns["body"]:
        raise WrongError("body")
    rows = []
    for index in range(root.length):
        values = {name: column[index] for name, column in columns.items()}
        body = values.pop("body")
        to, key = values.pop("exchange", None), values.pop("routing_key", None)
        assert isinstance(body, bytes)
        properties = {name: value for name, value in values.items() if value is not None}
        properties.setdefault("delivery_mode", 2)
        rows.append(
            Row(
                exchange if to is None else str(to),
                routing_key if key is None else str(key),
                body,
                tuple(sorted(properties.items(), key=lambda pair: pair[0])),
            )
        )
    return rows


def _structure(node: Node, buffers: int, children: int) -> None:
    """What stands in a node agrees with what is told of it."""
    count = len(node.buffers) if node.buffer_count is None else node.buffer_count
    if count != buffers and not (node.format in (b"vu", b"vz") and count >= buffers):
        raise WrongError("buffers")
    told = [node.schema_children, node.array_children]
    if any(number not in (None, children) for number in told) or len(node.children) != children:
        raise WrongError("children")
    if node.no_buffers and count > 0:
        raise WrongError("no buffers")


def _range(node: Node, first: int, rows: int) -> int:
    if node.offset < 0 or node.length < first + rows:
        raise WrongError("length")
    return node.offset + first


def _bits(node: Node, first: int, rows: int) -> list[bool | None]:
    """True, or None where a row is null."""
    part = node.buffers[0] if node.buffers else None
    if node.null_count == 0 or rows == 0 or (part is None and node.null_count < 0):
        return [True] * rows
    if part is None:
        raise WrongError("no validity buffer")
    return [
        True if part[place // 8] >> place % 8 & 1 else None for place in range(first, first + rows)
    ]


def _column(node: Node, name: str, first: int, rows: int) -> list[object]:
    if node.format == b"n" and name != "body":
        return [None] * rows
    if name == "headers":
        return _headers(node, first, rows)
    if name in ("priority", "delivery_mode", "timestamp", "expiration_ms"):
        return _numbers(node, name, first, rows)
    values = _strings(node, first, rows, binary=name == "body")
    if name == "body":
        return list(values)
    if any(value is not None and len(value) > 255 for value in values):
        raise WrongError("too long")
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def _integers(node: Node, first: int, rows: int, letter: str) -> list[int | None]:
    _structure(node, 2, 0)
    first = _range(node, first, rows)
    valid = _bits(node, first, rows)
    if rows == 0:
        return []
    part = node.buffers[1]
    if part is None:
        raise WrongError("no values")
    values = struct.unpack_from(f"<{rows}{letter}", part, struct.calcsize(letter) * first)
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def _numbers(node: Node, name: str, first: int, rows: int) -> list[object]:
    kind = node.format or b""
    divisor = 1
    if name == "timestamp" and kind[:2] == b"ts" and kind[2:3] in _DIVISORS and kind[3:4] == b":":
        divisor = _DIVISORS[kind[2:3]]
    elif kind not in _NUMBERS:
        raise WrongError("not a number")
    if node.dictionary is not None:
        raise WrongError("dictionary")
    values = _integers(node, first, rows, _NUMBERS.get(kind, "q"))
    if kind in _FLOATS:
        values = _whole(values, 2.0**63 if kind == b"g" else 2.0**31)
    low, high = {"priority": (0, 255), "delivery_mode": (1, 2)}.get(name, (0, 2**63 - 1))
    if any(value is not None and not low <= value <= high for value in values):
        raise WrongError("out of range")
    seconds = [None if value is None else value // divisor for value in values]
    if kind[:2] == b"ts" and kind.endswith(b":"):
        return [None if value is None else utc_of(value) for value in seconds]
    return list(seconds)


def _whole(values: list[Any], most: float) -> list[int | None]:
    """Numbers that are whole, as integers."""
    if any(v is not None and not (-most <= v < most and v == int(v)) for v in values):
        raise WrongError("not whole")
    return [None if value is None else int(value) for value in values]


def _strings(node: Node, first: int, rows: int, *, binary: bool) -> list[bytes | None]:
    kind = node.format or b""
    if node.dictionary is not None:
        if kind not in INT_FORMATS or node.dictionary_missing or node.dictionary.dictionary:
            raise WrongError("dictionary")
        codes = _integers(node, first, rows, INT_FORMATS[kind])
        entries = _strings(node.dictionary, 0, node.dictionary.length, binary=binary)
        if any(code is not None and not 0 <= code < len(entries) for code in codes):
            raise WrongError("dictionary index")
        return [None if code is None else entries[code] for code in codes]
    if kind not in (b"u", b"U", b"vu") and not (
        binary and (kind in (b"z", b"Z", b"vz") or kind.startswith(b"w:"))
    ):
        raise WrongError("not a string")
    fixed = kind.startswith(b"w:")
    _structure(node, 2 if fixed else 3, 0)
    first = _range(node, first, rows)
    valid = _bits(node, first, rows)
    if rows == 0:
        return []
    if fixed:
        values = _fixed(node, first, rows)
    elif kind in (b"vu", b"vz"):
        values = _views(node, first, rows, valid)
    else:
        offsets = _checked(node, first, rows)
        data = node.buffers[2]
        if data is None and offsets[-1] > 0:
            raise WrongError("no data")
        data = data or b""
        values = [data[offsets[i] : offsets[i + 1]] for i in range(rows)]
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def _fixed(node: Node, first: int, rows: int) -> list[bytes]:
    width = _width(node.format or b"")
    if width is None:
        raise WrongError("width")
    data = node.buffers[1]
    if data is None and width * (first + rows) > 0:
        raise WrongError("no data")
    data = data or b""
    return [data[width * row : width * (row + 1)] for row in range(first, first + rows)]


def _checked(node: Node, first: int, rows: int) -> list[int]:
    if len(node.buffers) < 2 or node.buffers[1] is None:
        raise WrongError("no offsets")
    offsets = _offsets(node, first, rows)
    if offsets != sorted(offsets) or offsets[0] < 0:
        raise WrongError("offsets")
    return offsets


def _views(node: Node, first: int, rows: int, valid: list[bool | None]) -> list[bytes]:
    count = len(node.buffers) if node.buffer_count is None else node.buffer_count
    if count > len(node.buffers):
        raise WrongError("buffers that are not there")
    views, sizes = node.buffers[1], node.buffers[count - 1]
    if views is None or (sizes is None and count > 3):
        raise WrongError("no views")
    values = []
    for index in range(rows):
        at = 16 * (first + index)
        size, _, which, offset = struct.unpack_from("<iiii", views, at)
        if not valid[index]:
            values.append(b"")
            continue
        if size < 0:
            raise WrongError("view")
        if size <= 12:
            values.append(views[at + 4 : at + 4 + size])
            continue
        if not 0 <= which < count - 3 or offset < 0:
            raise WrongError("view")
        data = node.buffers[2 + which]
        (room,) = struct.unpack_from("<q", sizes or b"", 8 * which)
        if data is None or offset + size > room:
            raise WrongError("view")
        values.append(data[offset : offset + size])
    return values


def _is_of_pairs(node: Node) -> bool:
    pair = node.children[0] if len(node.children) == 1 else None
    if pair is None or pair.format != b"+s" or len(pair.children) != 2:
        return False
    return [child and child.name for child in pair.children] == [b"key", b"value"]


def _struct_headers(node: Node, first: int, rows: int) -> list[object]:
    _structure(node, 1, len(node.children))
    first = _range(node, first, rows)
    valid = _bits(node, first, rows)
    fields: dict[str, list[bytes | None]] = {}
    for child in node.children:
        if child is None or child.name is None or child.format is None or len(child.name) > 255:
            raise WrongError("field")
        if child.format != b"n":
            name = child.name.decode("utf-8", "surrogateescape")
            fields[name] = _strings(child, first, rows, binary=False)
    tables: list[object] = [
        {name: _text(values[row]) for name, values in fields.items() if values[row] is not None}
        for row in range(rows)
    ]
    return [table if there else None for table, there in zip(tables, valid, strict=True)]


def _headers(node: Node, first: int, rows: int) -> list[object]:
    if node.dictionary is not None:
        raise WrongError("dictionary")
    if node.format == b"+s":
        return _struct_headers(node, first, rows)
    if node.format != b"+m" and not (node.format == b"+l" and _is_of_pairs(node)):
        raise WrongError("no map")
    _structure(node, 2, 1)
    entries = node.children[0]
    if entries is None:
        raise WrongError("no entries")
    first = _range(node, first, rows)
    valid = _bits(node, first, rows)
    offsets = _checked(node, first, rows) if rows else [0]
    _structure(entries, 1, 2)
    begin, count = offsets[0], offsets[-1] - offsets[0]
    begin = _range(entries, begin, count)
    if None in _bits(entries, begin, count):
        raise WrongError("a null entry")
    key, value = entries.children
    if key is None or value is None or key.format is None or value.format is None:
        raise WrongError("no key or value")
    keys = _strings(key, begin, count, binary=False)
    values = _strings(value, begin, count, binary=False)
    if any(name is None or len(name) > 255 for name in keys):
        raise WrongError("key")
    tables: list[object] = []
    for row in range(rows):
        part = range(offsets[row] - offsets[0], offsets[row + 1] - offsets[0])
        table = {
            (keys[i] or b"").decode("utf-8", "surrogateescape"): _text(values[i]) for i in part
        }
        tables.append(table if valid[row] else None)
    return tables


def _text(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
