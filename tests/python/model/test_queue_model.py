"""Queues of a store that pages, of one that does not, and of a model: a sorted list of each queue.

Hypothesis makes up what happens.  Every answer of the two stores is the same to the last byte, and
is what the model says of it: which message, whether it comes again, with which delivery tag.
RabbitMQ's invariants of a variable queue hold after every step.

Numbers of messages count up over all queues, so that a requeued message belongs where its number
does, behind all of a higher priority.  A reopening keeps what is persistent in durable queues.
"""

import shutil
import sys
import tempfile
import time
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import pyqstore

from .sides import CALM, Side, paging, row_of
from .sizes import model_settings

pytestmark = pytest.mark.timeout(1200)  # a failure is made small before it is told
PRIORITY_MAX = 4
DECLARED: dict[str, dict[str, Any]] = {
    "d0": {"durable": True},
    "d1": {"durable": True},
    "lazy": {"durable": True, "arguments": {"x-queue-mode": "lazy"}},
    "priorities": {"durable": True, "arguments": {"x-max-priority": PRIORITY_MAX}},
    "t0": {},
}
EXCHANGE = "topics"
PATTERNS = {"d0": "a.*", "d1": "#", "lazy": "a.#", "priorities": "*.b", "t0": "*.b"}
KEYS = {
    "a.b": ("d0", "d1", "lazy", "priorities", "t0"),
    "a.c": ("d0", "d1", "lazy"),
    "x.b": ("d1", "priorities", "t0"),
    "x": ("d1",),
}
ROUTES = [*((EXCHANGE, key) for key in sorted(KEYS)), *(("", queue) for queue in sorted(DECLARED))]


Row = dict[str, Any]


class Sent(NamedTuple):
    """What a message is published with."""

    mode: int | None
    size: int
    priority: int | None


queues = st.sampled_from(sorted(DECLARED))
channels = st.sampled_from((0, 1))
routes = st.sampled_from(ROUTES)
sizes = st.sampled_from((0, 0, 0, 90, 200, 3000, 6000))
priorities = st.one_of(st.none(), st.integers(0, 255), st.integers(0, PRIORITY_MAX + 1))
sent = st.builds(Sent, st.sampled_from((None, 1, 2, 2)), sizes, priorities)


@dataclass(order=True)
class Held:
    """A message of the model, in one queue; ordered as the queue gives its messages out."""

    rank: int
    number: int
    size: int = field(compare=False)
    persistent: bool = field(compare=False)
    queue: str = field(compare=False)
    redelivered: bool = field(compare=False, default=False)
    came_back: int = field(compare=False, default=0)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="qs-model-")
        self.number = 0
        self.sides: list[Side] = []
        self.ready: dict[str, list[Held]] = {queue: [] for queue in DECLARED}
        self.unacked: list[dict[int, Held]] = [{}, {}]
        self.tags = [0, 0]
        self.killed = False

    @initialize(
        segment_entries=st.sampled_from((16, 64)),
        embed_below=st.sampled_from((0, 1, 100, 4096, 2**30)),
    )
    def begin(self, segment_entries: int, embed_below: int) -> None:
        options = {"paging": paging(segment_entries, embed_below), "calm": CALM}
        self.sides = [Side(self.folder, name, each) for name, each in options.items()]
        self.declare()

    def teardown(self) -> None:
        try:
            if self.sides and sys.exc_info()[0] is None:
                for queue in DECLARED:
                    self.get_batch(queue, 0, 10**6, True)
        finally:
            for side in self.sides:
                side.close()
            shutil.rmtree(self.folder)

    # -- both stores ----------------------------------------------------------------------------

    def both(self, ask: Callable[[Side], Any]) -> Any:
        """The one answer of both stores."""
        one, other = (self.known(ask(side)) for side in self.sides)
        if isinstance(one, list) and isinstance(other, list):
            for index, (row, same) in enumerate(zip(one, other, strict=False)):
                assert row == same, index
        assert one == other, (one, other)
        return one

    def on(self, channel: int, ask: Callable[[pyqstore.Channel], Any]) -> Any:
        return self.both(lambda side: ask(side.channels[channel]))

    def known(self, answer: Any) -> Any:
        """Without delivery counts once a store was killed: nobody knows them then exactly."""
        if not self.killed or not isinstance(answer, list):
            return answer
        return [{**row, "delivery_count": None} for row in answer]

    def declare(self) -> None:
        def ask(channel: pyqstore.Channel) -> None:
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            for queue, options in DECLARED.items():
                channel.queue_declare(queue, **options)
                channel.queue_bind(queue, EXCHANGE, PATTERNS[queue])

        self.on(0, ask)

    # -- the model ------------------------------------------------------------------------------

    def hold(self, route: tuple[str, str], message: Sent) -> bytes:
        """The body of the next message, which all queues of its route hold from now on."""
        self.number += 1
        exchange, key = route
        for queue in KEYS[key] if exchange else (key,):
            has_priorities = queue == "priorities"
            level = min(message.priority or 0, PRIORITY_MAX) if has_priorities else 0
            persistent = message.mode == 2 and bool(DECLARED[queue].get("durable"))
            held = Held(-level, self.number, message.size, persistent, queue)
            insort(self.ready[queue], held)
        return b"%d" % self.number + b"." * message.size

    def deliver(self, channel: int, queue: str, got: Row, auto_ack: bool) -> None:
        held = self.ready[queue].pop(0)
        assert got["body"] == b"%d" % held.number + b"." * held.size
        assert got["redelivered"] == held.redelivered
        assert got["delivery_count"] in (None, held.came_back)
        assert got.get("queue", queue) == queue
        self.tags[channel] += 1
        assert got["delivery_tag"] == self.tags[channel]
        if not auto_ack:
            self.unacked[channel][got["delivery_tag"]] = held

    def settle(self, channel: int, tags: Iterable[int], requeue: bool) -> None:
        for tag in tags:
            held = self.unacked[channel].pop(tag)
            if requeue and held.queue in self.ready:
                held.redelivered = True
                held.came_back += 1
                insort(self.ready[held.queue], held)

    def settle_all(self, channel: int, requeue: bool) -> None:
        self.settle(channel, sorted(self.unacked[channel]), requeue)

    # -- publishing -----------------------------------------------------------------------------

    @staticmethod
    def publish_one(
        channel: pyqstore.Channel, route: tuple[str, str], sent: Sent, body: bytes
    ) -> None:
        properties = pyqstore.Properties(
            delivery_mode=sent.mode, priority=sent.priority, app_id=f"app{len(body) % 3}"
        )
        channel.basic_publish(*route, body, properties)

    @rule(route=routes, channel=channels, sent=sent, count=st.integers(1, 60))
    def publish(self, route: tuple[str, str], channel: int, sent: Sent, count: int) -> None:
        bodies = [self.hold(route, sent) for _ in range(count)]

        def ask(ch: pyqstore.Channel) -> None:
            for body in bodies:
                self.publish_one(ch, route, sent, body)

        self.on(channel, ask)

    @rule(rows=st.lists(st.tuples(routes, sent), max_size=5), commits=st.booleans())
    def transaction(self, rows: list[tuple[tuple[str, str], Sent]], commits: bool) -> None:
        bodies = [self.hold(*row) for row in rows]
        if not commits:
            last = self.number - len(rows)
            for queue, ready in self.ready.items():
                self.ready[queue] = [held for held in ready if held.number <= last]

        def ask(side: Side) -> None:
            with side.store.channel() as channel:
                channel.tx_select()
                for row, body in zip(rows, bodies, strict=True):
                    self.publish_one(channel, *row, body)
                if commits:
                    channel.tx_commit()
                else:
                    channel.tx_rollback()

        self.both(ask)

    @rule(
        exchange=st.sampled_from(("", EXCHANGE)),
        rows=st.lists(st.tuples(st.integers(0, 100), sent), max_size=100),
        channel=channels,
        dictionary=st.booleans(),
        default=priorities,
        to_one=st.none() | queues,
    )
    def publish_batch(
        self,
        exchange: str,
        rows: list[tuple[int, Sent]],
        channel: int,
        dictionary: bool,
        default: int | None,
        to_one: str | None,
    ) -> None:
        names = [to_one] if to_one else sorted(KEYS if exchange else DECLARED)
        exchange = "" if to_one else exchange
        keys = [names[index % len(names)] for index, _ in rows]
        bodies = []
        for key, (_, row) in zip(keys, rows, strict=True):
            priority = default if row.priority is None else row.priority
            whole = Sent(row.mode or 2, row.size, priority)  # without a mode: persistent
            bodies.append(self.hold((exchange, key), whole))
        texts = pa.array(keys, pa.string())
        columns: dict[str, Any] = {
            "body": pa.array(bodies, pa.binary()),
            "priority": pa.array([row.priority for _, row in rows], pa.uint8()),
        }
        if not to_one:
            columns["routing_key"] = texts.dictionary_encode() if dictionary else texts
        if any(row.mode for _, row in rows):
            columns["delivery_mode"] = pa.array([row.mode for _, row in rows], pa.uint8())
        frame, properties = pa.table(columns), pyqstore.Properties(priority=default)

        def ask(ch: pyqstore.Channel) -> int:
            return ch.publish_batch(frame, exchange, to_one or "", properties=properties).count

        assert self.on(channel, ask) == len(rows)

    # -- receiving ------------------------------------------------------------------------------

    def receive(
        self, channel: int, queue: str, ask: Callable[[pyqstore.Channel], list[Row]], auto_ack: bool
    ) -> int:
        rows: list[Row] = self.on(channel, ask)
        for row in rows:
            self.deliver(channel, queue, row, auto_ack)
        return len(rows)

    @rule(queue=queues, channel=channels, auto_ack=st.booleans(), count=st.integers(1, 40))
    def get(self, queue: str, channel: int, auto_ack: bool, count: int) -> None:
        wanted = min(count, len(self.ready[queue]))

        def ask(ch: pyqstore.Channel) -> list[Row]:
            messages = [ch.basic_get(queue, auto_ack) for _ in range(count)]
            assert messages[wanted:] == [None] * (count - wanted)
            return [row_of(message) for message in messages if message is not None]

        assert self.receive(channel, queue, ask, auto_ack) == wanted

    @rule(queue=queues, channel=channels, most=st.integers(1, 300), auto_ack=st.booleans())
    def get_batch(self, queue: str, channel: int, most: int, auto_ack: bool) -> None:
        wanted = min(most, len(self.ready[queue]))

        def ask(ch: pyqstore.Channel) -> list[Row]:
            rows: list[Row] = ch.get_batch(queue, most, auto_ack=auto_ack).to_pylist()
            return rows

        assert self.receive(channel, queue, ask, auto_ack) == wanted

    @rule(queue=queues, channel=channels, prefetch=st.integers(1, 50))
    def consume(self, queue: str, channel: int, prefetch: int) -> None:
        wanted = min(prefetch, len(self.ready[queue]))

        def ask(ch: pyqstore.Channel) -> list[Row]:
            got: list[Row] = []
            ch.basic_qos(prefetch)
            tag = ch.basic_consume(queue, lambda message: got.append(row_of(message)))
            deadline = time.monotonic() + 20
            while len(got) < wanted:
                assert time.monotonic() < deadline
                ch.process_events(timeout=0.05)
            ch.basic_cancel(tag)
            return got

        assert self.receive(channel, queue, ask, False) == wanted

    # -- settling -------------------------------------------------------------------------------

    @precondition(lambda self: any(self.unacked))
    @rule(
        data=st.data(),
        what=st.sampled_from(("ack", "ack", "requeue", "drop")),
        multiple=st.booleans(),
    )
    def settle_some(self, data: st.DataObject, what: str, multiple: bool) -> None:
        channel = data.draw(st.sampled_from([i for i in (0, 1) if self.unacked[i]]))
        unacked = sorted(self.unacked[channel])
        some = st.lists(st.sampled_from(unacked), unique=True, min_size=1)
        tags = data.draw(some.map(lambda tags: tags[: 1 if multiple else 40]))

        def ask(ch: pyqstore.Channel) -> None:
            for tag in tags:
                if what == "ack":
                    ch.basic_ack(tag, multiple)
                else:
                    ch.basic_nack(tag, multiple, requeue=what == "requeue")

        self.on(channel, ask)
        settled = [tag for tag in unacked if tag <= tags[0]] if multiple else tags
        self.settle(channel, settled, what == "requeue")

    @rule(channel=channels)
    def recover(self, channel: int) -> None:
        self.on(channel, lambda ch: ch.basic_recover())
        self.settle_all(channel, requeue=True)

    @rule(channel=channels)
    def ack_all(self, channel: int) -> None:
        self.on(channel, lambda ch: ch.basic_ack(multiple=True))
        self.settle_all(channel, requeue=False)

    @rule(channel=channels, by_error=st.booleans())
    def close_channel(self, channel: int, by_error: bool) -> None:
        def ask(side: Side) -> None:
            if by_error:
                try:
                    side.channels[channel].basic_ack(10**9)
                except pyqstore.PreconditionFailed:
                    assert side.channels[channel].closed
            side.channels[channel].close()
            side.channels[channel] = side.store.channel()

        self.both(ask)
        self.settle_all(channel, requeue=True)
        self.tags[channel] = 0

    # -- queues and stores ----------------------------------------------------------------------

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        assert self.on(0, lambda ch: ch.queue_purge(queue)) == len(self.ready[queue])
        self.ready[queue].clear()

    @rule(queue=queues)
    def delete_and_declare(self, queue: str) -> None:
        assert self.on(0, lambda ch: ch.queue_delete(queue)) == len(self.ready[queue])
        self.ready[queue].clear()
        for unacked in self.unacked:
            for held in unacked.values():
                if held.queue == queue:
                    held.queue = "deleted"
        self.declare()

    @rule()
    def checkpoint(self) -> None:
        self.sides[0].store.checkpoint()

    @rule(queue=queues, mode=st.sampled_from(("lazy", "default")))
    def set_queue_mode(self, queue: str, mode: Any) -> None:
        self.sides[0].store.set_queue_mode(queue, mode)

    @rule()
    def reopen(self) -> None:
        for side in self.sides:
            side.close()
            side.open()
        self.begin_again()

    @rule()
    def kill(self) -> None:
        """Which messages were delivered before is known no more: all are said to come again."""
        self.killed = True
        for side in self.sides:
            side.copy()
        self.begin_again()
        for ready in self.ready.values():
            for held in ready:
                held.redelivered = True

    def begin_again(self) -> None:
        for channel in (0, 1):
            self.settle_all(channel, requeue=True)
        self.tags = [0, 0]
        for queue, ready in self.ready.items():
            self.ready[queue] = [held for held in ready if held.persistent]
        reports = [side.store.recovery_report for side in self.sides]
        for name in ("queues", "messages"):
            assert reports[0][name] == reports[1][name]
        self.declare()

    @invariant()
    def counts_agree_and_invariants_hold(self) -> None:
        unacked = [held.queue for each in self.unacked for held in each.values()]
        for side in self.sides:
            for queue, ready in self.ready.items():
                status = side.store.queue_status(queue)
                assert status["messages_ready"] == len(ready), queue
                assert status["messages_unacked"] == unacked.count(queue), queue
                check(status)


def check(status: dict[str, Any]) -> None:
    """RabbitMQ's invariants of a variable queue, and which states its parts may have."""
    q1, q2, delta, q3, q4 = (status[name] for name in ("q1", "q2", "delta_len", "q3", "q4"))
    ready, unacked = status["messages_ready"], status["messages_unacked"]
    states = [status[name] for name in ("alpha", "beta", "gamma", "delta")]
    assert not q1 or q3, status
    assert not q2 or delta, status
    assert not delta or q3, status
    assert (ready == 0) == (q3 == 0 and q4 == 0), status
    assert q1 + q2 + delta + q3 + q4 == ready, status
    assert sum(states) == ready + unacked, status
    assert sum(states[:3]) <= ready + unacked, status
    if status["lazy"]:
        assert (q1, q2, q4) == (0, 0, 0), status
        assert delta >= status["delta"], status
        return
    out = (status["alpha"] - q1 - q4, status["beta"] + status["gamma"] - q2 - q3)
    assert min(out) >= 0, status
    assert sum(out) == unacked, status
    assert delta == status["delta"], status


TestQueues = QueueMachine.TestCase
TestQueues.settings = model_settings(150, 50)
