"""What a time without a zone is: local time, as ``datetime.timestamp`` has it.

Everything that takes a datetime asks here; the columns of Arrow data that the engine reads are read
by the same rule in ``core/arrow.pyx``.  What is given out is aware, in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["EPOCH", "since_1970", "time_text", "utc_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def since_1970(value: datetime) -> timedelta:
    """From 1970 to ``value``, negative before.  ValueError: pandas's NaT."""
    if value != value:
        raise ValueError(f"{value} is no time")
    if value.tzinfo is not None:
        return value - EPOCH
    whole = datetime(*value.timetuple()[:6], fold=value.fold)  # pandas's are always of UTC
    try:
        seconds = int(whole.timestamp())
    except (OverflowError, ValueError, OSError):  # within a day of the first year, or of the last
        seconds = int(whole.replace(tzinfo=UTC).timestamp())
    return timedelta(seconds=seconds, microseconds=value.microsecond)


def utc_of(shown_s: int) -> int:
    """When local clocks show so many seconds since 1970; the same beyond Python's calendar."""
    try:
        return since_1970(EPOCH.replace(tzinfo=None) + shown_s * _SECOND) // _SECOND
    except OverflowError:
        return shown_s


def time_text(value: datetime) -> str:
    """As ``x-stream-offset`` may be told: "2026-01-31T12:00:00.500000Z"."""
    shown = (EPOCH + since_1970(value)).isoformat(timespec="microseconds")
    return shown.replace("+00:00", "Z")
