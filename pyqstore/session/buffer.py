"""Messages that were pushed to a consumer and not handed out yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from .. import _core

__all__ = ["PushBuffer"]

_BYTES_MAX = 16 * 1024 * 1024


class PushBuffer:
    """Messages between the engine and a consumer, oldest first.

    They are fetched ahead of calls: as many as the consumer's window allows, and more as messages
    are acknowledged.  If their bodies reach 16 MiB together, no more are fetched.
    """

    __slots__ = ("_bytes", "_messages", "most")

    def __init__(self) -> None:
        self._messages: deque[_core.Message] = deque()
        self._bytes = 0
        self.most: int = 0
        """The highest number of messages so far."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> Sequence[_core.Message]:
        """All messages, in a container that stays the same."""
        return self._messages

    def __iter__(self) -> Iterator[_core.Message]:
        return iter(self._messages.copy())  # more may be pushed meanwhile

    @property
    def first(self) -> _core.Message | None:
        """The oldest message."""
        return self._messages[0] if self._messages else None

    @property
    def body_bytes(self) -> int:
        """The bytes of all bodies."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether the bodies reach the limit."""
        return self._bytes >= _BYTES_MAX

    def room(self, most: int) -> int:
        """How many of ``most`` further messages fit, if their bodies are like the present ones."""
        held = self._bytes
        if held >= _BYTES_MAX:
            return 0
        if held == 0:
            return most
        fit = (_BYTES_MAX - held) * len(self._messages) // held + 1
        return most if most < fit else fit

    def append(self, message: _core.Message) -> None:
        """Adds a pushed message."""
        messages = self._messages
        messages.append(message)
        self._bytes += len(message.body)
        if len(messages) > self.most:
            self.most = len(messages)

    def popleft(self) -> _core.Message:
        """Removes the oldest message."""
        message = self._messages.popleft()
        self._bytes -= len(message.body)
        return message

    def recount(self) -> None:
        """Corrects the size after a call that may have been interrupted."""
        self._bytes = sum(len(message.body) for message in self._messages)

    def clear(self) -> list[int]:
        """Removes all messages; returns their delivery tags."""
        tags = [message.delivery_tag for message in self._messages]
        self._messages.clear()
        self._bytes = 0
        return tags
