"""Work queues over a stream are sets of offsets that only lose members.

Hypothesis makes up what happens to three work queues over one stream with retention, in a store
with a tiny budget and frequent checkpoints that is closed and killed in between: messages are got
one by one and in batches, acked, requeued, rejected, given up with their channel, settled in
transactions, and purged.  The model of a queue is the set of offsets that it is not done with, and
how often each was delivered.  Retention takes from it what lies below the stream's first offset,
and tells how much; from one that is pinned it takes nothing.  What comes back after retention
passed it may be there still, or not.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pyqstore

from .copies import copy_store
from .sizes import model_settings

LIMIT = 3
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
DECLARED: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"x-delivery-limit": LIMIT, **DEAD},
    "pinned": {"x-stream-pin": True},
}
queues = st.sampled_from(sorted(DECLARED))
places = st.floats(0, 0.999)


class Work:
    """What a work queue is not done with."""

    def __init__(self) -> None:
        self.ready: set[int] = set()
        self.late: set[int] = set()  # came back after retention passed them: ready, or passed
        self.out: dict[int, int] = {}  # offset: delivery tag
        self.deliveries: dict[int, int] = {}  # as far as they are known
        self.seen: set[int] = set()
        self.passed = 0
        self.doubtful = 0  # so many more may have been passed


class WorkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="qs-work-"))
        self.path = self.folder / "0"
        self.copies = 0
        self.store: pyqstore.Store | None = None
        self.work = {name: Work() for name in DECLARED}
        self.dead: set[int] = set()
        self.perhaps_dead: set[int] = set()  # retention passed them before
        self.count = 0
        self.first = 0

    @initialize(budget=st.sampled_from(("64KiB", "16MiB")), entries=st.sampled_from((64, 1024)))
    def begin(self, budget: str, entries: int) -> None:
        self.options: dict[str, Any] = {
            "sync": "none",
            "memory_budget": budget,
            "segment_entries": entries,
            "checkpoint_bytes": "128KiB",
            "checkpoint_interval": None,
            "journal_file_bytes": "64KiB",
        }
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.stream = self.store.stream("s", max_messages=150, segment_bytes=20_000)
        self.channel = self.store.channel()
        self.channel.queue_declare("dead", durable=True)
        for name, arguments in DECLARED.items():
            source = {"x-stream-source": "s", "x-stream-offset": "first"}
            self.channel.queue_declare(name, durable=True, arguments={**source, **arguments})

    def teardown(self) -> None:
        try:
            if self.store is not None and sys.exc_info()[0] is None:
                self.drain()
        finally:
            if self.store is not None:
                self.store.close()
            shutil.rmtree(self.folder)

    # What is there.

    def body(self, offset: int) -> bytes:
        return b"%06d" % offset + b"." * (offset * 37 % 900)

    def pass_by(self) -> None:
        """What retention took from the queues since the last look."""
        self.first = self.stream.first
        for name, work in self.work.items():
            gone = {offset for offset in work.ready if offset < self.first}
            assert not gone or name != "pinned"
            work.ready -= gone
            work.passed += len(gone)

    @invariant()
    def counts_agree(self) -> None:
        """In the end: retention and dead letters have threads of their own."""
        deadline = time.monotonic() + 30
        while self.store is not None:
            try:
                self.check_counts()
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.001)

    def check_counts(self) -> None:
        assert self.store is not None
        self.pass_by()
        for name, work in self.work.items():
            status = self.store.queue_status(name)
            fewest, passed = len(work.ready), status["messages_passed"]
            assert fewest <= status["messages_ready"] <= fewest + len(work.late), name
            assert status["messages_unacked"] == len(work.out), name
            assert work.passed <= passed <= work.passed + len(work.late) + work.doubtful, name
        dead = self.store.queue_status("dead")["messages_ready"]
        assert len(self.dead) <= dead <= len(self.dead) + len(self.perhaps_dead)
        assert self.stream.next == self.count

    def offset_of(self, body: bytes) -> int:
        offset = int(body[:6])
        assert body == self.body(offset)
        return offset

    def took(self, name: str, offset: int, tag: int, redelivered: bool, count: int) -> None:
        work = self.work[name]
        if offset in work.late:
            work.late.remove(offset)
            assert offset < min(work.ready, default=self.count), name
        else:
            if offset != min(work.ready):
                self.pass_by()
            assert offset == min(work.ready), name
            work.ready.remove(offset)
        assert redelivered == (offset in work.seen), name
        if offset in work.deliveries:
            assert count == work.deliveries[offset], name
        work.out[offset] = tag

    # Publishing.

    @rule(count=st.integers(1, 80))
    def publish(self, count: int) -> None:
        bodies = [self.body(offset) for offset in range(self.count, self.count + count)]
        self.stream.publish_batch(pa.table({"body": bodies}))
        for work in self.work.values():
            fresh = range(self.count, self.count + count)
            work.ready.update(fresh)
            work.deliveries.update(dict.fromkeys(fresh, 0))
        self.count += count

    @rule()
    def publish_alone(self) -> None:
        self.stream.publish(self.body(self.count))
        for work in self.work.values():
            work.ready.add(self.count)
            work.deliveries[self.count] = 0
        self.count += 1

    # Taking.

    @rule(name=queues, count=st.integers(1, 20))
    def get(self, name: str, count: int) -> None:
        for _ in range(count):
            message = self.channel.basic_get(name)
            if message is None:
                self.pass_by()
                assert not self.work[name].ready
                return
            self.took(
                name,
                self.offset_of(message.body),
                message.delivery_tag,
                message.redelivered,
                message.delivery_count,
            )

    @rule(name=queues, count=st.integers(1, 200))
    def get_batch(self, name: str, count: int) -> None:
        batch = self.channel.get_batch(name, count)
        if batch.num_rows == 0:
            self.pass_by()
            assert not self.work[name].ready
        columns = ["body", "delivery_tag", "redelivered", "delivery_count"]
        for row in batch.select(columns).to_pylist():
            offset = self.offset_of(row["body"])
            self.took(name, offset, row["delivery_tag"], row["redelivered"], row["delivery_count"])

    # Settling.

    def held(self, name: str, place: float) -> int:
        out = sorted(self.work[name].out)
        return out[int(place * len(out))]

    def done(self, name: str, offset: int) -> None:
        del self.work[name].out[offset]

    def died(self, name: str, offset: int) -> None:
        self.first = self.stream.first
        if offset < self.first:
            self.perhaps_dead.add(offset)
            self.work[name].doubtful += 1
        else:
            self.dead.add(offset)

    def came_back(self, name: str, offset: int) -> None:
        work = self.work[name]
        work.out.pop(offset, None)
        work.seen.add(offset)
        if offset in work.deliveries:
            work.deliveries[offset] += 1
            if name == "limited" and work.deliveries[offset] > LIMIT:
                self.died(name, offset)
                return
        self.first = self.stream.first
        (work.late if offset < self.first else work.ready).add(offset)

    @precondition(lambda self: any(work.out for work in self.work.values()))
    @rule(name=queues, place=places)
    def ack(self, name: str, place: float) -> None:
        if self.work[name].out:
            offset = self.held(name, place)
            self.channel.basic_ack(self.work[name].out[offset])
            self.done(name, offset)

    @precondition(lambda self: any(work.out for work in self.work.values()))
    @rule(name=queues)
    def ack_all(self, name: str) -> None:
        for offset, tag in list(self.work[name].out.items()):
            self.channel.basic_ack(tag)
            self.done(name, offset)

    @precondition(lambda self: any(work.out for work in self.work.values()))
    @rule(name=queues, place=places)
    def requeue(self, name: str, place: float) -> None:
        if self.work[name].out:
            offset = self.held(name, place)
            self.channel.basic_nack(self.work[name].out[offset], requeue=True)
            self.came_back(name, offset)

    @precondition(lambda self: any(work.out for work in self.work.values()))
    @rule(name=queues, place=places)
    def reject(self, name: str, place: float) -> None:
        if self.work[name].out:
            offset = self.held(name, place)
            self.channel.basic_reject(self.work[name].out[offset], requeue=False)
            self.done(name, offset)
            if name == "limited":
                self.died(name, offset)

    @precondition(lambda self: any(work.out for work in self.work.values()))
    @rule(name=queues, place=places, commits=st.booleans())
    def transact(self, name: str, place: float, commits: bool) -> None:
        """The message, and another one in the stream, or neither."""
        if not self.work[name].out:
            return
        offset = self.held(name, place)
        try:
            with self.channel.transaction() as tx:
                tx.ack(self.work[name].out[offset])
                tx.publish("", "s", self.body(self.count))
                if not commits:
                    raise KeyError
        except KeyError:
            return
        self.done(name, offset)
        for work in self.work.values():
            work.ready.add(self.count)
            work.deliveries[self.count] = 0
        self.count += 1

    @rule(name=queues)
    def purge(self, name: str) -> None:
        work = self.work[name]
        count = self.channel.queue_purge(name)
        self.pass_by()
        assert len(work.ready) <= count <= len(work.ready) + len(work.late) or self.first > 0
        work.ready.clear()
        work.doubtful += len(work.late)
        work.late.clear()

    @rule()
    def close_channel(self) -> None:
        assert self.store is not None
        self.channel.close()
        self.channel = self.store.channel()
        for name, work in self.work.items():
            for offset in list(work.out):
                self.came_back(name, offset)

    # The store's life.

    @rule()
    def checkpoint(self) -> None:
        assert self.store is not None
        self.store.checkpoint()

    def was_reopened(self) -> None:
        """Of what is below the stream's first offset nothing is left."""
        self.pass_by()
        for work in self.work.values():
            work.passed += len(work.late)
            work.late.clear()

    @rule()
    def close_and_open(self) -> None:
        assert self.store is not None
        for name, work in self.work.items():
            for offset in list(work.out):
                self.came_back(name, offset)
        self.store.close()
        self.open()
        self.was_reopened()

    @rule()
    def kill_and_open(self) -> None:
        """Go on with a copy of the directory, as after a SIGKILL.  Then all that was there counts
        as delivered, and only a delivery limit has counted."""
        assert self.store is not None
        self.store.sync()
        self.copies += 1
        path = self.folder / str(self.copies)
        copy_store(self.path, path)
        self.store.close()
        shutil.rmtree(self.path)
        self.path = path
        assert pyqstore.verify(self.path).damage == ()
        self.open()
        for name, work in self.work.items():
            for offset in list(work.out):
                self.came_back(name, offset)
            work.seen |= work.ready
            if name != "limited":
                work.deliveries.clear()
        self.was_reopened()

    def drain(self) -> None:
        self.close_channel()
        for name in DECLARED:
            self.pass_by()
            while self.work[name].ready:
                self.get_batch(name, 1000)
                self.pass_by()
            self.ack_all(name)
        assert self.channel.get_batch("plain", 1).num_rows == 0
        dead = self.channel.get_batch("dead", 100_000)
        offsets = [self.offset_of(body) for body in dead["body"].to_pylist()]
        assert len(set(offsets)) == len(offsets)
        assert self.dead <= set(offsets) <= self.dead | self.perhaps_dead


TestWork = WorkMachine.TestCase
TestWork.settings = model_settings(30, 40)
