"""What channels hand out: messages, and the answers to declarations and batches."""

from __future__ import annotations

from typing import NamedTuple

from . import _core
from ._core import Message, ReturnedMessage
from .waiting import Deadline

__all__ = ["DeclareOk", "Message", "Receipt", "ReturnedMessage"]


class DeclareOk(NamedTuple):
    """The answer to ``queue_declare``."""

    queue: str
    """The queue's name, made up by the store if none was given."""
    message_count: int
    """How many messages are ready."""
    consumer_count: int
    """How many consumers there are."""


class Receipt:
    """What ``publish_batch`` promises: these publish numbers, durable when :attr:`done`.

    Outside confirm mode, and for an empty batch, both numbers are 0.
    """

    __slots__ = ("_done", "_lsn", "_store", "count", "first_publish_number", "last_publish_number")

    first_publish_number: int
    last_publish_number: int
    count: int

    def __init__(
        self,
        first_publish_number: int,
        last_publish_number: int,
        count: int,
        *,
        store: _core.Store | None = None,
        lsn: int = 0,
    ) -> None:
        """``lsn`` is the journal position of ``store`` that covers the batch; 0: nothing to wait
        for."""
        self.first_publish_number = first_publish_number
        self.last_publish_number = last_publish_number
        self.count = count
        self._store = store
        self._lsn = lsn
        self._done = store is None or lsn == 0

    @property
    def done(self) -> bool:
        """Whether every persistent message of the batch is durable.  Raises StoreClosed unless it
        was seen before."""
        if not self._done:
            assert self._store is not None
            self._done = self._store._durable_lsn() >= self._lsn
        return self._done

    def wait(self, timeout: float | None = None) -> bool:
        """Return True once :attr:`done`; ``timeout`` in seconds.

        Raises TimeoutError, StoreFailed when it will never be, StoreClosed.
        """
        deadline = Deadline(timeout)
        while not self._done:
            assert self._store is not None
            if self._store._wait_durable(self._lsn, deadline.slice_ns()):
                self._done = True
            elif deadline.over:
                raise TimeoutError(f"the batch was not durable within {timeout} s")
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Receipt):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, int]:
        return self.first_publish_number, self.last_publish_number, self.count

    def __repr__(self) -> str:
        return f"Receipt({self.first_publish_number}, {self.last_publish_number}, {self.count})"
