"""Queues that messages leave by themselves against a simple model: limits, expiry, rejects, dead
letters, and what a restart does to them.

The model is a list of entries per queue.  Time stands still in it: a message lives for no time or
for an hour, and what lives for no time is gone before anything else happens: the store is given the
time to agree.  A restart is a close, or a copy of the directory of the open store, as after a
SIGKILL, once everything is durable.
"""

import shutil
import tempfile
import time
from bisect import insort
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pyqstore

from .copies import copy_store
from .sizes import model_settings

HOUR = "3600000"


@dataclass(frozen=True)
class Kind:
    """What a queue is declared with, and where its dead letters end: nowhere, or in a queue."""

    arguments: dict[str, Any] = field(default_factory=dict)
    letters_to: str | None = None
    most: int | None = None
    most_bytes: int | None = None
    refuses: bool = False
    deliveries: int | None = None


def kind(letters_to: str | None = None, **arguments: Any) -> Kind:
    named: dict[str, Any] = {f"x-{key.replace('_', '-')}": v for key, v in arguments.items()}
    if letters_to is not None:
        named |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters_to}
    return Kind(
        named,
        letters_to,
        arguments.get("max_length"),
        arguments.get("max_length_bytes"),
        "overflow" in arguments,
        arguments.get("delivery_limit"),
    )


KINDS = {
    "dead": kind(),
    "few": kind("dead", max_length=3),
    "small": kind("dead", max_length_bytes=40),
    "refuse": kind(max_length=3, overflow="reject-publish"),
    "overflow": kind("dead", max_length=3, overflow="reject-publish-dlx"),
    "loop": kind("loop", max_length=4),
    "chain": kind("few"),
    "limit": kind("dead", delivery_limit=1),
}
SOURCES = sorted(set(KINDS) - {"dead"})

queues = st.sampled_from(sorted(KINDS))
sources = st.sampled_from(SOURCES)
lives = st.sampled_from((None, None, HOUR, "0"))
sizes = st.sampled_from((4, 12, 30, 300))


@dataclass(order=True)
class Entry:
    """A message in a queue; its place there is where it belongs."""

    place: int
    number: int = field(compare=False)
    size: int = field(compare=False)
    life: str | None = field(compare=False, default=None)
    deaths: list[tuple[str, str, int]] = field(compare=False, default_factory=list)
    queue: str = field(compare=False, default="")
    deliveries: int = field(compare=False, default=0)


class RemovalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="qs-model-")) / "store"
        self.number = self.place = 0
        self.killed = False
        self.ready: dict[str, list[Entry]] = {name: [] for name in KINDS}
        self.unacked: dict[int, Entry] = {}
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
        self.publisher, self.channel = self.store.channel(), self.store.channel()
        self.publisher.confirm_select()

    def close(self) -> None:
        self.store.close()
        self.publisher.close()
        self.channel.close()

    def teardown(self) -> None:
        self.close()
        shutil.rmtree(self.path.parent)

    @initialize()
    def declare(self) -> None:
        for name, each in KINDS.items():
            self.channel.queue_declare(name, durable=True, arguments=each.arguments)

    # -- the model ------------------------------------------------------------------------------

    def put(self, queue: str, entry: Entry) -> None:
        self.place += 1
        entry.place, entry.queue = self.place, queue
        self.ready[queue].append(entry)

    def is_over(self, queue: str) -> bool:
        each, ready = KINDS[queue], self.ready[queue]
        return (each.most is not None and len(ready) > each.most) or (
            each.most_bytes is not None and sum(entry.size for entry in ready) > each.most_bytes
        )

    def trim(self, queue: str) -> None:
        while not KINDS[queue].refuses and self.is_over(queue):
            self.bury(self.ready[queue].pop(0), "maxlen")

    def bury(self, entry: Entry, reason: str) -> None:
        """The end of a message in its queue: its dead letter goes on, unless it would go round."""
        target = KINDS[entry.queue].letters_to
        if target is None:
            return
        told = [death for death in entry.deaths if death[:2] == (entry.queue, reason)]
        others = [death for death in entry.deaths if death[:2] != (entry.queue, reason)]
        deaths = [(entry.queue, reason, told[0][2] + 1 if told else 1), *others]
        since = [death[1] for death in deaths]
        if target in [death[0] for death in deaths]:
            since = since[: [death[0] for death in deaths].index(target) + 1]
            if "rejected" not in since:
                return
        self.put(target, Entry(0, entry.number, entry.size, deaths=deaths))
        self.trim(target)

    def expire(self, queue: str) -> None:
        expired = [entry for entry in self.ready[queue] if entry.life == "0"]
        self.ready[queue] = [entry for entry in self.ready[queue] if entry.life != "0"]
        for entry in expired:
            self.bury(entry, "expired")

    def requeue(self, entry: Entry) -> None:
        most = KINDS[entry.queue].deliveries
        if most is not None and entry.deliveries + 1 > most:
            self.bury(entry, "delivery_limit")
            return
        entry.deliveries += 1
        insort(self.ready[entry.queue], entry)

    def requeue_all(self) -> None:
        for tag in sorted(self.unacked):
            self.requeue(self.unacked.pop(tag))
        for name in KINDS:
            self.trim(name)

    # -- publishing -----------------------------------------------------------------------------

    def new(self, size: int, life: str | None) -> tuple[Entry, bytes]:
        self.number += 1
        body = b"%04d" % self.number
        return Entry(0, self.number, size, life), body.ljust(size, b".")

    def offer(self, queue: str, entry: Entry) -> bool:
        """Whether the queue takes it."""
        self.put(queue, entry)
        if KINDS[queue].refuses and self.is_over(queue):
            self.bury(self.ready[queue].pop(), "maxlen")
            return False
        return True

    @rule(queue=sources, size=sizes, life=lives)
    def publish(self, queue: str, size: int, life: str | None) -> None:
        entry, body = self.new(size, life)
        properties = pyqstore.Properties(delivery_mode=2, expiration=life)
        self.publisher.basic_publish("", queue, body, properties)
        assert self.publisher.wait_for_confirms() == self.offer(queue, entry)
        self.trim(queue)
        self.expire(queue)

    @rule(queue=sources, rows=st.lists(sizes, min_size=1, max_size=8))
    def publish_batch(self, queue: str, rows: list[int]) -> None:
        made = [self.new(size, None) for size in rows]
        frame = pa.record_batch({"body": pa.array([body for _, body in made], pa.binary())})
        self.publisher.publish_batch(frame, "", queue)
        taken = [self.offer(queue, entry) for entry, _ in made]
        assert self.publisher.wait_for_confirms() == all(taken)
        self.trim(queue)

    # -- receiving ------------------------------------------------------------------------------

    def pop(self, message: pyqstore.Message, queue: str) -> Entry:
        """The delivered message; what is in the last queue comes from everywhere, in any order."""
        number, ready = int(message.body[:4]), self.ready[queue]
        index = [e.number for e in ready].index(number) if queue == "dead" else 0
        entry = ready.pop(index)
        assert entry.number == number
        assert len(message.body) == entry.size
        headers = message.properties.headers or {}
        deaths: Any = headers.get("x-death", [])
        told = [(death["queue"], death["reason"], death["count"]) for death in deaths]
        assert told == entry.deaths
        assert message.properties.expiration == entry.life
        return entry

    @rule(queue=queues, auto_ack=st.booleans())
    def get(self, queue: str, auto_ack: bool) -> None:
        # Nobody knows after a SIGKILL how often a message was delivered before.
        auto_ack = auto_ack or (self.killed and queue == "limit")
        message = self.channel.basic_get(queue, auto_ack)
        if not self.ready[queue]:
            assert message is None
            return
        assert message is not None
        entry = self.pop(message, queue)
        if not auto_ack:
            self.unacked[message.delivery_tag] = entry

    @precondition(lambda self: bool(self.unacked))
    @rule(data=st.data(), what=st.sampled_from(("ack", "reject", "requeue")), several=st.booleans())
    def settle(self, data: st.DataObject, what: str, several: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.unacked)))
        tags = [each for each in sorted(self.unacked) if each <= tag] if several else [tag]
        if what == "ack":
            self.channel.basic_ack(tag, several)
        else:
            self.channel.basic_nack(tag, several, requeue=what == "requeue")
        for entry in [self.unacked.pop(each) for each in tags]:
            if what == "reject":
                self.bury(entry, "rejected")
            elif what == "requeue":
                self.requeue(entry)
        for name in KINDS:
            self.trim(name)

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        assert self.channel.queue_purge(queue) == len(self.ready[queue])
        self.ready[queue].clear()

    # -- restarts -------------------------------------------------------------------------------

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule()
    def reopen(self) -> None:
        self.close()
        self.requeue_all()
        self.open()
        self.declare()

    @rule()
    def kill(self) -> None:
        self.killed = True
        self.store.sync()
        copy = self.path.with_name(f"{self.path.name}'")
        copy_store(self.path, copy)
        self.close()
        shutil.rmtree(self.path)
        self.path = copy
        for tag in sorted(self.unacked):
            entry = self.unacked.pop(tag)
            insort(self.ready[entry.queue], entry)
        for name in KINDS:
            self.trim(name)
        self.open()
        self.declare()

    def told_counts(self) -> dict[str, tuple[int, int]]:
        """By the store, of each queue: ready and unacked ones."""
        told: dict[str, Any] = {name: self.store.queue_status(name) for name in self.ready}
        return {
            name: (status["messages_ready"], status["messages_unacked"])
            for name, status in told.items()
        }

    @invariant()
    def counts_agree(self) -> None:
        expected = {
            name: (len(ready), sum(entry.queue == name for entry in self.unacked.values()))
            for name, ready in self.ready.items()
        }
        end = time.monotonic() + 60
        while (told := self.told_counts()) != expected and time.monotonic() < end:
            time.sleep(0.001)
        assert told == expected


TestRemovals = RemovalMachine.TestCase
TestRemovals.settings = model_settings(80, 50)
