"""Arguments: what a parameter is for, and what it is not for."""

import datetime
import decimal
import fractions
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import pyqstore

QUEUES = ("a", "b", "c", "lazy")
KEPT = "kept"
"""The queue that only the model publishes to, and nobody else names."""
EXCHANGES = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "e")


class EvilError(Exception):
    """What the arguments below raise themselves."""


class Evil:
    """Converting it to anything does something else first, and may fail."""

    def __init__(self, act: Callable[[], object], answer: object) -> None:
        self.act, self.answer = act, answer

    def _told(self) -> Any:
        self.act()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __index__(self) -> int:
        return self._told()

    def __float__(self) -> float:
        return self._told()

    def __str__(self) -> str:
        return self._told()

    def __bool__(self) -> bool:
        return self._told()

    def __fspath__(self) -> str:
        return self._told()

    def __hash__(self) -> int:
        return self._told()

    def __eq__(self, other: object) -> bool:
        return self._told()

    def __iter__(self) -> Any:
        return self._told()

    def __len__(self) -> int:
        return self._told()

    def __call__(self, *arguments: object) -> object:
        return self._told()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._told()


class Text(str):
    """A str that is none exactly."""

    __slots__ = ()


class Number(int):
    """An int whose index is another."""

    def __index__(self) -> int:
        raise EvilError("index")


class Arguments:
    """Makes arguments for parameters by their names."""

    def __init__(self, chance: random.Random, hostile: float = 0.3) -> None:
        self.chance = chance
        self.hostile = hostile
        self.things: list[Any] = []
        """Live objects that may be arguments, too."""
        self.act: Callable[[], object] = lambda: None
        """What evil arguments and callbacks do."""

    def of(self, name: str) -> Any:
        if self.chance.random() < self.hostile:
            return self.anything()
        return self.fitting(name)

    def fitting(self, name: str) -> Any:
        pick = self.chance.choice
        if name in ("queue", "name"):
            return pick(QUEUES)
        if name in ("exchange", "source", "destination"):
            return pick(EXCHANGES)
        if name == "routing_key":
            return pick((*QUEUES, "x.y"))
        if name == "exchange_type":
            return pick(("direct", "fanout", "topic", "headers"))
        if name in ("delivery_tag", "start"):
            return self.chance.randrange(30)
        if name in ("prefetch_count", "prefetch_size", "max_messages", "max_bytes", "limit"):
            return pick((0, 1, 3, 100))
        if "timeout" in name:
            return pick((0, 0.0, 0.001))
        if name == "body":
            return pick(
                (b"", b"body", bytearray(b"array"), memoryview(b"view"), "text", b"x" * 5000)
            )
        if name == "properties":
            return pick((None, pyqstore.Properties(), pyqstore.Properties(delivery_mode=2)))
        if name == "arguments":
            return self.table()
        if name == "consumer_tag":
            return pick(("", "t", "u"))
        if name in ("callback", "on_ack", "on_nack", "progress", "damaged"):
            return pick((None, self.callback))
        if name == "mode":
            return pick(("default", "lazy"))
        if name == "key":
            return pick((None, "k", "l"))
        if name == "data":
            return self.frame()
        if name == "encoded":
            return pick((b"", b"\x10\x00\x02", self.chance.randbytes(10)))
        return pick((True, False))

    def callback(self, *arguments: object) -> None:
        self.act()

    def frame(self) -> Any:
        count = self.chance.randrange(5)
        columns: dict[str, list[Any]] = {"body": [b"%d" % row for row in range(count)]}
        if self.chance.random() < 0.4:
            columns["routing_key"] = [self.chance.choice((*QUEUES, None)) for _ in range(count)]
        table = pa.table(columns)
        return self.chance.choice((table, table.to_reader(), columns))

    def table(self) -> Any:
        return self.chance.choice(
            (
                None, {}, {"x-max-length": 5}, {"x-max-priority": 3}, {"x-message-ttl": 10_000},
                {"x-queue-mode": "lazy"}, {"x-dead-letter-exchange": "amq.fanout"},
                {"x-overflow": "reject-publish", "x-max-length": 2}, {"x-match": "any", "a": 1},
                {"x-priority": 2},
                {"a": [1, None, {"b": 2.5}]}, {"alternate-exchange": "amq.fanout"},
                {"x-delivery-limit": 1}, {"x-single-active-consumer": True}, {"x-expires": 1000},
                {"x-persistent": True},
            )
        )  # fmt: skip

    def anything(self) -> Any:
        """A value of no particular use."""
        if self.things and self.chance.random() < 0.15:
            return self.chance.choice(self.things)
        return self.chance.choice(_ANYTHING)(self)

    def nested(self) -> Any:
        """Headers deeper than anybody wants."""
        table: Any = {}
        for _ in range(self.chance.choice((5, 200, 5000))):
            table = self.chance.choice(({"a": table}, [table]))
        return {"deep": table}

    def recursive(self) -> Any:
        table: dict[str, Any] = {}
        table["self"] = [table]
        return table

    def evil(self) -> Evil:
        answers = (EvilError("evil"), 1, "a", b"bytes", None, -1, 2**70, [], object())
        return Evil(self.act, self.chance.choice(answers))

    def view(self) -> memoryview:
        view = memoryview(bytearray(b"0123456789"))
        how = self.chance.randrange(5)
        if how == 0:
            return view[::2]
        if how == 1:
            return view.cast("B", (2, 5))
        if how == 2:
            view.release()
        return view.toreadonly() if how == 3 else view


_ODD = (
    0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1,
    10**100, 0.5, -0.0, math.nan, math.inf, -math.inf, 1e308, True, None, Ellipsis, NotImplemented,
    "", "a", "a\0b", "\ud800", "x" * 255, "x" * 256, "ä" * 128, "\x1b[31m", "\u202e", KEPT.upper(),
    "%s%n", "amq.", "amq.gen-1", Text("a"), b"", b"a", b"\xff", bytearray(b"a"), (), (1, 2), [],
    {"a": 1}, {1: 2}, {"": 1}, {"x" * 256: 1}, {"\ud800": 1}, {"a\0": 1}, {"a": object()},
    {"a": 2**70}, {"x-max-length": -1}, {"x-max-length": 2**63}, {"x-message-ttl": "a"},
    {"x-max-priority": 256}, {"x-queue-type": "quorum"}, {"x-expires": 0}, {"CC": ["a", 1]},
    {"CC": "a"}, {"BCC": ["x" * 256]}, {"x-match": 5}, {"x-overflow": "x"}, frozenset(), range(5),
    object(), int, len, pyqstore.Error, decimal.Decimal("NaN"), decimal.Decimal("1e999"),
    fractions.Fraction(1, 3), complex(1, 2), datetime.datetime.max, datetime.datetime.min,
    datetime.timedelta.max, Number(5), np.int64(3), np.float32(1.5), np.array([1, 2]), np.str_("a"),
    np.datetime64("2026-01-01"), pa.array([1, 2]), pa.table({"body": [None]}), pa.table({"a": [1]}),
    pa.table({"body": [b"a"], "priority": [999]}), pyqstore.Properties(), pyqstore, slice(1, 2),
)  # fmt: skip
_ANYTHING: tuple[Callable[[Arguments], Any], ...] = (
    *(lambda arguments: arguments.chance.choice(_ODD) for _ in range(6)),
    Arguments.evil,
    Arguments.evil,
    Arguments.nested,
    Arguments.recursive,
    Arguments.view,
    lambda arguments: (value for value in (1, 2)),
    lambda arguments: arguments.callback,
    lambda arguments: "".join(map(chr, arguments.chance.choices(range(1, 0x2000), k=20))),
    lambda arguments: arguments.chance.randbytes(arguments.chance.randrange(300)),
)
