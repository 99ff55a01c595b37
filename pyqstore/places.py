"""Places in a stream as text: of the command line, and of a tool's calls."""

from __future__ import annotations

import datetime

__all__ = ["Start", "place_of", "start_of", "text_of"]

Start = str | int | datetime.datetime | datetime.timedelta

_POSITION_MAX = 2**64 - 1
_UNITS = {  # of an age, as of a stream's max_age
    "Y": datetime.timedelta(days=365),
    "M": datetime.timedelta(days=30),
    "D": datetime.timedelta(days=1),
    "h": datetime.timedelta(hours=1),
    "m": datetime.timedelta(minutes=1),
    "s": datetime.timedelta(seconds=1),
}


def place_of(text: str) -> Start:
    """An offset, a time, how long ago, or a word.  ValueError: it is none."""
    if text in ("first", "last", "next"):
        return text
    try:
        if text[-1:] in _UNITS and text[:-1].isdecimal():
            return int(text[:-1]) * _UNITS[text[-1:]]
        if not text.isdecimal():
            return datetime.datetime.fromisoformat(text)
        if int(text) < _POSITION_MAX:
            return int(text)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"{text!r} is no offset, no time such as 2026-01-31T12:00, no age such as 1h, and none of"
        " first, last and next"
    )


def text_of(place: Start) -> str:
    """The text that ``place_of`` makes the same place of.  A time without a zone is local here, and
    gets this one's."""
    if isinstance(place, datetime.datetime):
        return place.astimezone().isoformat()
    if isinstance(place, datetime.timedelta):
        return f"{int(place.total_seconds())}s"
    return str(place)


def start_of(text: str | None) -> Start | None:
    """The same of what may be left out."""
    return None if text is None else place_of(text)
