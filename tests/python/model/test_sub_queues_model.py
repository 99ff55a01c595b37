"""q1, q2, delta, q3 and q4 of queues in memory against a model that walks them message by message.

What a message is, is known here: bodies of some size are in the message store at once, all others
in memory.  Messages in segments alone are in the model of `test_paging_random.c`.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pyqstore

from .sizes import model_settings

EMBED_BELOW = 200
SMALL, BIG = b"x", b"x" * EMBED_BELOW
DECLARED: dict[str, dict[str, Any]] = {
    "durable": {"durable": True},
    "priorities": {"durable": True, "arguments": {"x-max-priority": 3}},
    "transient": {},
}
EXCHANGE = "fan"

queues = st.sampled_from(sorted(DECLARED))
bodies = st.sampled_from((SMALL, SMALL, BIG))
modes = st.sampled_from((1, 2, 2, 2))
priorities = st.integers(0, 3)
messages = st.lists(st.tuples(bodies, modes, priorities), min_size=1, max_size=150)
Row = tuple[bytes, int, int]


@dataclass
class Held:
    stored: bool
    level: int
    is_ready: bool = True


class Placed(Protocol):
    stored: bool


def walk(ready: Iterable[Placed]) -> Counter[str]:
    """RabbitMQ's sub-queues of messages that come one by one: an alpha goes to q4 while all before
    it did, else to q1; a beta to q3, as nothing is a delta."""
    counts: Counter[str] = Counter()
    for message in ready:
        if message.stored:
            counts["q3"] += 1
        else:
            counts["q1" if counts["q3"] else "q4"] += 1
    return counts


class SubQueuesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="qs-sub-queues-")
        self.held: dict[str, list[Held]] = {queue: [] for queue in DECLARED}
        self.unacked: dict[int, Held] = {}
        self.store: pyqstore.Store | None = None

    @initialize(segment_entries=st.sampled_from((64, 1024)))
    def open(self, segment_entries: int) -> None:
        self.store = pyqstore.open(
            self.path,
            sync="none",
            embed_below=EMBED_BELOW,
            segment_entries=segment_entries,
            checkpoint_bytes=0,
            checkpoint_interval=None,
        )
        self.channel = self.store.channel()
        self.channel.exchange_declare(EXCHANGE, "fanout")
        for queue, options in DECLARED.items():
            self.channel.queue_declare(queue, **options)
            self.channel.queue_bind(queue, EXCHANGE, "")

    def teardown(self) -> None:
        if self.store is not None:
            self.channel.close()
            self.store.close()
        shutil.rmtree(self.path)

    def hold(self, exchange: str, key: str, rows: list[Row]) -> None:
        """A large body is stored at once where its message is journalled."""
        reached = [*DECLARED] if exchange else [key]
        any_durable = any(DECLARED[queue].get("durable") for queue in reached)
        for body, mode, priority in rows:
            journalled = any_durable and mode == 2
            for queue in reached:
                level = priority if queue == "priorities" else 0
                self.held[queue].append(Held(journalled and body == BIG, level))

    def order(self, queue: str) -> list[Held]:
        """As the queue gives its messages out."""
        return sorted(self.held[queue], key=lambda held: -held.level)

    # Publishing.

    @rule(queue=st.none() | queues, rows=messages, in_transaction=st.booleans())
    def publish(self, queue: str | None, rows: list[Row], in_transaction: bool) -> None:
        exchange, key = (EXCHANGE, "") if queue is None else ("", queue)
        if in_transaction:
            with self.channel.transaction():
                self.publish_rows(exchange, key, rows)
        else:
            self.publish_rows(exchange, key, rows)
        self.hold(exchange, key, rows)

    def publish_rows(self, exchange: str, key: str, rows: list[Row]) -> None:
        for body, mode, priority in rows:
            properties = pyqstore.Properties(delivery_mode=mode, priority=priority)
            self.channel.basic_publish(exchange, key, body, properties)

    @rule(queue=st.none() | queues, rows=messages)
    def publish_batch(self, queue: str | None, rows: list[Row]) -> None:
        exchange, key = (EXCHANGE, "") if queue is None else ("", queue)
        frame = {
            "body": pa.array([body for body, _, _ in rows], pa.binary()),
            "delivery_mode": pa.array([mode for _, mode, _ in rows], pa.uint8()),
            "priority": pa.array([priority for _, _, priority in rows], pa.uint8()),
        }
        self.channel.publish_batch(pa.table(frame), exchange, key)
        self.hold(exchange, key, rows)

    # Receiving and settling.

    @rule(queue=queues, most=st.integers(1, 100))
    def get(self, queue: str, most: int) -> None:
        batch = self.channel.get_batch(queue, most)
        ready = [held for held in self.order(queue) if held.is_ready][:most]
        tags = batch["delivery_tag"].to_pylist()
        for tag, held in zip(tags, ready, strict=True):
            held.is_ready = False
            self.unacked[tag] = held

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), requeue=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool) -> None:
        some = st.lists(st.sampled_from(sorted(self.unacked)), unique=True, min_size=1)
        for tag in data.draw(some):
            held = self.unacked.pop(tag)
            if requeue:
                self.channel.basic_nack(tag, requeue=True)
                held.is_ready = True
            else:
                self.channel.basic_ack(tag)
                for queue in DECLARED:
                    self.held[queue] = [one for one in self.held[queue] if one is not held]

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        self.channel.queue_purge(queue)
        self.held[queue] = [held for held in self.held[queue] if not held.is_ready]

    # Comparing.

    @invariant()
    def each_message_is_counted_where_it_is(self) -> None:
        for queue in DECLARED if self.store is not None else ():
            assert self.store is not None
            status = self.store.queue_status(queue)
            walked: Counter[str] = Counter()
            for level in range(4):
                walked += walk(
                    held for held in self.held[queue] if held.level == level and held.is_ready
                )
            for name in ("q1", "q2", "delta_len", "q3", "q4"):
                assert status[name] == walked[name], (queue, name, status, walked)
            stored = sum(held.stored for held in self.held[queue])
            states = [status[name] for name in ("alpha", "beta", "gamma", "delta")]
            assert states == [len(self.held[queue]) - stored, stored, 0, 0], (queue, status)


TestSubQueues = SubQueuesMachine.TestCase
TestSubQueues.settings = model_settings(100, 30)
