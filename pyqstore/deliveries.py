"""Which deliveries somebody has: to settle "all up to" a tag means those handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

__all__ = ["Backlog", "Deliveries", "Tags", "handed_out"]

BACKLOG_MESSAGES = 256
BACKLOG_BYTES = 256 * 1024

Tags = tuple[int, int]
"""The first and the last of consecutive delivery tags."""


class _Sized(Protocol):
    @property
    def body(self) -> bytes: ...


_M = TypeVar("_M", bound=_Sized)


class Backlog(Generic[_M]):
    """What came for a consumer while another one was read, oldest first.

    When it ``is_full`` the consumer is to be paused, and to go on when the last message is taken:
    256 messages, or 256 KiB of bodies, and the message that reached that.
    """

    __slots__ = ("_bytes", "_messages", "is_paused")

    def __init__(self) -> None:
        self._messages: deque[_M] = deque()
        self._bytes = 0
        self.is_paused: bool = False
        """For whoever pauses the consumer to note."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[_M]:
        return iter(self._messages)

    def append(self, message: _M) -> None:
        """A message came."""
        self._messages.append(message)
        self._bytes += len(message.body)

    def popleft(self) -> _M:
        """The oldest message."""
        message = self._messages.popleft()
        self._bytes -= len(message.body)
        return message

    def clear(self) -> None:
        """Nothing is left."""
        self._messages.clear()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as it may."""
        return len(self._messages) >= BACKLOG_MESSAGES or self._bytes >= BACKLOG_BYTES


def handed_out(buffered: Iterable[Tags], last: int) -> list[Tags]:
    """The tags from 1 to ``last`` without those that are ``buffered``, which ascend."""
    between = []
    begin = 1
    for buffered_first, buffered_last in buffered:
        if buffered_first > last:
            break
        if begin < buffered_first:
            between.append((begin, buffered_first - 1))
        begin = buffered_last + 1
    if begin <= last:
        between.append((begin, last))
    return between


class Deliveries:
    """Deliveries of a channel that came from the engine and were not handed out yet."""

    __slots__ = ("_buffered", "last")

    def __init__(self) -> None:
        self._buffered: dict[int, int] = {}  # first tag: last tag; they come in ascending order
        self.last: int = 0
        """The highest tag that came."""

    def came(self, first: int, last: int) -> None:
        """These are on their way to whoever asked."""
        self._buffered[first] = self.last = last

    def went(self, first: int) -> None:
        """Those that came as beginning with ``first`` were handed out, or are put back."""
        del self._buffered[first]

    @property
    def buffered(self) -> list[Tags]:
        """Those that are on their way, as they are now."""
        return list(self._buffered.items())

    def handed_out(self, last: int) -> list[Tags]:
        """The tags from 1 to ``last`` without those that are on their way."""
        return handed_out(self._buffered.items(), last)
