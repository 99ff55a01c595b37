"""Rows that arrive: the server takes each batch, reads further batches, and answers the oldest.

The client has at most ``window`` batches without an answer.  The server answers the oldest when it
has so many, so neither waits for the other, and each needs only one thread.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from .failing import failure
from .wire import END

__all__ = ["Answer", "Taker", "put"]

Answer = dict[str, Any]


class Taker(Protocol):
    """Takes the batches of a call."""

    window: int
    confirms: bool
    """Whether answered rows are published."""

    def take(self, batch: pa.RecordBatch) -> Callable[[], Answer]:
        """Take a batch; the returned call waits for the answer to the batch."""

    def end(self) -> Answer:
        """The last batch was taken."""


def put(chunks: Iterable[tuple[pa.RecordBatch | None, bytes]], writer: Any, taker: Taker) -> None:
    """Take batches until the client says that it is done, or disconnects.

    If something fails the client gets all confirms so far: the exception has those that the client
    may not have received.
    """
    arrived = _Arrived(writer, taker)
    try:
        for batch, told in chunks:
            if batch is not None:
                arrived.take(batch)
            if told == END:
                arrived.answer_all()
                arrived.write(taker.end())
                return
        arrived.answer_all()  # the client's data failed: it asks what became of the rows before
    except Exception as error:
        arrived.settle()
        confirmed = arrived.confirmed if taker.confirms else None
        raise failure(error, rows_before=arrived.taken, confirmed=confirmed) from error


class _Arrived:
    """The batches of one call."""

    def __init__(self, writer: Any, taker: Taker) -> None:
        self._writer = writer
        self._taker = taker
        self._pending: deque[Callable[[], Answer]] = deque()
        self.taken: int = 0
        self.confirmed: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Take the next batch; answer the oldest if there are as many as permitted."""
        self._pending.append(self._taker.take(batch))
        self.taken += batch.num_rows
        if len(self._pending) >= self._taker.window:
            self._answer()

    def answer_all(self) -> None:
        """Answer all batches."""
        while self._pending:
            self._answer()

    def settle(self) -> None:
        """Wait for all running batches, or until one of them fails."""
        with contextlib.suppress(Exception):
            while self._pending:
                self._settle_one()

    def write(self, answer: Answer) -> None:
        """Write to the client."""
        self._writer.write(json.dumps(answer).encode())

    def _answer(self) -> None:
        self.write(self._settle_one())

    def _settle_one(self) -> Answer:
        answer = self._pending.popleft()()
        self.confirmed += answer["rows"]
        return answer
