"""Messages that can be told from each other, and whose bodies follow from their names.

A name is "life.actor.number.bytes"; the name travels as the message's ``message_id``, so that a
body may be empty.  A message in a queue is a *copy*: (name, home), where home is the queue it was
routed to.  A dead letter keeps the home it died in first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .queues import DEAD

Copy = tuple[str, str]
LEVELS = 6


class Name(NamedTuple):
    """The parts of a message's name."""

    life: int
    actor: str
    number: int
    size: int

    def __str__(self) -> str:
        return f"{self.life}.{self.actor}.{self.number}.{self.size}"

    @property
    def stream(self) -> tuple[int, str]:
        """Whose messages keep their order."""
        return self.life, self.actor


def name_of(text: str) -> Name:
    life, actor, number, size = text.split(".")
    return Name(int(life), actor, int(number), int(size))


@lru_cache(maxsize=64)
def body_of(name: str) -> bytes:
    return random.Random(name).randbytes(name_of(name).size)


def priority_of(name: str) -> int:
    return name_of(name).number % LEVELS


def random_size(chance: random.Random) -> int:
    """Nothing, some bytes, some for the message store, now and then megabytes."""
    kind = chance.random()
    if kind < 0.1:
        return 0
    if kind < 0.8:
        return chance.randrange(1, 300)
    if kind < 0.97:
        return chance.randrange(300, 12_000)
    if kind < 0.995:
        return chance.randrange(12_000, 200_000)
    return chance.randrange(200_000, 3_000_000)


def copy_of(queue: str, name: str, headers: Mapping[str, Any] | None) -> Copy:
    """The copy that came from ``queue``."""
    return name, str((headers or {}).get("x-first-death-queue", queue)) if queue == DEAD else queue
