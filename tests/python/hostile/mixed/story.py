"""What a worker tells while it works: one line for each event, a JSON array.

The first element is the position of the disk's recorder, or 0; the second is one of the words
below.  *Before* the thing is done, so that what is not told has not happened:

- ``publish`` [copies]: will be published.
- ``settle`` [copies]: will be acknowledged, or dropped for good.
- ``reject`` [copies]: will be rejected where the queue has dead letters.
- ``requeue`` [copies]: will be given back.
- ``auto`` queue, count: up to so many will be taken, acknowledged at once.
- ``begin`` key, [published], [acknowledged], [rejected]: a transaction will be committed.
- ``repeat`` key, [published]: one that may have been committed before will be, with its key.
- ``purge`` queue, [unacked copies]; ``delete`` queue; ``declare`` queue.
- ``phase`` "opening", "closing".

*After* it was done, so that what is told was promised:

- ``confirm`` [copies], ``refuse`` [copies]: the store's word to the publisher.
- ``got`` queue, [copies]: handed out.
- ``auto-got`` queue, count, [copies]: so many were asked for, these came.
- ``durable`` [copies]: settled, and synced since.
- ``commit`` key; ``repeated`` key, whether it was committed now.
- ``purged`` queue, ``deleted`` queue, ``declared`` queue.
- ``phase`` "open", "closed".
- ``wrong`` text: the worker saw something that must not be.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

Event = tuple[int, str, list[Any]]


class Story:
    """Tells events on a descriptor, from any thread."""

    def __init__(self, descriptor: int, position: Callable[[], int]) -> None:
        """``position`` asks the disk's recorder where it is."""
        self._descriptor = descriptor
        self._position = position
        self._lock = threading.Lock()

    def tell(self, what: str, *detail: Any) -> None:
        line = json.dumps([self._position(), what, *detail], separators=(",", ":")).encode()
        with self._lock:
            rest = memoryview(line + b"\n")
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


def events(said: bytes) -> Iterator[Event]:
    """The events of what was said; a last line without its end was cut off by the kill."""
    *lines, _ = said.split(b"\n")
    for line in lines:
        position, what, *detail = json.loads(line)
        yield position, what, detail
