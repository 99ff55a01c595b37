"""What became of a publish in confirm mode, with what its publisher gave along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

__all__ = ["Outcome", "OutcomeListener"]


class Outcome(NamedTuple):
    """What became of one publish: see ``Channel.add_outcome_listener``."""

    number: int
    """Of the publish."""
    correlation: object
    """What ``basic_publish`` was given; None: nothing."""
    confirmed: bool
    """Whether its queues have it, durable if they are."""
    reason: Literal["full", "failed", "closed", "returned"] | None
    """Why not: ``"full"``, a queue refused it; ``"returned"``, no queue took it, and it was
    mandatory; ``"failed"``, the store has failed; ``"closed"``, the channel was closed before
    that was told, so that it may be durable or not.  None: it is confirmed."""
    queue: str | None
    """The queue that is full; "": it was deleted since; None: another reason."""


OutcomeListener = Callable[[Outcome], object]
