"""The queues of the mixed workload: one of each kind, and where their messages may go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

DEAD = "dead"
FAN = "fan"
LOG = "log"
"""A stream, which drops what its work queues are done with."""
LOG_ARGUMENTS: dict[str, Any] = {
    "x-queue-type": "stream",
    "x-max-length-bytes": 500_000,
    "x-stream-max-segment-size-bytes": 100_000,
}


@dataclass(frozen=True)
class Kind:
    """A queue: its arguments, and for which reasons its messages end in the queue ``dead``."""

    arguments: dict[str, Any] = field(default_factory=dict)
    letters: frozenset[str] = frozenset()
    refuses: bool = False
    priorities: bool = False

    @property
    def keeps(self) -> bool:
        """Whether messages leave it only when a consumer settles them."""
        return self.letters <= {"rejected"} and not self.refuses


def _with_letters(*reasons: str, refuses: bool = False, **arguments: Any) -> Kind:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    named |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    return Kind(named, frozenset({"rejected", *reasons}), refuses)


_OF_LOG: dict[str, Any] = {"x-stream-source": LOG, "x-stream-offset": "first", "x-stream-pin": True}

KINDS: dict[str, Kind] = {
    "plain.0": Kind(),
    "plain.1": Kind(),
    "lazy": Kind({"x-queue-mode": "lazy"}),
    "levels": Kind({"x-max-priority": 5}, priorities=True),
    "rejects": _with_letters(),
    "head": _with_letters("maxlen", max_length=40),
    "bytes": _with_letters("maxlen", max_length_bytes=200_000),
    "full": Kind({"x-max-length": 30, "x-overflow": "reject-publish"}, refuses=True),
    "over": _with_letters("maxlen", refuses=True, max_length=30, overflow="reject-publish-dlx"),
    "short": _with_letters("expired", message_ttl=300),
    "surely": _with_letters("expired", message_ttl=300, dead_letter_strategy="at-least-once"),
    "counted": _with_letters("delivery_limit", delivery_limit=6),
    "work": Kind(_OF_LOG),
    "work.rejects": Kind(_with_letters().arguments | _OF_LOG, frozenset({"rejected"})),
    DEAD: Kind(),
}
WORK_QUEUES = ("work", "work.rejects")
FAN_HOMES = ("plain.0", "lazy", "rejects", "short", "counted")
_QUEUES = tuple(name for name in KINDS if name != DEAD and name not in WORK_QUEUES)
TARGETS = (*_QUEUES, LOG)
TRANSACTION_TARGETS = tuple(name for name in _QUEUES if not KINDS[name].refuses)


def kind_of(queue: str) -> Kind:
    """Queues that one actor has for itself ("own.*") are plain."""
    return KINDS.get(queue, KINDS["plain.0"])


def homes_of(exchange: str, key: str) -> Collection[str]:
    """The queues that a message with ``key`` comes to."""
    if exchange == FAN:
        return FAN_HOMES
    return WORK_QUEUES if key == LOG else (key,)
