"""The properties of a message: AMQP 0-9-1's basic class, encoded as on the wire.

Encoding (AMQP 0-9-1 section 4.2.6.1): 16 flag bits, big-endian, bit 15 for ``content_type`` and bit
2 for ``cluster_id``, then the values that are present in that order.  No properties at all are no
bytes at all.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn, Self, cast

from . import _core
from .fields import FieldValue, decode_table, encode_table, seconds

__all__ = ["NAMES", "Properties"]

NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_HEADERS = NAMES.index("headers")
_OCTETS = (NAMES.index("delivery_mode"), NAMES.index("priority"))
_TIMESTAMP = NAMES.index("timestamp")
_SHORTSTR_BYTES_MAX = 255
_EXPIRATION_MS_MAX = 2**32 - 2
_UNUSED_FLAGS = 0b11
_put_u16 = struct.Struct(">H").pack
_put_u32 = struct.Struct(">I").pack
_put_u64 = struct.Struct(">Q").pack


class Properties(_core.EncodedProperties):
    """The 14 AMQP properties by their AMQP names.  None: not set.

    Immutable: the encoded form is made once, here, so that publishing many messages with one
    instance costs nothing; :meth:`replace` makes a changed copy.  Instances are equal when they
    encode the same values (the order of headers does not count), and hashable.

    - ``content_type``, ``content_encoding``, ``correlation_id``, ``reply_to``, ``message_id``,
      ``type``, ``user_id``, ``app_id``, ``cluster_id``: str, at most 255 bytes of UTF-8.
    - ``headers``: mapping of str to str, bytes, bool, int (64 bits), float, Decimal (255 places, 32
      bits of digits), datetime (whole seconds; naive is local time, aware UTC comes back), None,
      list, dict, nested up to 128 deep.
    - ``delivery_mode``: 1 transient, 2 persistent.
    - ``priority``: 0 to 255.
    - ``expiration``: milliseconds, as int, as AMQP's decimal str, or as timedelta, which is rounded
      up; 4294967294 at most.  A str comes back.
    - ``timestamp``: seconds since 1970, as int or datetime (naive is local time); an int comes
      back.

    Raises TypeError or ValueError that names the property, or the header in it.
    """

    __slots__ = ()

    def __new__(
        cls,
        *,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, FieldValue] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expiration: str | int | timedelta | None = None,
        message_id: str | None = None,
        timestamp: int | datetime | None = None,
        type: str | None = None,  # noqa: A002 - AMQP's name
        user_id: str | None = None,
        app_id: str | None = None,
        cluster_id: str | None = None,
    ) -> Self:
        """Check and encode the values."""
        flags = 0
        parts = [b""]
        if content_type is not None:
            flags |= 0x8000
            parts.append(_shortstr("content_type", content_type))
        if content_encoding is not None:
            flags |= 0x4000
            parts.append(_shortstr("content_encoding", content_encoding))
        table: bytes | None = None
        if headers is not None:
            flags |= 0x2000
            table = encode_table(headers, what="headers")
            parts.append(_put_u32(len(table)))
            parts.append(table)
        if delivery_mode is not None:
            flags |= 0x1000
            delivery_mode = integer("delivery_mode", delivery_mode, 1, 2)
            parts.append(b"\1" if delivery_mode == 1 else b"\2")
        if priority is not None:
            flags |= 0x0800
            priority = integer("priority", priority, 0, 255)
            parts.append(priority.to_bytes(1, "big"))
        if correlation_id is not None:
            flags |= 0x0400
            parts.append(_shortstr("correlation_id", correlation_id))
        if reply_to is not None:
            flags |= 0x0200
            parts.append(_shortstr("reply_to", reply_to))
        if expiration is not None:
            flags |= 0x0100
            expiration = _milliseconds(expiration)
            parts.append(_shortstr("expiration", expiration))
        if message_id is not None:
            flags |= 0x0080
            parts.append(_shortstr("message_id", message_id))
        if timestamp is not None:
            flags |= 0x0040
            timestamp = _seconds(timestamp)
            parts.append(_put_u64(timestamp))
        if type is not None:
            flags |= 0x0020
            parts.append(_shortstr("type", type))
        if user_id is not None:
            flags |= 0x0010
            parts.append(_shortstr("user_id", user_id))
        if app_id is not None:
            flags |= 0x0008
            parts.append(_shortstr("app_id", app_id))
        if cluster_id is not None:
            flags |= 0x0004
            parts.append(_shortstr("cluster_id", cluster_id))
        if flags == 0:
            return super().__new__(cls, b"", _NOTHING)
        parts[0] = _put_u16(flags)
        return super().__new__(
            cls,
            b"".join(parts),
            (
                content_type, content_encoding, table, delivery_mode, priority, correlation_id,
                reply_to, expiration, message_id, timestamp, type, user_id, app_id, cluster_id,
            ),
        )  # fmt: skip

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """The properties in AMQP's encoding, as ``encoded`` holds it.

        ValueError if they are malformed; for the entries of the headers, when ``headers`` is read.
        """
        return super().__new__(cls, encoded, _decode(encoded))

    @property
    def content_type(self) -> str | None:
        """MIME type of the body."""
        return cast("str | None", self.values[0])

    @property
    def content_encoding(self) -> str | None:
        """MIME encoding of the body, such as "gzip"."""
        return cast("str | None", self.values[1])

    @property
    def headers(self) -> dict[str, Any]:
        """The application's headers, empty when none are set: a new dict each time, so that
        changing it changes nothing here."""
        table = self.values[_HEADERS]
        return {} if table is None else decode_table(cast(bytes, table))

    @property
    def delivery_mode(self) -> int | None:
        """1 transient, 2 persistent."""
        return cast("int | None", self.values[3])

    @property
    def priority(self) -> int | None:
        """0 to 255."""
        return cast("int | None", self.values[4])

    @property
    def correlation_id(self) -> str | None:
        """Ties an answer to its question."""
        return cast("str | None", self.values[5])

    @property
    def reply_to(self) -> str | None:
        """Where to send the answer."""
        return cast("str | None", self.values[6])

    @property
    def expiration(self) -> str | None:
        """Milliseconds to live, as decimal text."""
        return cast("str | None", self.values[7])

    @property
    def message_id(self) -> str | None:
        """The application's identifier."""
        return cast("str | None", self.values[8])

    @property
    def timestamp(self) -> int | None:
        """Seconds since 1970."""
        return cast("int | None", self.values[9])

    @property
    def type(self) -> str | None:
        """The application's name for the kind of message."""
        return cast("str | None", self.values[10])

    @property
    def user_id(self) -> str | None:
        """Who published; not checked against anything."""
        return cast("str | None", self.values[11])

    @property
    def app_id(self) -> str | None:
        """Which application published."""
        return cast("str | None", self.values[12])

    @property
    def cluster_id(self) -> str | None:
        """Deprecated in AMQP; kept as it is."""
        return cast("str | None", self.values[13])

    def asdict(self) -> dict[str, Any]:
        """The properties that are set, by name, in AMQP's order."""
        return {
            name: getattr(self, name)
            for name, value in zip(NAMES, self.values, strict=True)
            if value is not None
        }

    def replace(self, **changes: Any) -> Self:
        """A copy with these properties changed, or taken away with None.

        TypeError for an unknown name, and what the constructor raises.
        """
        return self.__class__(**{**self.asdict(), **changes})

    def _canonical(self) -> tuple[object, ...]:
        """The values, with the headers in one order and one integer width."""
        table = self.values[_HEADERS]
        if table is None:
            return self.values
        canonical = encode_table(decode_table(cast(bytes, table)), ordered=True, what="headers")
        return (*self.values[:_HEADERS], canonical, *self.values[_HEADERS + 1 :])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Properties):
            return NotImplemented
        return self.encoded == other.encoded or self._canonical() == other._canonical()

    def __hash__(self) -> int:
        return hash(self._canonical())

    def __repr__(self) -> str:
        return (
            f"Properties({', '.join(f'{name}={value!r}' for name, value in self.asdict().items())})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__.decode, (self.encoded,)


_NOTHING: tuple[None, ...] = (None,) * len(NAMES)


def _wrong_type(name: str, wanted: str, value: object) -> NoReturn:
    raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def _shortstr(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        _wrong_type(name, "str", value)
    try:
        encoded = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not valid Unicode: {value!r:.60}") from None
    if len(encoded) > _SHORTSTR_BYTES_MAX:
        raise ValueError(f"{name} is {len(encoded)} bytes long, {_SHORTSTR_BYTES_MAX} is the most")
    return len(encoded).to_bytes(1, "big") + encoded


def integer(name: str, value: int, least: int, most: int) -> int:
    """Checked; TypeError and ValueError name it."""
    try:
        number = int(operator.index(value))
    except TypeError:
        _wrong_type(name, "int", value)
    if not least <= number <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {number}")
    return number


def _milliseconds(value: str | int | timedelta) -> str:
    if isinstance(value, str):
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 256 else -1
        if not 0 <= number <= _EXPIRATION_MS_MAX:
            raise ValueError(
                "expiration must be milliseconds as a decimal number,"
                f" {_EXPIRATION_MS_MAX} at most, not {value!r:.60}"
            )
        return value
    if isinstance(value, timedelta):
        value = whole_milliseconds(value)
    return str(integer("expiration", value, 0, _EXPIRATION_MS_MAX))


def whole_milliseconds(span: timedelta) -> int:
    """Rounded up, without leaving what a timedelta can hold."""
    whole, rest = divmod(span, timedelta(milliseconds=1))
    return whole + bool(rest)


def _seconds(value: int | datetime) -> int:
    if isinstance(value, datetime):
        try:
            return seconds(value)
        except ValueError as error:
            raise ValueError(f"timestamp: {error}") from None
    return integer("timestamp", value, 0, 2**64 - 1)


def _decode(encoded: bytes) -> tuple[object, ...]:
    if not encoded:
        return _NOTHING
    if len(encoded) < 2:
        raise ValueError("malformed properties: cut off in the flags")
    flags = int.from_bytes(encoded[:2], "big")
    if flags & _UNUSED_FLAGS:
        raise ValueError(f"malformed properties: unknown flags {flags:#06x}")
    values: list[object] = [None] * len(NAMES)
    at = 2
    for index, name in enumerate(NAMES):
        if not flags & (0x8000 >> index):
            continue
        if index == _HEADERS:
            start = at + 4
            stop = start + int.from_bytes(encoded[at:start], "big")
        elif index in _OCTETS:
            start, stop = at, at + 1
        elif index == _TIMESTAMP:
            start, stop = at, at + 8
        else:
            start = at + 1
            stop = start + (encoded[at] if at < len(encoded) else 0)
        if start > len(encoded) or stop > len(encoded):
            raise ValueError(f"malformed properties: cut off in {name}")
        value = encoded[start:stop]
        if index == _HEADERS:
            values[index] = value
        elif index in _OCTETS or index == _TIMESTAMP:
            values[index] = int.from_bytes(value, "big")
        else:
            values[index] = value.decode("utf-8", "surrogateescape")
        at = stop
    if at != len(encoded):
        raise ValueError(f"malformed properties: {len(encoded) - at} bytes too many")
    return tuple(values)
