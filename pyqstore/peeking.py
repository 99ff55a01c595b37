"""Looking at the messages of a queue one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import _core
from .errors import StoreCorrupt
from .message import Message

__all__ = ["peeks"]


def peeks(
    store: _core.Store, queue: str, damaged: Callable[[StoreCorrupt], object], position: int = 0
) -> Iterator[tuple[Message, str]]:
    """As ``Store.browse``: each message, and whether it is "ready", "unacked" or "delayed".  The
    delivery tag is the message's position: in a stream its offset."""
    while True:
        position, message, state, error = store._peek(queue, position)
        if message is not None:
            yield message, state
        elif error is None:
            return
        elif isinstance(error, StoreCorrupt):
            damaged(error)
        else:
            raise error
