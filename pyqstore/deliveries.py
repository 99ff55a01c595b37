"""Which deliveries somebody has: whoever settles "all up to" a tag means those he was handed."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Deliveries", "Tags", "handed_out"]

Tags = tuple[int, int]
"""The first and the last of consecutive delivery tags."""


def handed_out(held: Iterable[Tags], last: int) -> list[Tags]:
    """The tags from 1 to ``last`` without those that are ``held``, which ascend."""
    between = []
    begin = 1
    for held_first, held_last in held:
        if held_first > last:
            break
        if begin < held_first:
            between.append((begin, held_first - 1))
        begin = held_last + 1
    if begin <= last:
        between.append((begin, last))
    return between


class Deliveries:
    """Deliveries of a channel that came from the engine and were not handed out yet."""

    __slots__ = ("_held", "last")

    def __init__(self) -> None:
        self._held: dict[int, int] = {}  # first tag: last tag; they come in ascending order
        self.last = 0
        """The highest tag that came."""

    def came(self, first: int, last: int) -> None:
        """These are on their way to whoever asked."""
        self._held[first] = self.last = last

    def went(self, first: int) -> None:
        """Those that came as beginning with ``first`` were handed out, or are put back."""
        del self._held[first]

    @property
    def held(self) -> list[Tags]:
        """Those that are on their way, as they are now."""
        return list(self._held.items())

    def handed_out(self, last: int) -> list[Tags]:
        """The tags from 1 to ``last`` without those that are on their way."""
        return handed_out(self._held.items(), last)
