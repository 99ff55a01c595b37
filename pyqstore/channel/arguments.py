"""Arguments of declarations and consumers: tables with names that mean something."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from datetime import datetime, timedelta

from .. import _core
from ..errors import UnknownArgument
from ..fields import FieldValue, encode_table
from ..times import since_1970, time_text

__all__ = ["START", "Arguments", "encoded", "flag", "warn_of_unknown", "with_fraction"]

Arguments = Mapping[str, FieldValue]

START = "x-stream-offset"
_OF_STREAMS = ["x-max-age", "x-max-messages", "x-stream-max-segment-size-bytes"]


def encoded(arguments: Arguments | None) -> bytes:
    """As the engine takes them: a table, or nothing."""
    return encode_table(with_fraction(arguments), ordered=True) if arguments else b""


def with_fraction(arguments: Arguments) -> Arguments:
    """AMQP's times are whole seconds: where a stream's reader begins is told with its fraction, as
    text."""
    start = getattr(arguments, "get", str)(START)  # what is no mapping is refused behind this
    if isinstance(start, datetime) and start.microsecond and since_1970(start) >= timedelta(0):
        return {**arguments, START: time_text(start)}
    return arguments


def flag(name: str, value: object) -> bool:
    """True or False, or 1 or 0.  TypeError: "no" would be true."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    told = value if isinstance(value, int) else type(value).__name__
    raise TypeError(f"{name} must be bool, not {told}")


def warn_of_unknown(queue: str, arguments: Arguments | None, stacklevel: int) -> None:
    """Of arguments of a queue that mean nothing, in the caller's name."""
    known = _core.queue_argument_names() if arguments else []
    if arguments and arguments.get("x-queue-type") == "stream":
        known += _OF_STREAMS
    for name in arguments or ():
        if not str(name).startswith("x-") or name in known:
            continue
        nearest = difflib.get_close_matches(name, known, n=1)
        warnings.warn(
            f"queue {queue!r}: the argument {name!r} means nothing here"
            + (f"; did you mean {nearest[0]!r}?" if nearest else ""),
            UnknownArgument,
            stacklevel=stacklevel + 1,
        )
