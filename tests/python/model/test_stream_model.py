"""Streams are lists that lose their beginning.

Hypothesis makes up what happens to streams with and without limits, in a store with a tiny budget
and frequent checkpoints that is closed and killed in between.  The model of a stream is the list of
all that was published to it: a row's offset is its index, for ever.  What is read, from any start
to any stop, with and without a filter, by readers and by groups, is a part of that list.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pyqstore

from .copies import copy_store
from .sizes import model_settings

KEPT = 50
DECLARED: dict[str, dict[str, int]] = {
    "all": {},
    "counted": {"max_messages": KEPT, "segment_bytes": 20_000},
    "sized": {"max_length_bytes": 60_000, "segment_bytes": 20_000},
}
GROUP = "readers"
KEYS = ("eu.rome", "eu.oslo", "us.nyc")
PATTERNS = {"eu.#": KEYS[:2], "*.nyc": KEYS[2:], "us.nyc": KEYS[2:], "asia.#": ()}

streams = st.sampled_from(sorted(DECLARED))
sizes = st.sampled_from((0, 10, 90, 300, 2500, 6000))
keys = st.sampled_from((None, *KEYS))
places = st.floats(0, 1)


class Log:
    """What a stream has had since it was declared."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, str]] = []
        self.times: dict[int, datetime] = {}
        self.first = 0
        self.committed: int | None = None


class StreamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="qs-streams-"))
        self.path = self.folder / "0"
        self.copies = 0
        self.number = 0
        self.store: pyqstore.Store | None = None
        self.logs = {name: Log() for name in DECLARED}

    @initialize(embed_below=st.sampled_from((1, 100, 4096, 2**20)))
    def begin(self, embed_below: int) -> None:
        self.options: dict[str, Any] = {
            "sync": "none",
            "memory_budget": "64KiB",
            "embed_below": embed_below,
            "checkpoint_bytes": "128KiB",
            "checkpoint_interval": None,
            "journal_file_bytes": "64KiB",
            "message_file_bytes": "64KiB",
        }
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.streams = {name: self.store.stream(name, **DECLARED[name]) for name in DECLARED}

    def teardown(self) -> None:
        try:
            if self.store is not None and sys.exc_info()[0] is None:
                for name in DECLARED:
                    self.check_all(name)
        finally:
            if self.store is not None:
                self.store.close()
            shutil.rmtree(self.folder)

    # What is there.

    @contextlib.contextmanager
    def kept(self, name: str, offset: int) -> Iterator[None]:
        """Retention works beside: it alone may drop this offset meanwhile."""
        try:
            yield
        except pyqstore.OffsetOutOfRange:
            assert self.streams[name].first > offset

    def check(
        self, name: str, reader: pa.RecordBatchReader, start: int, stop: int | None = None
    ) -> None:
        log, table = self.logs[name], reader.read_all()
        wanted = list(range(start, len(log.rows) if stop is None else stop))
        assert table["offset"].to_pylist() == wanted
        self.check_rows(log, table)

    def check_all(self, name: str) -> None:
        first = self.streams[name].first
        with self.kept(name, first):
            self.check(name, self.streams[name].read(first), first)
        with self.kept(name, first):
            offsets = self.streams[name].read("first").read_all()["offset"].to_pylist()
            assert offsets == list(range(len(self.logs[name].rows)))[-len(offsets) :]
            assert len(offsets) >= len(self.logs[name].rows) - self.streams[name].first

    def check_rows(self, log: Log, table: pa.Table) -> None:
        for row in table.select(["offset", "timestamp", "routing_key", "body"]).to_pylist():
            assert (row["body"], row["routing_key"]) == log.rows[row["offset"]]
            assert log.times.setdefault(row["offset"], row["timestamp"]) == row["timestamp"]
        times = table["timestamp"].to_pylist()
        assert times == sorted(times)

    def offset(self, name: str, place: float) -> int:
        """An offset that is kept, or the next one."""
        stream = self.streams[name]
        return stream.first + round(place * (stream.next - stream.first))

    # Publishing.

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%06d" % self.number + b"." * size

    @rule(name=streams, size=sizes, key=keys)
    def publish(self, name: str, size: int, key: str | None) -> None:
        body = self.body(size)
        self.streams[name].publish(body, key=key or "")
        self.logs[name].rows.append((body, key or name))

    @rule(name=streams, keyed=st.booleans(), checkpoints=st.booleans())
    def fill(self, name: str, keyed: bool, checkpoints: bool) -> None:
        """Some segments, of which retention may drop those in front."""
        for count in (20, 40, 60):
            self.publish_batch(name, count, 2500, keyed)
        if checkpoints:
            self.checkpoint()

    @rule(name=streams, count=st.integers(1, 60), size=sizes, keyed=st.booleans())
    def publish_batch(self, name: str, count: int, size: int, keyed: bool) -> None:
        bodies = [self.body(size) for _ in range(count)]
        used = [KEYS[index % len(KEYS)] if keyed else name for index in range(count)]
        columns = {"body": bodies, **({"routing_key": used} if keyed else {})}
        self.streams[name].publish_batch(pa.table(columns))
        self.logs[name].rows.extend(zip(bodies, used, strict=True))

    # Reading.

    @rule(name=streams, begin=places, end=places)
    def read(self, name: str, begin: float, end: float) -> None:
        start, stop = sorted((self.offset(name, begin), self.offset(name, end)))
        with self.kept(name, start):
            self.check(name, self.streams[name].read(start, stop), start, stop)

    @rule(name=streams)
    def read_all(self, name: str) -> None:
        self.check_all(name)
        assert self.streams[name].read("next").read_all().num_rows == 0

    @rule(name=streams, pattern=st.sampled_from(sorted(PATTERNS)))
    def read_some_keys(self, name: str, pattern: str) -> None:
        log, first = self.logs[name], self.streams[name].first
        wanted = [
            offset
            for offset, (_, key) in enumerate(log.rows)
            if offset >= first and key in PATTERNS[pattern]
        ]
        with self.kept(name, first):
            table = self.streams[name].read(first, routing_keys=[pattern]).read_all()
            assert table["offset"].to_pylist() == wanted
            self.check_rows(log, table)

    @rule(name=streams, place=places)
    def read_what_was_dropped(self, name: str, place: float) -> None:
        first = self.streams[name].first
        if first > 0:
            with pytest.raises(pyqstore.OffsetOutOfRange):
                self.streams[name].read(int(place * (first - 1)))

    @rule(name=streams, place=places)
    def seek_a_time(self, name: str, place: float) -> None:
        """The first message of that time; of those before it, some may have been seen."""
        log, stream = self.logs[name], self.streams[name]
        first, offset = stream.first, self.offset(name, place)
        if offset in log.times:
            found = stream.offset_at(log.times[offset])
            assert first <= found <= max(offset, stream.first)
            assert all(
                log.times.get(i, log.times[offset]) == log.times[offset]
                for i in range(found, offset)
            )
            assert log.times.get(found - 1) != log.times[offset] or found <= stream.first

    # Groups.

    def polled(self, consumer: pyqstore.StreamConsumer, name: str, count: int) -> int | None:
        """How far the group is behind what it was given."""
        log, first = self.logs[name], self.streams[name].first
        start = first if log.committed is None else max(log.committed, first)
        batch = consumer.poll(max_rows=count, timeout=0)
        if len(batch) == 0:
            assert start == len(log.rows)
            return None
        offsets = batch["offset"].to_pylist()
        if offsets[0] != start:  # retention alone may have dropped what is before
            assert start < offsets[0] <= self.streams[name].first
            start = offsets[0]
        assert offsets == list(range(start, start + len(offsets)))
        self.check_rows(log, pa.Table.from_batches([batch]))
        return start + len(offsets)

    @rule(name=streams, count=st.integers(1, 80), commits=st.booleans())
    def poll(self, name: str, count: int, commits: bool) -> None:
        assert self.store is not None
        with self.store.stream_consumer(name, GROUP, reset="first") as consumer:
            position = self.polled(consumer, name, count)
            if commits and position is not None:
                consumer.commit()
                self.logs[name].committed = position

    @rule(name=streams, into=streams, count=st.integers(1, 80), commits=st.booleans())
    def read_process_write(self, name: str, into: str, count: int, commits: bool) -> None:
        """Results and offsets, both or neither."""
        assert self.store is not None
        with (
            self.store.stream_consumer(name, GROUP, reset="first") as consumer,
            self.store.channel() as channel,
            contextlib.suppress(KeyError),
        ):
            position = self.polled(consumer, name, count)
            if position is None:
                return
            body = self.body(100)
            with channel.transaction() as tx:
                tx.publish_batch(pa.table({"body": [body]}), "", into)
                tx.commit_offsets(consumer)
                if not commits:
                    raise KeyError
            self.logs[into].rows.append((body, into))
            self.logs[name].committed = position

    # The store.

    @rule()
    def checkpoint(self) -> None:
        assert self.store is not None
        self.store.checkpoint()

    @rule()
    def reopen(self) -> None:
        assert self.store is not None
        self.store.close()
        self.open()

    @rule()
    def kill(self) -> None:
        """Go on with a copy of the directory, as after a SIGKILL."""
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

    @precondition(lambda self: self.number > 500)
    @rule(name=streams)
    def delete_and_declare(self, name: str) -> None:
        assert self.store is not None
        self.streams[name].delete()
        self.logs[name] = Log()
        self.streams[name] = self.store.stream(name, **DECLARED[name])

    @invariant()
    def offsets_and_limits_hold(self) -> None:
        if self.store is None:
            return
        for name, log in self.logs.items():
            status = self.streams[name].status()
            assert status.next == len(log.rows)
            assert log.first <= status.first <= status.next
            log.first = status.first
            if name == "all":
                assert status.first == 0
            if name == "counted":
                assert status.next - status.first >= min(KEPT, status.next)
            assert status.cursors == (log.committed is not None)


TestStreams = StreamMachine.TestCase
TestStreams.settings = model_settings(60, 50)
