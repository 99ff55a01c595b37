"""A store at work that is archived, and what it had at each moment."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import pyqstore
from pyqstore.archives import Archived, Choices, Restored, archive
from pyqstore.backups import Target

from .support import PERSISTENT, wait_until

QUICK = Choices(part_seconds=0.1)
OPTIONS: dict[str, Any] = {"journal_file_bytes": "64KiB", "message_file_bytes": "64KiB"}
STREAM = {"x-queue-type": "stream", "x-max-length-bytes": 300_000}
STREAM["x-stream-max-segment-size-bytes"] = 50_000
ROWS = 300  # of a batch, which without an archive would be written into the stream's file
State = dict[str, list[bytes]]


class Noted(NamedTuple):
    lsn: int
    queues: State
    kept: int
    """Messages of the stream."""
    time: datetime


@dataclass
class Running:
    """An archive in a thread."""

    reports: list[Archived] = field(default_factory=list)
    ended: list[Archived | BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def last(self) -> Archived:
        return self.reports[-1]

    def wait_for_all(self, store: pyqstore.Store) -> None:
        """What is durable now is archived, and can be restored."""
        lsn = store._durable_lsn()
        begun = len(self.reports)

        def is_there() -> bool:
            assert not self.ended, self.ended
            return any(
                each.restorable and each.lag_bytes == 0 for each in self.reports[begun:]
            ) and (store._durable_lsn() >= lsn)

        wait_until(is_there)


@contextmanager
def archived(
    store: pyqstore.Store, target: Target, choices: Choices = QUICK, based: bool = True
) -> Iterator[Running]:
    """``based``: not before there is a base."""
    running = Running()

    def run() -> None:
        try:
            running.ended.append(
                archive(store, target, running.stop, choices, running.reports.append)
            )
        except BaseException as error:
            running.ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        if based:
            wait_until(lambda: bool(running.ended or (running.reports and running.last.restorable)))
        yield running
    finally:
        running.stop.set()
        thread.join(60)
        assert not thread.is_alive()


class Work:
    """Each step is one transaction of the engine's; ``states`` has what the queues hold behind
    each, and how far the journal was then."""

    def __init__(self, store: pyqstore.Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.states: list[Noted] = []
        self.now: State = {"q": [], "dead": [], "s": []}
        self.count = 0
        self.channel = store.channel()
        self.channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.channel.queue_declare("q", durable=True, arguments=arguments)
        self.channel.queue_declare("s", durable=True, arguments=STREAM)
        self.note()

    def note(self) -> None:
        self.store.sync()
        queues = {name: list(bodies) for name, bodies in self.now.items()}
        kept = len(self.store.stream("s"))
        self.states.append(Noted(self.store._durable_lsn(), queues, kept, datetime.now(UTC)))

    def body(self, size: int) -> bytes:
        self.count += 1
        return b"%d " % self.count + bytes([self.count % 251]) * size

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        verb = self.random.choice(
            [self.publish] * 6
            + [self.publish_large] * 2
            + [self.take] * 4
            + [self.reject, self.batch, self.transaction, self.redeclare, self.purge]
        )
        verb()
        self.note()
        if self.random.random() < 0.05:
            self.store.checkpoint()

    def publish(self, size: int = 100) -> None:
        name = self.random.choice(["q", "q", "s"])
        body = self.body(size)
        self.channel.basic_publish("", name, body, PERSISTENT)
        self.now[name].append(body)

    def publish_large(self) -> None:
        self.publish(self.random.choice([5_000, 20_000, 100_000]))

    def take(self) -> None:
        if self.channel.basic_get("q", auto_ack=True) is not None:
            del self.now["q"][0]

    def reject(self) -> None:
        message = self.channel.basic_get("q")
        if message is not None:
            self.channel.basic_reject(message.delivery_tag, requeue=False)
            self.now["dead"].append(self.now["q"].pop(0))

    def batch(self) -> None:
        bodies = [self.body(400) for _ in range(ROWS)]
        columns = {"body": pa.array(bodies, pa.binary())}
        rows = pa.record_batch(columns)
        self.channel.publish_batch(rows, "", "s", properties=PERSISTENT)
        self.now["s"] += bodies

    def transaction(self) -> None:
        bodies = [self.body(size) for size in (50, 6_000, 50)]
        with self.channel.transaction():
            for body in bodies:
                self.channel.basic_publish("", "q", body, PERSISTENT)
        self.now["q"] += bodies

    def redeclare(self) -> None:
        self.channel.queue_delete("dead")
        self.now["dead"] = []
        self.note()
        self.channel.queue_declare("dead", durable=True)

    def purge(self) -> None:
        if self.random.random() < 0.2:
            self.channel.queue_purge("q")
            self.now["q"] = []


def held(path: Path) -> State:
    """What a restored store has; of streams from the first message that is kept."""
    assert pyqstore.verify(path).damages == 0
    with pyqstore.open(path, read_only=True) as store:
        return {
            name: [body for batch in store.browse(name) for body in batch["body"].to_pylist()]
            for name in store.queues()
        }


def is_state(found: State, state: State, kept: int) -> bool:
    """A restored stream may have more of its oldest messages than ``kept``, which it had."""
    stream, whole = found["s"], state["s"]
    return (
        all(found.get(name, []) == state[name] for name in ("q", "dead"))
        and stream == whole[len(whole) - len(stream) :]
        and len(stream) >= min(kept, len(whole))
    )


def check(path: Path, restored: Restored, work: Work) -> None:
    """The store is as it was at the moment that was restored."""
    found = held(path)
    first = restored.base.from_lsn if restored.parts == 0 else restored.lsn
    begin = max(at for at, each in enumerate(work.states) if each.lsn <= first)
    end = max(at for at, each in enumerate(work.states) if each.lsn <= restored.lsn) + 2
    possible = work.states[begin:end]
    kept = min(each.kept for each in possible)
    assert any(is_state(found, each.queues, kept) for each in possible)


class Faulty(Target):
    """Puts of it fail before they begin, or behind their end; leave half of the object and fail;
    take long; and come once more later, behind others."""

    def __init__(self, place: str, seed: int) -> None:
        super().__init__(place, create=True)
        self.random = random.Random(seed)
        self.is_away = False
        self.late: list[tuple[str, bytes]] = []
        self.counts: Counter[str] = Counter()

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        content = b"".join(parts)
        if self.is_away:
            raise OSError("it is away")
        fault = self.random.choice(["none"] * 6 + ["before", "behind", "torn", "slow", "late"])
        self.counts[fault] += 1
        if fault == "before":
            raise OSError("it failed before it began")
        if fault == "slow":
            time.sleep(0.05)
        if fault == "torn":
            super().put(name, [content[: len(content) // 2]])
            raise OSError("half of it is there")
        super().put(name, [content])
        if fault == "late":
            self.late.append((name, content))
        elif self.late and self.random.random() < 0.5:
            earlier, same = self.late.pop()
            super().put(earlier, [same])
        if fault == "behind":
            raise OSError("it is there, and nothing says so")
