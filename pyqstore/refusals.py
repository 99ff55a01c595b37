"""Why publishes were refused."""

from __future__ import annotations

import copy

from .errors import PublishRefused, StoreFailed

__all__ = ["Reason", "Refusal", "Refusals", "refusal_of"]

Reason = str | StoreFailed
"""Of a nack: the name of the queue that is full, "" when that was deleted since; or why the store
failed."""
Refusal = PublishRefused | StoreFailed
_NUMBERS_SHOWN = 8


def refusal_of(number: int, reason: Reason) -> Refusal:
    """The exception for one publish that was refused."""
    if isinstance(reason, str):
        return PublishRefused(number, queue=reason)
    return copy.copy(reason)  # each is raised by itself


class Refusals:
    """The nacks of a channel between two ``wait_for_confirms``, as one exception."""

    __slots__ = ("_count", "_failure", "_is_told", "_numbers", "_queue")

    def __init__(self) -> None:
        """There were none."""
        self._clear()

    def _clear(self) -> None:
        self._is_told = False
        self._count = 0
        self._numbers: list[int] = []
        self._queue = ""
        self._failure: StoreFailed | None = None

    def note(self, number: int, count: int, reason: Reason) -> None:
        """``count`` publishes were refused; ``number``: the last of them."""
        if self._is_told:
            self._clear()
        if isinstance(reason, StoreFailed):
            self._failure = self._failure or reason
        elif self._count == 0:
            self._queue = reason
        self._count += count
        if len(self._numbers) < _NUMBERS_SHOWN:
            self._numbers.append(number)

    def tell(self, confirmed: bool) -> None:
        """A wait said whether all was confirmed: what comes from here on is news."""
        if confirmed:
            self._clear()
        self._is_told = True

    def told(self) -> Refusal:
        """``error``.  REQUIRES that a wait has told of some."""
        error = self.error
        assert error is not None
        return error

    @property
    def error(self) -> Refusal | None:
        """What they were refused for: of a store that failed that, whatever else there was."""
        if self._count == 0:
            return None
        if self._failure is not None:
            return copy.copy(self._failure)
        return PublishRefused(
            self._numbers[0], self._count, tuple(self._numbers), queue=self._queue
        )
