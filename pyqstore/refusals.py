"""Why publishes were refused."""

from __future__ import annotations

import copy

from . import _core
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

    __slots__ = ("_refused", "_store")

    def __init__(self, refused: _core.Refused, store: _core.Store) -> None:
        """``refused``: the channel's, where the engine's calls note them."""
        self._refused = refused
        self._store = store

    @property
    def are_untold(self) -> bool:
        """Whether there are some that no wait has told of."""
        return bool(self._refused.notes) and not self._refused.is_told

    def tell(self, confirmed: bool) -> None:
        """A wait said whether all was confirmed: what comes from here on is news."""
        if confirmed:
            self._refused.notes.clear()
        self._refused.is_told = True

    def told(self) -> Refusal:
        """``error``.  REQUIRES that a wait has told of some."""
        error = self.error
        assert error is not None
        return error

    @property
    def error(self) -> Refusal | None:
        """What they were refused for: of a store that failed that, whatever else there was."""
        notes = list(self._refused.notes)
        if not notes:
            return None
        if any(queue is None for _, _, queue in notes):
            return self._store._failure()
        numbers = tuple(number for number, _, _ in notes[:_NUMBERS_SHOWN])
        count = sum(count for _, count, _ in notes)
        return PublishRefused(numbers[0], count, numbers, queue=notes[0][2] or "")
