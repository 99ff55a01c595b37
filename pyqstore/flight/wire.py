"""The messages between client and server: commands and answers as JSON, and errors.

Both sides are part of this project; the forms may change with its versions, so a client asks for
``PROTOCOL`` first.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import errors
from ..channel.arguments import with_fraction
from ..errors import (
    ChannelError,
    Error,
    MessageReturned,
    OffsetOutOfRange,
    PublishRefused,
    StoreError,
    Unroutable,
)
from ..fields import FieldValue
from ..properties import Properties
from ..stream import Committed, Start, microseconds_of

__all__ = [
    "END",
    "PROTOCOL",
    "WINDOW",
    "confirmed_note",
    "error_of",
    "is_confirmed_note",
    "pack",
    "pack_arguments",
    "pack_error",
    "pack_properties",
    "pack_start",
    "pack_table",
    "unpack",
    "unpack_properties",
    "unpack_start",
    "unpack_table",
]

PROTOCOL = 3
WINDOW = 8
"""Batches of a publish or a staging that may be without an answer."""
END = b"end"
"""Follows the last batch of a publish or a staging: without it the client was disconnected."""

_TEXT_MAX = 1500  # an error travels in gRPC's trailers, which have room for 8 KiB
_BUILTINS = {
    kind.__name__: kind
    for kind in (
        MemoryError,
        NotImplementedError,
        OSError,
        OverflowError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}
_KNOWN = {*errors.__all__, *_BUILTINS}
_NOTE = "publish_batch"
_ROW = re.compile(r"^(\w+ - )?row (\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORE_DETAILS = ("status", "path", "offset", "os_errno", "pid")


def pack(do: str, **arguments: Any) -> bytes:
    """A command with its arguments, or another message.  TypeError."""
    return pack_arguments({"do": do, **arguments})


def pack_arguments(arguments: Mapping[str, Any]) -> bytes:
    """Arguments alone.  TypeError: one is bytes, which JSON does not have."""
    for name, value in arguments.items():
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"{name} must be str, not {type(value).__name__}")
    return json.dumps(arguments, separators=(",", ":")).encode()


def unpack(data: bytes) -> tuple[str, dict[str, Any]]:
    """The reverse of ``pack``.  ValueError: it is not valid."""
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("do"), str):
        raise ValueError("no command of pyqstore's: expected JSON with its name as 'do'")
    return told.pop("do"), told


def pack_table(table: Mapping[str, FieldValue] | None) -> str | None:
    """A field table, with any values, as text."""
    return pack_properties(Properties(headers=dict(with_fraction(table)))) if table else None


def unpack_table(text: str | None) -> dict[str, FieldValue] | None:
    """The reverse of ``pack_table``.  ValueError: it is not valid."""
    properties = unpack_properties(text)
    return None if properties is None else dict(properties.headers or {})


def pack_properties(properties: Properties | None) -> str | None:
    """Properties as text."""
    return None if properties is None else base64.b64encode(properties.encoded).decode()


def unpack_properties(text: str | None) -> Properties | None:
    """The reverse of ``pack_properties``.  ValueError: it is not valid."""
    return None if text is None else Properties.decode(base64.b64decode(text))


def pack_start(start: Start | None) -> Any:
    """A place in a stream; a time span ends at the client's present time."""
    if isinstance(start, Committed):
        return {"group": start.group, "default": pack_start(start.default)}
    if isinstance(start, datetime | timedelta):
        return {"time_us": microseconds_of(start)}
    if start is None or isinstance(start, str):
        return start
    return operator.index(start)


def unpack_start(told: Any) -> Any:
    """The reverse of ``pack_start``."""
    if not isinstance(told, dict):
        return told
    if "group" in told:
        return Committed(str(told["group"]), unpack_start(told.get("default")))
    return _EPOCH + timedelta(microseconds=int(told["time_us"]))


def confirmed_note(rows: int) -> str:
    """The note of an exception of a publish."""
    return f"{_NOTE}: {rows} rows had been confirmed"


def is_confirmed_note(note: str) -> bool:
    """Whether a note is one of ``confirmed_note``."""
    return note.startswith(_NOTE)


def pack_error(
    error: BaseException, *, rows_before: int = 0, of: str = "", confirmed: int | None = None
) -> bytes:
    """An exception, for ``error_of``.

    ``rows_before`` is added to the row that its text begins with, and ``of`` put before that;
    ``confirmed`` becomes a note.
    """
    names = [kind.__name__ for kind in type(error).__mro__]
    name = next((name for name in names if name in _KNOWN), names[0])
    text = _ROW.sub(
        lambda found: f"{found[1] or ''}{of}row {int(found[2]) + rows_before}", str(error), count=1
    )
    told: dict[str, Any] = {"class": name, "text": text[:_TEXT_MAX], "confirmed": confirmed}
    if isinstance(error, ChannelError):
        told["reply_code"] = error.reply_code
        told["count"] = getattr(error, "count", 0)
    elif isinstance(error, OffsetOutOfRange):
        told["first"], told["next"], told["stream"] = error.first, error.next, error.stream
    elif isinstance(error, PublishRefused):
        told.update(count=error.count, rows=error.rows, queue=error.queue)
    elif isinstance(error, MessageReturned):
        told["count"] = error.count
    elif isinstance(error, StoreError):
        told.update({name: getattr(error, name, None) for name in _STORE_DETAILS})
    return json.dumps(told).encode()


def error_of(data: bytes) -> Exception | None:
    """The exception that a server reported; None: it reported none."""
    try:
        told = json.loads(data)
        name, text = str(told["class"]), str(told["text"])
        error = _made(name, text, told)
        if told.get("confirmed") is not None:
            error.add_note(confirmed_note(int(told["confirmed"])))
        return error
    except (ValueError, KeyError, TypeError):
        return None


def _made(name: str, text: str, told: dict[str, Any]) -> Exception:
    kind: Any = getattr(errors, name, None) if name in errors.__all__ else None
    if kind is None:
        if name in _BUILTINS:
            return _BUILTINS[name](text)
        return Error(f"the server failed: {name}: {text}")
    if kind is Unroutable:
        return Unroutable(int(told["reply_code"]), text, int(told["count"]))
    if issubclass(kind, ChannelError):
        error: Exception = kind(int(told["reply_code"]), text)
        return error
    if kind is OffsetOutOfRange:
        return OffsetOutOfRange(int(told["first"]), int(told["next"]), told.get("stream", ""))
    if kind is PublishRefused:
        rows = tuple(map(int, told["rows"]))
        return PublishRefused(0, int(told["count"]), (), rows, str(told.get("queue", "")))
    if kind is MessageReturned:
        return MessageReturned(None, int(told["count"]))
    error = kind(text)
    for detail in _STORE_DETAILS if isinstance(error, StoreError) else ():
        setattr(error, detail, told.get(detail))
    return error
