"""What scripts choose from: names, keys, arguments and properties, right ones and refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

CHANNELS = 3
LAST_GETS = 4  # of each queue
QUEUES = ("q0", "q1", "q2", "q3", "q4")
EXCHANGES = ("e0", "e1", "e2", "e3")
PREDECLARED = ("amq.direct", "amq.fanout", "amq.topic")
TYPES = ("direct", "fanout", "topic", "topic")
KEYS = ("a", "b", "a.b", "a.b.c", "b.c", "", "a..b", "x.a.b", "q0", "q1")
PATTERNS = ("a", "a.*", "*.b", "a.#", "#", "#.b", "*", "*.*", "a.#.c", "", "#.#", "a.b", "*.#.b")
LAZY: Mapping[str, Any] = {"x-queue-mode": "lazy"}  # of the last queue
LARGE_BYTES = 5000  # more than what is kept beside a queue's index

# What a script may be about; a seed takes some of it.
GROUPS = (
    "properties",
    "transactions",
    "headers",
    "exchange-to-exchange",
    "alternate-exchange",
    "copies",
    "expiry",
    "limits",
    "dead-letters",
    "single-active-consumer",
    "consumer-priorities",
    "priorities",
    "invalid",
)
HOUR_MS = 3_600_000  # nothing expires in a script but what expires at once

HEADERS: tuple[Mapping[str, Any], ...] = (
    {"format": "pdf", "size": 7},
    {"format": "zip", "deep": {"list": [1, "two", None, True], "empty": {}}},
    {"far": -(2**40), "near": -3, "exact": Decimal("1.25")},
    {"raw": b"\x00\xff", "when": datetime(2024, 2, 29, 12, tzinfo=UTC), "x-own": "", "no": False},
    {},
)
PROPERTIES: tuple[Mapping[str, Any], ...] = (
    {"content_type": "text/plain", "content_encoding": "utf-8"},
    {"priority": 3, "correlation_id": "c-1", "reply_to": "q0"},
    {"message_id": "m", "timestamp": 1_700_000_000, "type": "t", "app_id": "a"},
    {"cluster_id": "", "message_id": ""},
)
MATCHES: tuple[Mapping[str, Any], ...] = (
    {"x-match": "all", "format": "pdf", "size": 7},
    {"x-match": "any", "format": "zip", "size": 7},
    {"format": None},
    {"x-match": "any-with-x", "x-own": "", "size": 8},
    {},
)
COPIES: tuple[Mapping[str, Any], ...] = (
    {"CC": ["q1", "a.b"]},
    {"CC": ["q0", "q0", "q4"], "n": 1},
    {"BCC": ["q2"]},
    {"CC": ["b"], "BCC": ["q0", "a"]},
    {"CC": []},
)
NO_COPIES: tuple[Mapping[str, Any], ...] = ({"CC": "q0"}, {"BCC": 1})
NO_EXPIRATIONS = ("", "soon", "-1", "1.5", " 5", "315360000001")
MORE_EXPIRATIONS = ("4294967295", "315360000000", "+5")
# Refused when a queue is made.
NO_ARGUMENTS: tuple[Mapping[str, Any], ...] = (
    {"x-message-ttl": -1},
    {"x-message-ttl": "1"},
    {"x-message-ttl": 315360000001},
    {"x-message-ttl": True},
    {"x-expires": 0},
    {"x-expires": -5},
    {"x-expires": 2**53},
    {"x-expires": "soon"},
    {"x-max-length": -1},
    {"x-max-length": "1"},
    {"x-max-length-bytes": -1},
    {"x-max-length-bytes": b"1"},
    {"x-overflow": "drop-tail"},
    {"x-overflow": 1},
    {"x-dead-letter-exchange": 1},
    {"x-dead-letter-routing-key": "k"},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 5},
    {"x-max-priority": -1},
    {"x-max-priority": "3"},
    {"x-max-priority": 256},
    {"x-single-active-consumer": "yes"},
    {"x-queue-mode": "hasty"},
    {"x-queue-mode": True},
)
# One of them is different when a queue is declared again.
CHANGES: tuple[Mapping[str, Any], ...] = (
    {"x-message-ttl": HOUR_MS + 1},
    {"x-message-ttl": 315360000000},
    {"x-expires": HOUR_MS + 1},
    {"x-max-length": 1000},
    {"x-max-length": "1"},
    {"x-max-length-bytes": 10**6},
    {"x-max-length-bytes": 10**12},
    {"x-overflow": "reject-publish"},
    {"x-overflow": "drop-head"},
    {"x-dead-letter-exchange": "e1"},
    {"x-dead-letter-routing-key": "other"},
    {"x-single-active-consumer": True},
    {"x-single-active-consumer": False},
    {"x-max-priority": 3},
    {"x-max-priority": 255},
    {"x-queue-mode": "lazy"},
    {"x-queue-mode": "default"},
)
