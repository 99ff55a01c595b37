"""A queue with priorities against the naive one: a list that is sorted by priority, then by age."""

import shutil
import tempfile
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import pyqstore

from .sizes import model_settings

priorities = st.one_of(st.none(), st.integers(0, 255), st.integers(0, 6))
sizes = st.sampled_from((0, 0, 100, 3000, 6000))


@dataclass(frozen=True)
class Held:
    level: int
    number: int
    body: bytes

    def __lt__(self, other: "Held") -> bool:
        return (-self.level, self.number) < (-other.level, other.number)


class PriorityMachine(RuleBasedStateMachine):
    most = 4

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="qs-priorities-")
        self.number = 0
        self.ready: list[Held] = []
        self.unacked: dict[int, Held] = {}
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(
            self.path,
            sync="none",
            journal_file_bytes="64KiB",
            memory_budget="256KiB",
            embed_below=4000,
            segment_entries=64,
        )
        self.channel = self.store.channel()
        arguments: dict[str, int] = {"x-max-priority": self.most}
        self.channel.queue_declare("q", durable=True, arguments=arguments)

    def teardown(self) -> None:
        self.channel.close()
        self.store.close()
        shutil.rmtree(self.path)

    def hold(self, priority: int | None, size: int) -> bytes:
        self.number += 1
        body = b"%d " % self.number + bytes(size)
        self.ready.append(Held(min(priority or 0, self.most), self.number, body))
        self.ready.sort()
        return body

    @rule(priority=priorities, size=sizes)
    def publish(self, priority: int | None, size: int) -> None:
        body = self.hold(priority, size)
        properties = pyqstore.Properties(delivery_mode=2, priority=priority)
        self.channel.basic_publish("", "q", body, properties)

    @rule(wanted=st.lists(priorities, min_size=1, max_size=40), size=sizes, default=priorities)
    def publish_batch(self, wanted: list[int | None], size: int, default: int | None) -> None:
        bodies = [self.hold(default if each is None else each, size) for each in wanted]
        batch = pa.record_batch({"body": bodies, "priority": pa.array(wanted, pa.uint8())})
        self.channel.publish_batch(batch, "", "q", properties=pyqstore.Properties(priority=default))

    @rule(wanted=st.lists(priorities, max_size=5), commits=st.booleans())
    def transaction(self, wanted: list[int | None], commits: bool) -> None:
        with self.store.channel() as channel:
            channel.tx_select()
            for priority in wanted:
                body = self.hold(priority, 10)
                properties = pyqstore.Properties(delivery_mode=2, priority=priority)
                channel.basic_publish("", "q", body, properties)
            if commits:
                channel.tx_commit()
            else:
                channel.tx_rollback()
                kept = self.number - len(wanted)
                self.ready = [held for held in self.ready if held.number <= kept]

    @rule(count=st.integers(1, 10))
    def get(self, count: int) -> None:
        for _ in range(count):
            message = self.channel.basic_get("q")
            if not self.ready:
                assert message is None
                return
            held = self.ready.pop(0)
            assert message is not None
            assert message.body == held.body
            self.unacked[message.delivery_tag] = held

    @rule(count=st.integers(1, 60))
    def get_batch(self, count: int) -> None:
        batch = self.channel.get_batch("q", max_messages=count, auto_ack=False)
        wanted, self.ready = self.ready[:count], self.ready[count:]
        assert batch.column("body").to_pylist() == [held.body for held in wanted]
        tags = batch.column("delivery_tag").to_pylist()
        self.unacked.update(zip(tags, wanted, strict=True))

    @rule(data=st.data(), requeue=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool) -> None:
        if self.unacked:
            tag = data.draw(st.sampled_from(sorted(self.unacked)))
            held = self.unacked.pop(tag)
            if requeue:
                self.channel.basic_nack(tag, requeue=True)
                self.ready = sorted([*self.ready, held])
            else:
                self.channel.basic_ack(tag)

    @rule()
    def purge(self) -> None:
        if len(self.ready) % 3 == 0:
            assert self.channel.queue_purge("q") == len(self.ready)
            self.ready = []

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule(lazy=st.booleans())
    def mode(self, lazy: bool) -> None:
        self.store.set_queue_mode("q", "lazy" if lazy else "default")

    @rule()
    def reopen(self) -> None:
        self.channel.close()
        self.store.close()
        self.ready = sorted([*self.ready, *self.unacked.values()])
        self.unacked = {}
        self.open()

    @invariant()
    def counts_agree(self) -> None:
        status = self.store.queue_status("q")
        assert status["messages_ready"] == len(self.ready)
        assert status["messages_unacked"] == len(self.unacked)


TestPriorities = PriorityMachine.TestCase
TestPriorities.settings = model_settings(60, 40)
