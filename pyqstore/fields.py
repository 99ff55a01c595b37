"""AMQP 0-9-1 field tables: message headers, and the arguments of declarations and bindings.

The type letters are RabbitMQ's, which differ from the specification's:
https://www.rabbitmq.com/amqp-0-9-1-errata#section_3

=====================  ==================================================
str                    ``S``; comes back as bytes if it is not UTF-8
bytes, bytearray, ...  ``x``
bool                   ``t``
int                    ``I`` if it fits 32 bits, else ``l``, 64 bits
float                  ``d``
Decimal                ``D``: 0 to 255 places, at most 32 bits of digits
datetime               ``T``: whole seconds; naive is local time, aware UTC comes back
None                   ``V``
list, any Sequence     ``A``
dict, any Mapping      ``F``
=====================  ==================================================
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, Union

from .times import EPOCH, since_1970

__all__ = ["FieldTable", "FieldValue", "decode_table", "encode_table"]

# Union: what refers to itself is a string, which has no "|".
FieldValue: TypeAlias = Union[
    str, bytes, bytearray, memoryview, bool, int, float, Decimal, datetime,
    "Sequence[FieldValue]", "Mapping[str, FieldValue]", None,
]  # fmt: skip
FieldTable: TypeAlias = Mapping[str, FieldValue]

_DEPTH_MAX = 128  # tables and arrays inside each other, the outermost table being the first
_NAME_BYTES_MAX = 255
_BRIEF = 40  # characters
_STEPS = 3  # of a way through nested tables that a text shows
_U32_MAX = 0xFFFF_FFFF
_SECOND = timedelta(seconds=1)
_LAST_SECOND = int((datetime.max.replace(tzinfo=UTC) - EPOCH) // _SECOND)

_put_u32 = struct.Struct(">I").pack
_put_u32_into = struct.Struct(">I").pack_into
_put_int32 = struct.Struct(">ci").pack
_put_int64 = struct.Struct(">cq").pack
_put_double = struct.Struct(">cd").pack
_put_decimal = struct.Struct(">cBi").pack
_put_time = struct.Struct(">cQ").pack
_get_u32 = struct.Struct(">I").unpack_from
_get_decimal = struct.Struct(">Bi").unpack_from
_NUMBERS = {
    ord(letter): struct.Struct(">" + code)
    for letter, code in {
        "b": "b", "B": "B", "s": "h", "u": "H", "I": "i", "i": "I", "l": "q", "f": "f", "d": "d",
    }.items()
}  # fmt: skip


class _Refused(Exception):
    """A value that cannot be encoded; the place it has in the table is put together on the way
    out."""

    def __init__(self, kind: type[Exception], problem: str) -> None:
        super().__init__(problem)
        self.kind = kind
        self.problem = problem
        self.place: list[str] = []


def encode_table(
    table: Mapping[str, FieldValue], *, ordered: bool = False, what: str = "arguments"
) -> bytes:
    """The bytes of ``table``, without the 32-bit length that stands before a table on the wire.

    ``ordered`` sorts the keys by their UTF-8 bytes, in nested tables too, so that equal tables are
    equal bytes. Raises TypeError or ValueError, both naming the entry (``what`` is the name of the
    table itself).
    """
    if not isinstance(table, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(table).__name__}")
    out = bytearray()
    try:
        _put_table(out, table, 1, ordered)
    except _Refused as refused:
        raise refused.kind(f"{what}{_shown(refused.place)}: {refused.problem}") from None
    return bytes(out)


def _shown(place: list[str]) -> str:
    """The way from the table to an entry; of a long one both ends."""
    steps = place[::-1]
    if len(steps) > 2 * _STEPS:
        steps = [*steps[:_STEPS], "...", steps[-1]]
    return "".join(steps)


def _put_table(out: bytearray, table: Mapping[str, FieldValue], depth: int, ordered: bool) -> None:
    if depth > _DEPTH_MAX:
        raise _Refused(ValueError, f"nested more than {_DEPTH_MAX} deep")
    entries = [(_name_bytes(name), name, value) for name, value in table.items()]
    if ordered:
        entries.sort(key=operator.itemgetter(0))
    for encoded, name, value in entries:
        out.append(len(encoded))
        out += encoded
        try:
            _put_value(out, value, depth, ordered)
        except _Refused as refused:
            refused.place.append(f"[{_brief(name)}]")
            raise


def _name_bytes(name: object) -> bytes:
    if not isinstance(name, str):
        raise _Refused(TypeError, f"names must be str, not {type(name).__name__}: {_brief(name)}")
    try:
        encoded = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _Refused(ValueError, f"name {_brief(name)} is not valid Unicode") from None
    if len(encoded) > _NAME_BYTES_MAX:
        raise _Refused(
            ValueError,
            f"name {_brief(name)} is {len(encoded)} bytes long, {_NAME_BYTES_MAX} is the most",
        )
    return encoded


def _put_value(out: bytearray, value: object, depth: int, ordered: bool) -> None:
    if isinstance(value, str):
        try:
            _put_bytes(out, b"S", value.encode())
        except UnicodeEncodeError:
            raise _Refused(ValueError, f"{_brief(value)} is not valid Unicode") from None
    elif isinstance(value, bool):
        out += b"t\1" if value else b"t\0"
    elif isinstance(value, int):
        _put_int(out, value)
    elif isinstance(value, float):
        out += _put_double(b"d", value)
    elif value is None:
        out += b"V"
    elif isinstance(value, bytes | bytearray | memoryview):
        _put_bytes(out, b"x", bytes(value))
    elif isinstance(value, Mapping):
        out += b"F"
        at = _open_length(out)
        _put_table(out, value, depth + 1, ordered)
        _close_length(out, at)
    elif isinstance(value, list | tuple | Sequence):
        out += b"A"
        at = _open_length(out)
        _put_array(out, value, depth + 1, ordered)
        _close_length(out, at)
    elif isinstance(value, datetime):
        out += _put_time(b"T", _seconds_checked(value))
    elif isinstance(value, Decimal):
        _put_decimal_value(out, value)
    elif (number := _index_of(value)) is not None:
        _put_int(out, number)
    else:
        raise _Refused(
            TypeError,
            f"{type(value).__name__} is not a field value: use str, bytes, bool, int, float,"
            " Decimal, datetime, None, list or dict",
        )


def _index_of(value: object) -> int | None:
    """Of NumPy's integers; None of others, its arrays among them."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _brief(value: object) -> str:
    """For a text of one short line."""
    shown = repr(value)
    return shown if len(shown) <= _BRIEF else f"{shown[:_BRIEF]}..."


def _put_array(out: bytearray, values: Sequence[object], depth: int, ordered: bool) -> None:
    if depth > _DEPTH_MAX:
        raise _Refused(ValueError, f"nested more than {_DEPTH_MAX} deep")
    for index, value in enumerate(values):
        try:
            _put_value(out, value, depth, ordered)
        except _Refused as refused:
            refused.place.append(f"[{index}]")
            raise


def _open_length(out: bytearray) -> int:
    out += b"\0\0\0\0"
    return len(out)


def _close_length(out: bytearray, at: int) -> None:
    length = len(out) - at
    if length > _U32_MAX:
        raise _Refused(ValueError, f"{length} bytes long, {_U32_MAX} is the most")
    _put_u32_into(out, at - 4, length)


def _put_bytes(out: bytearray, letter: bytes, value: bytes) -> None:
    if len(value) > _U32_MAX:
        raise _Refused(ValueError, f"{len(value)} bytes long, {_U32_MAX} is the most")
    out += letter
    out += _put_u32(len(value))
    out += value


def _put_int(out: bytearray, value: int) -> None:
    if -(2**31) <= value < 2**31:
        out += _put_int32(b"I", value)
    elif -(2**63) <= value < 2**63:
        out += _put_int64(b"l", value)
    else:
        raise _Refused(ValueError, f"{value} does not fit a signed 64-bit integer")


def _put_decimal_value(out: bytearray, value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _Refused(ValueError, f"{value} is not a number")
    places = max(0, -exponent)
    if places > 255:
        raise _Refused(ValueError, f"{places} decimal places, 255 is the most")
    if len(digits) + max(0, exponent) > 32:  # before the power below grows large
        raise _Refused(ValueError, f"{value} has more digits than a signed 32-bit integer")
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent)
    if sign:
        unscaled = -unscaled
    if not -(2**31) <= unscaled < 2**31:
        raise _Refused(ValueError, f"{value} has more digits than a signed 32-bit integer")
    out += _put_decimal(b"D", places, unscaled)


def _seconds_checked(value: datetime) -> int:
    try:
        return seconds(value)
    except ValueError as error:
        raise _Refused(ValueError, str(error)) from None


def seconds(value: datetime) -> int:
    """Whole seconds from 1970 to ``value``; ValueError before 1970."""
    result = int(since_1970(value) // _SECOND)
    if result < 0:
        raise ValueError(f"{value} is before 1970, which AMQP cannot express")
    return result


# Decoding: every read is checked against the end of what it is in.


def decode_table(data: bytes) -> dict[str, Any]:
    """The table in ``data``, as :func:`encode_table` makes it.  ValueError if it is malformed,
    TypeError for anything but bytes."""
    if not isinstance(data, bytes):
        raise TypeError(f"data must be bytes, not {type(data).__name__}")
    table, _ = _read_table(data, 0, len(data), 1)
    return table


def _malformed(at: int) -> ValueError:
    return ValueError(f"malformed field table at byte {at}")


def _read_table(data: bytes, at: int, end: int, depth: int) -> tuple[dict[str, Any], int]:
    if depth > _DEPTH_MAX:
        raise _malformed(at)
    table: dict[str, Any] = {}
    while at < end:
        stop = at + 1 + data[at]
        if stop >= end:
            raise _malformed(at)
        name = data[at + 1 : stop].decode("utf-8", "surrogateescape")
        table[name], at = _read_value(data, stop, end, depth)
    return table, at


def _read_array(data: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEPTH_MAX:
        raise _malformed(at)
    array: list[Any] = []
    while at < end:
        value, at = _read_value(data, at, end, depth)
        array.append(value)
    return array, at


def _read_value(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    letter = data[at]
    at += 1
    number = _NUMBERS.get(letter)
    if number is not None:
        if at + number.size > end:
            raise _malformed(at)
        return number.unpack_from(data, at)[0], at + number.size
    reader = _READERS.get(letter)
    if reader is None:
        raise ValueError(f"malformed field table at byte {at - 1}: unknown type {chr(letter)!r}")
    return reader(data, at, end, depth)


def _extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 4 > end:
        raise _malformed(at)
    stop = at + 4 + _get_u32(data, at)[0]
    if stop > end:
        raise _malformed(at)
    return at + 4, stop


def _read_string(data: bytes, at: int, end: int, depth: int) -> tuple[str | bytes, int]:
    at, stop = _extent(data, at, end)
    value = data[at:stop]
    try:
        return value.decode(), stop
    except UnicodeDecodeError:
        return value, stop


def _read_bytes(data: bytes, at: int, end: int, depth: int) -> tuple[bytes, int]:
    at, stop = _extent(data, at, end)
    return data[at:stop], stop


def _read_bool(data: bytes, at: int, end: int, depth: int) -> tuple[bool, int]:
    if at >= end:
        raise _malformed(at)
    return data[at] != 0, at + 1


def _read_void(data: bytes, at: int, end: int, depth: int) -> tuple[None, int]:
    return None, at


def _read_time(data: bytes, at: int, end: int, depth: int) -> tuple[datetime | int, int]:
    if at + 8 > end:
        raise _malformed(at)
    value = int.from_bytes(data[at : at + 8], "big")
    if value > _LAST_SECOND:
        return value, at + 8
    return EPOCH + timedelta(seconds=value), at + 8


def _read_decimal(data: bytes, at: int, end: int, depth: int) -> tuple[Decimal, int]:
    if at + 5 > end:
        raise _malformed(at)
    places, unscaled = _get_decimal(data, at)
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -places)), at + 5


def _read_nested_table(data: bytes, at: int, end: int, depth: int) -> tuple[dict[str, Any], int]:
    at, stop = _extent(data, at, end)
    return _read_table(data, at, stop, depth + 1)


def _read_nested_array(data: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    at, stop = _extent(data, at, end)
    return _read_array(data, at, stop, depth + 1)


_READERS: dict[int, Callable[[bytes, int, int, int], tuple[Any, int]]] = {
    ord("t"): _read_bool,
    ord("S"): _read_string,
    ord("x"): _read_bytes,
    ord("V"): _read_void,
    ord("T"): _read_time,
    ord("D"): _read_decimal,
    ord("F"): _read_nested_table,
    ord("A"): _read_nested_array,
}
