"""Lists of names as arguments: what they are is looked at before anything is taken from them, since
to iterate a queue is to take its messages."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

__all__ = ["is_ours", "listed"]


def listed(what: str, value: object, *kinds: type, ordered: bool = True) -> list[Any]:
    """The items of a sequence, or, where their order does not matter, of a set.  TypeError, which
    names the argument: it is none, or has something of another kind in it."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    types = Sequence if ordered else (Sequence, Set)
    if isinstance(value, (str, bytes, bytearray, memoryview)) or not isinstance(value, types):
        raise TypeError(f"{what} must be a sequence of {wanted}, not {type(value).__name__}")
    items = list(value)
    for index, item in enumerate(items):
        if not isinstance(item, kinds):
            raise TypeError(f"{what}[{index}] must be {wanted}, not {type(item).__name__}")
    return items


def is_ours(value: object) -> bool:
    """Whether a class of this package, or what a program derived from one: as an iterable it gives
    messages, and may take them from their queue."""
    return any(base.__module__.partition(".")[0] == "pyqstore" for base in type(value).__mro__)
