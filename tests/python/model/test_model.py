"""One store against a simple model of it: Hypothesis makes up what happens, both must agree on
every answer.

The model is a list of ready messages per queue, in order of publishing, and the unacknowledged ones
of each of two channels.  A message is (number, redelivered); numbers count up over all queues, so
that the original place of a message in its queue is where its number belongs.  A reopening keeps
what is persistent in durable queues.
"""

import shutil
import tempfile
from bisect import insort
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import pyqstore

from .sizes import model_settings

DURABLE = {"d0": True, "d1": True, "t0": False}
EXCHANGE = "topics"
PATTERNS = {"a.*": "d0", "#": "d1", "*.b": "t0"}
KEYS = {"a.b": ("d0", "d1", "t0"), "a.c": ("d0", "d1"), "x.b": ("d1", "t0"), "x": ("d1",)}

queues = st.sampled_from(sorted(DURABLE))
channels = st.sampled_from((0, 1))
modes = st.sampled_from((None, 1, 2))


@dataclass(order=True)
class Held:
    """A message of the model."""

    number: int
    persistent: bool = field(compare=False)
    redelivered: bool = field(compare=False, default=False)
    queue: str = field(compare=False, default="")


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="qs-model-")
        self.number = 0
        self.ready: dict[str, list[Held]] = {}
        self.unacked: list[dict[int, Held]] = [{}, {}]
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(
            self.path,
            sync="none",
            journal_file_bytes="64KiB",
            message_file_bytes="64KiB",
            embed_below=200,
            segment_entries=64,
        )
        self.channels = [self.store.channel(), self.store.channel()]
        self.tags = [0, 0]

    def teardown(self) -> None:
        self.store.close()
        for channel in self.channels:
            channel.close()
        shutil.rmtree(self.path)

    def declare(self) -> None:
        channel = self.channels[0]
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        for queue, durable in DURABLE.items():
            channel.queue_declare(queue, durable=durable)
            self.ready.setdefault(queue, [])
        for pattern, queue in PATTERNS.items():
            channel.queue_bind(queue, EXCHANGE, pattern)

    @initialize()
    def begin(self) -> None:
        self.declare()

    def body(self) -> bytes:
        """The next message: its number, and every seventh large enough for the message store."""
        self.number += 1
        return b"%d" % self.number + b"." * (300 if self.number % 7 == 0 else 0)

    def put(self, queue: str, number: int, mode: int | None) -> None:
        self.ready[queue].append(Held(number, DURABLE[queue] and mode == 2, queue=queue))

    @rule(queue=queues, channel=channels, mode=modes)
    def publish(self, queue: str, channel: int, mode: int | None) -> None:
        body = self.body()
        properties = pyqstore.Properties(delivery_mode=mode)
        self.channels[channel].basic_publish("", queue, body, properties)
        self.put(queue, self.number, mode)

    @rule(key=st.sampled_from(sorted(KEYS)), channel=channels, mode=modes)
    def publish_topic(self, key: str, channel: int, mode: int | None) -> None:
        body = self.body()
        properties = pyqstore.Properties(delivery_mode=mode)
        self.channels[channel].basic_publish(EXCHANGE, key, body, properties)
        for queue in KEYS[key]:
            self.put(queue, self.number, mode)

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(sorted(KEYS)), st.sampled_from((1, 2))), max_size=70
        ),
        channel=channels,
        dictionary=st.booleans(),
    )
    def publish_batch(self, rows: list[tuple[str, int]], channel: int, dictionary: bool) -> None:
        bodies = []
        for key, mode in rows:
            bodies.append(self.body())
            for queue in KEYS[key]:
                self.put(queue, self.number, mode)
        keys = pa.array([key for key, _ in rows], pa.string())
        frame = pa.table(
            {
                "body": pa.array(bodies, pa.binary()),
                "routing_key": keys.dictionary_encode() if dictionary else keys,
                "delivery_mode": pa.array([mode for _, mode in rows], pa.uint8()),
            }
        )
        assert self.channels[channel].publish_batch(frame, EXCHANGE).count == len(rows)

    def check_delivery(self, channel: int, queue: str, tag: int, body: bytes, again: bool) -> None:
        held = self.ready[queue].pop(0)
        assert int(body.rstrip(b".")) == held.number
        assert len(body) > 300 or held.number % 7
        assert again == held.redelivered
        self.tags[channel] += 1
        assert tag == self.tags[channel]
        self.unacked[channel][tag] = held

    @rule(queue=queues, channel=channels, auto_ack=st.booleans())
    def get(self, queue: str, channel: int, auto_ack: bool) -> None:
        message = self.channels[channel].basic_get(queue, auto_ack)
        if not self.ready[queue]:
            assert message is None
            return
        assert message is not None
        assert message.queue == queue
        tag = message.delivery_tag
        self.check_delivery(channel, queue, tag, message.body, message.redelivered)
        if auto_ack:
            del self.unacked[channel][tag]

    @rule(queue=queues, channel=channels, most=st.integers(1, 100), auto_ack=st.booleans())
    def get_batch(self, queue: str, channel: int, most: int, auto_ack: bool) -> None:
        batch = self.channels[channel].get_batch(queue, most, auto_ack=auto_ack)
        assert batch.num_rows == min(most, len(self.ready[queue]))
        for row in batch.to_pylist():
            tag = row["delivery_tag"]
            self.check_delivery(channel, queue, tag, row["body"], row["redelivered"])
            if auto_ack:
                del self.unacked[channel][tag]

    def settle(self, channel: int, tags: list[int], requeue: bool) -> None:
        for tag in tags:
            held = self.unacked[channel].pop(tag)
            if requeue and held.queue in self.ready:
                held.redelivered = True
                insort(self.ready[held.queue], held)

    @precondition(lambda self: any(self.unacked))
    @rule(data=st.data(), what=st.sampled_from(("ack", "requeue", "drop")), multiple=st.booleans())
    def settle_some(self, data: st.DataObject, what: str, multiple: bool) -> None:
        channel = data.draw(st.sampled_from([i for i in (0, 1) if self.unacked[i]]))
        tag = data.draw(st.sampled_from(sorted(self.unacked[channel])))
        tags = [t for t in sorted(self.unacked[channel]) if t <= tag] if multiple else [tag]
        if what == "ack":
            self.channels[channel].basic_ack(tag, multiple)
        else:
            self.channels[channel].basic_nack(tag, multiple, requeue=what == "requeue")
        self.settle(channel, tags, what == "requeue")

    @precondition(lambda self: any(self.unacked))
    @rule(data=st.data(), requeue=st.booleans())
    def settle_subset(self, data: st.DataObject, requeue: bool) -> None:
        channel = data.draw(st.sampled_from([i for i in (0, 1) if self.unacked[i]]))
        tags = data.draw(st.lists(st.sampled_from(sorted(self.unacked[channel])), unique=True))
        for tag in tags:
            self.channels[channel].basic_nack(tag, requeue=requeue)
        self.settle(channel, tags, requeue)

    @rule(channel=channels)
    def recover(self, channel: int) -> None:
        self.channels[channel].basic_recover()
        self.settle(channel, sorted(self.unacked[channel]), True)

    @rule(channel=channels)
    def ack_all(self, channel: int) -> None:
        self.channels[channel].basic_ack(multiple=True)
        self.unacked[channel].clear()

    @rule(channel=channels, by_error=st.booleans())
    def close_channel(self, channel: int, by_error: bool) -> None:
        if by_error:
            try:
                self.channels[channel].basic_ack(10**9)
            except pyqstore.PreconditionFailed:
                assert self.channels[channel].closed
        self.channels[channel].close()
        self.settle(channel, sorted(self.unacked[channel]), True)
        self.channels[channel] = self.store.channel()
        self.tags[channel] = 0

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        assert self.channels[0].queue_purge(queue) == len(self.ready[queue])
        self.ready[queue].clear()

    @rule(queue=queues)
    def delete_and_declare(self, queue: str) -> None:
        assert self.channels[0].queue_delete(queue) == len(self.ready[queue])
        self.ready[queue] = []
        for unacked in self.unacked:
            for held in unacked.values():
                if held.queue == queue:
                    held.queue = "deleted"
        self.declare()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        for channel in self.channels:
            channel.close()
        for channel_number in (0, 1):
            self.settle(channel_number, sorted(self.unacked[channel_number]), True)
        for queue, durable in DURABLE.items():
            self.ready[queue] = [held for held in self.ready[queue] if durable and held.persistent]
        self.open()
        self.declare()

    @invariant()
    def counts_agree(self) -> None:
        for queue, ready in self.ready.items():
            status: dict[str, Any] = self.store.queue_status(queue)
            unacked = sum(h.queue == queue for held in self.unacked for h in held.values())
            assert status["messages_ready"] == len(ready)
            assert status["messages_unacked"] == unacked
            parts = ("q1", "q2", "delta_len", "q3", "q4")
            assert sum(status[part] for part in parts) == len(ready)


TestStore = StoreMachine.TestCase
TestStore.settings = model_settings(60, 60)
