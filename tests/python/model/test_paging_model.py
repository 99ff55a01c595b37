"""A store that pages is indistinguishable from one that does not.

Hypothesis makes up what happens; it happens to two stores: one with tiny segments, a tiny budget
and frequent checkpoints, and one that keeps everything in memory and makes none.  Every answer of
the two is the same, and the invariants of RabbitMQ's variable queue hold after every step.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

from .copies import copy_store
from .sizes import model_settings

DECLARED: dict[str, dict[str, Any]] = {
    "d0": {"durable": True},
    "d1": {"durable": True},
    "lazy": {"durable": True, "arguments": {"x-queue-mode": "lazy"}},
    "t0": {},
}
FANNED = ("d0", "d1", "lazy", "t0")
EXCHANGE = "fan"
CALM: dict[str, Any] = {
    "memory_budget": "1GiB",
    "checkpoint_bytes": 0,
    "checkpoint_interval": None,
    "embed_below": "1MiB",
}

queues = st.sampled_from(sorted(DECLARED))
channels = st.sampled_from((0, 1))
modes = st.sampled_from((None, 1, 2, 2))
sizes = st.sampled_from((0, 0, 0, 90, 200, 3000, 6000))
Answer = Callable[[pyqstore.Channel], Any]


class Told(NamedTuple):
    """All that a message tells."""

    delivery_tag: int
    body: bytes
    redelivered: bool
    delivery_count: int
    exchange: str
    routing_key: str
    properties: pyqstore.Properties


def told(message: pyqstore.Message | None) -> Told | None:
    if message is None:
        return None
    return Told(
        message.delivery_tag,
        message.body,
        message.redelivered,
        message.delivery_count,
        message.exchange,
        message.routing_key,
        message.properties,
    )


class Side:
    """One of the two stores, and two channels."""

    def __init__(self, folder: str, name: str, options: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / f"{name}-0"
        self.name = name
        self.copies = 0
        self.options = {
            "sync": "none",
            "journal_file_bytes": "64KiB",
            "message_file_bytes": "64KiB",
            **options,
        }
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.channels = [self.store.channel(), self.store.channel()]

    def close(self) -> None:
        self.store.close()
        for channel in self.channels:
            channel.close()

    def copy(self) -> None:
        """Go on with a copy of the directory of the open store, as after a SIGKILL."""
        self.store.sync()
        self.copies += 1
        copy = self.folder / f"{self.name}-{self.copies}"
        copy_store(self.path, copy)
        self.close()
        shutil.rmtree(self.path)
        self.path = copy
        assert pyqstore.verify(self.path).damage == ()
        self.open()


class PagingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="qs-paging-")
        self.number = 0
        self.sides: list[Side] = []
        self.unacked: list[set[int]] = [set(), set()]
        self.killed = False

    @initialize(
        segment_entries=st.sampled_from((16, 64)),
        embed_below=st.sampled_from((0, 1, 100, 4096, 2**30)),
    )
    def begin(self, segment_entries: int, embed_below: int) -> None:
        paging = {
            "memory_budget": "64KiB",
            "segment_entries": segment_entries,
            "embed_below": embed_below,
            "checkpoint_bytes": "128KiB",
            "checkpoint_interval": None,
        }
        self.sides = [Side(self.folder, "paging", paging), Side(self.folder, "calm", CALM)]
        self.declare()

    def teardown(self) -> None:
        try:
            if self.sides and sys.exc_info()[0] is None:
                for queue in DECLARED:
                    self.drain(queue)
        finally:
            for side in self.sides:
                side.close()
            shutil.rmtree(self.folder)

    def drain(self, queue: str) -> None:
        rows = self.both(
            0,
            lambda channel: channel.get_batch(queue, 10**6, auto_ack=True).to_pylist(),
        )
        assert len(rows) == len({row["body"] for row in rows})

    def both(self, channel: int, ask: Answer) -> Any:
        """The one answer of both stores."""
        paging, calm = (self.known(ask(side.channels[channel])) for side in self.sides)
        if isinstance(paging, list) and isinstance(calm, list):
            for index, (one, other) in enumerate(zip(paging, calm, strict=False)):
                assert one == other, index
            assert len(paging) == len(calm)
        assert paging == calm, (paging, calm)
        return paging

    def known(self, answer: Any) -> Any:
        """Without delivery counts once a store was killed: nobody knows them then exactly."""
        if not self.killed:
            return answer
        if isinstance(answer, list):
            return [self.known(one) for one in answer]
        if isinstance(answer, dict):
            return {**answer, "delivery_count": None}
        if isinstance(answer, Told):
            return answer._replace(delivery_count=0)
        return answer

    def declare(self) -> None:
        def ask(channel: pyqstore.Channel) -> None:
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            for queue, options in DECLARED.items():
                channel.queue_declare(queue, **options)
                if queue in FANNED:
                    channel.queue_bind(queue, EXCHANGE, "")

        self.both(0, ask)

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%d" % self.number + b"." * size

    # Publishing.

    @rule(queue=queues, channel=channels, mode=modes, size=sizes, count=st.integers(1, 60))
    def publish(self, queue: str, channel: int, mode: int | None, size: int, count: int) -> None:
        properties = pyqstore.Properties(delivery_mode=mode, app_id=f"app{self.number % 3}")
        for body in [self.body(size) for _ in range(count)]:
            self.both(
                channel,
                lambda ch, body=body: ch.basic_publish("", queue, body, properties),  # type: ignore[misc]
            )

    @rule(channel=channels, mode=modes, size=sizes, count=st.integers(1, 30))
    def fan_out(self, channel: int, mode: int | None, size: int, count: int) -> None:
        properties = pyqstore.Properties(delivery_mode=mode)
        for body in [self.body(size) for _ in range(count)]:
            self.both(
                channel,
                lambda ch, body=body: ch.basic_publish(EXCHANGE, "", body, properties),  # type: ignore[misc]
            )

    @rule(
        rows=st.lists(st.tuples(st.sampled_from((1, 2)), sizes), min_size=1, max_size=100),
        channel=channels,
        queue=st.none() | queues,
    )
    def publish_batch(self, rows: list[tuple[int, int]], channel: int, queue: str | None) -> None:
        frame = pa.table(
            {
                "body": pa.array([self.body(size) for _, size in rows], pa.binary()),
                "delivery_mode": pa.array([mode for mode, _ in rows], pa.uint8()),
            }
        )
        exchange, key = (EXCHANGE, "") if queue is None else ("", queue)
        self.both(channel, lambda ch: ch.publish_batch(frame, exchange, key).count)

    # Receiving.

    @rule(queue=queues, channel=channels, auto_ack=st.booleans(), count=st.integers(1, 40))
    def get(self, queue: str, channel: int, auto_ack: bool, count: int) -> None:
        for _ in range(count):
            answer = self.both(channel, lambda ch: told(ch.basic_get(queue, auto_ack)))
            if answer is None:
                break
            if not auto_ack:
                self.unacked[channel].add(answer.delivery_tag)

    @rule(queue=queues, channel=channels, most=st.integers(1, 300), auto_ack=st.booleans())
    def get_batch(self, queue: str, channel: int, most: int, auto_ack: bool) -> None:
        rows = self.both(
            channel, lambda ch: ch.get_batch(queue, most, auto_ack=auto_ack).to_pylist()
        )
        if not auto_ack:
            self.unacked[channel].update(row["delivery_tag"] for row in rows)

    @rule(queue=queues, channel=channels, prefetch=st.integers(1, 50))
    def consume(self, queue: str, channel: int, prefetch: int) -> None:
        ready = self.sides[0].store.queue_status(queue)["messages_ready"]
        wanted = int(min(prefetch, ready))

        def ask(ch: pyqstore.Channel) -> list[Any]:
            got: list[Told | None] = []
            ch.basic_qos(prefetch)
            tag = ch.basic_consume(queue, lambda message: got.append(told(message)))
            deadline = time.monotonic() + 20
            while len(got) < wanted:
                assert time.monotonic() < deadline
                ch.process_events(timeout=0.05)
            ch.basic_cancel(tag)
            return got

        answers = self.both(channel, ask)
        assert len(answers) == wanted
        self.unacked[channel].update(answer.delivery_tag for answer in answers)

    # Settling.

    @precondition(lambda self: any(self.unacked))
    @rule(
        data=st.data(),
        what=st.sampled_from(("ack", "ack", "requeue", "drop")),
        multiple=st.booleans(),
    )
    def settle(self, data: st.DataObject, what: str, multiple: bool) -> None:
        channel = data.draw(st.sampled_from([i for i in (0, 1) if self.unacked[i]]))
        tags = data.draw(
            st.lists(
                st.sampled_from(sorted(self.unacked[channel])),
                unique=True,
                min_size=1,
                max_size=1 if multiple else 40,
            )
        )
        for tag in tags:
            if what == "ack":
                self.both(channel, lambda ch, tag=tag: ch.basic_ack(tag, multiple))  # type: ignore[misc]
            else:
                self.both(
                    channel,
                    lambda ch, tag=tag: ch.basic_nack(tag, multiple, requeue=what == "requeue"),  # type: ignore[misc]
                )
        settled = set(tags)
        if multiple:
            settled = {tag for tag in self.unacked[channel] if tag <= tags[0]}
        self.unacked[channel] -= settled

    @rule(channel=channels)
    def recover(self, channel: int) -> None:
        self.both(channel, lambda ch: ch.basic_recover())
        self.unacked[channel].clear()

    @rule(channel=channels)
    def ack_all(self, channel: int) -> None:
        self.both(channel, lambda ch: ch.basic_ack(multiple=True))
        self.unacked[channel].clear()

    # Queues and stores.

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        self.both(0, lambda ch: ch.queue_purge(queue))

    @rule(queue=queues)
    def delete_and_declare(self, queue: str) -> None:
        self.both(0, lambda ch: ch.queue_delete(queue))
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
        self.after_opening()

    @rule()
    def kill(self) -> None:
        self.killed = True
        for side in self.sides:
            side.copy()
        self.after_opening()

    def after_opening(self) -> None:
        self.unacked = [set(), set()]
        paging, calm = (side.store.recovery_report for side in self.sides)
        assert paging["queues"] == calm["queues"]
        assert paging["messages"] == calm["messages"]
        self.declare()

    @invariant()
    def sides_agree_and_invariants_hold(self) -> None:
        if not self.sides:
            return
        for queue in DECLARED:
            paging, calm = (side.store.queue_status(queue) for side in self.sides)
            for count in ("messages_ready", "messages_unacked"):
                assert paging[count] == calm[count], (queue, count)
            for status in (paging, calm):
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


TestPaging = PagingMachine.TestCase
TestPaging.settings = model_settings(150, 50)
