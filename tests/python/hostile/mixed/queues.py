"""The queues of the mixed workload: one of each kind, and where their messages may go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

DEAD = "dead"
FAN = "fan"


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
    DEAD: Kind(),
}
FAN_HOMES = ("plain.0", "lazy", "rejects", "short", "counted")
TARGETS = tuple(name for name in KINDS if name != DEAD)
TRANSACTION_TARGETS = tuple(name for name in TARGETS if not KINDS[name].refuses)


def kind_of(queue: str) -> Kind:
    """Queues that one actor has for itself ("own.*") are plain."""
    return KINDS.get(queue, KINDS["plain.0"])


def homes_of(exchange: str, key: str) -> Collection[str]:
    """The queues that a message with ``key`` comes to."""
    return FAN_HOMES if exchange == FAN else (key,)
