"""A topic of Kafka as a source: the target remembers how far each partition is.

No group of Kafka's decides anything.  The offsets are told to one, for Kafka's own tools.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

from ..errors import Error, OffsetOutOfRange, ShovelError
from ..stream import Start
from .ends import (
    LARGE_BATCH,
    RECORD_PLACE,
    Batch,
    Item,
    Later,
    Linked,
    Offsets,
    Position,
    Source,
)
from .kafka_address import KafkaPlace
from .kafka_link import GROUP, Link, Topic
from .kafka_messages import RECORDS, item_of

__all__ = ["KafkaSource"]

_LOOK_S = 5.0  # between two looks at the topic: at new partitions, and whether it is the same
_TELL_S = 1.0  # between two times that Kafka is told the offsets
_LAST_S = 1.0  # that it waits for Kafka's answer in the end
_FIRST_S = 10.0  # for the first answer of each partition
_AHEAD_KBYTES = 16_384  # of messages that are read and not asked for
_POLL_MS = 24 * 60 * 60 * 1000  # without a read; a full target may take long
_OPTIONS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "max.poll.interval.ms": _POLL_MS,
}
_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class KafkaSource(Linked[Link], Source):
    """Messages stay in the topic."""

    is_stream: bool = True
    most: int = LARGE_BATCH

    def __init__(self, place: KafkaPlace, *, shovel: str, start: Start) -> None:
        """See Link."""
        self.shown: str = place.shown
        self._topic = place.topic
        self._start = start
        self._group = GROUP + shovel
        self._given = dict(place.options)
        self._link = Link(place)
        self._consumer: Any = None
        self._known = Topic("", ())
        self._next: dict[int, int] = {}
        """By partition, behind what was read."""
        self._first: Offsets | None = None
        """Where it began: ``--start`` is asked for once, for what comes later is to be moved."""
        self._noted: dict[int, int] | None = None
        """What the latest batch has of ``_next``; None: nothing is noted yet."""
        self._wrong: Exception | None = None
        """It ended a batch that had messages already; the next read raises it."""
        self._ends: dict[int, int] = {}
        """Where a partition's end was found; marks of transactions may be before it."""
        self._ready: deque[Any] = deque()
        self._unreadable: Exception | None = None
        """What the first of these has raised: it crashes when it is asked again."""
        self._is_whole = False
        """Each partition was read to an end once; before, that nothing comes tells nothing."""
        self._epoch = 0
        self._asked: Future[Any] | None = None
        self._look_at = 0.0
        self._told: Offsets | None = None
        """What Kafka is to be told."""
        self._tell_at = 0.0
        self._telling: Future[Any] | None = None

    def open(self, position: Position | None) -> None:
        """As of Source.  NotFound; OffsetOutOfRange: the topic has dropped what was not moved."""
        self.close()
        self._epoch += 1
        self._known = self._link.open()
        self._next = self._begin(position)
        self._noted = None if position is None else dict(self._next)
        self._ends.clear()
        self._is_whole = False
        options = {"queued.max.messages.kbytes": _AHEAD_KBYTES, **self._given}
        self._consumer = self._link.client(
            "Consumer", {**options, **_OPTIONS, "group.id": self._group}
        )
        with self._link.told():
            self._consumer.assign([self._place(each) for each in self._known.partitions])
        self._look_at = time.monotonic() + _LOOK_S

    def _place(self, partition: int) -> Any:
        kafka = self._link.kafka
        offset = self._next.get(partition, kafka.OFFSET_BEGINNING)
        return kafka.TopicPartition(self._topic, partition, offset)

    def _begin(self, position: Position | None) -> dict[int, int]:
        if position is None:
            if self._first is None:
                began = self._started()
                self._first = Offsets(self._known.id, began, self._topic)
                return dict(began)
            position = self._first
        if not isinstance(position, Offsets):
            raise ShovelError(f"this shovel has read a stream, not {self.shown}: give another name")
        if position.topic != self._topic:
            raise ShovelError(
                f"this shovel has read the topic {position.topic}, not {self.shown}: give another"
                " name"
            )
        self._check_same(position.topic_id)
        offsets = dict(position.of)
        self._check_range(offsets)
        return offsets

    def _started(self) -> dict[int, int]:
        """Where to begin the first time."""
        partitions, spec, start = self._known.partitions, self._link.spec, self._start
        if isinstance(start, int):
            offsets = dict.fromkeys(partitions, start)
            self._check_range(offsets)
            return offsets
        ends = [each.offset for each in self._link.offsets(spec.latest(), partitions)]
        if start == "next":
            return dict(zip(partitions, ends, strict=True))
        firsts = [each.offset for each in self._link.offsets(spec.earliest(), partitions)]
        if start == "first":
            found = firsts
        elif start == "last":
            pairs = zip(firsts, ends, strict=True)
            found = [max(first, end - 1) for first, end in pairs]
        else:
            at = spec.for_timestamp(_milliseconds(start))
            times = [each.offset for each in self._link.offsets(at, partitions)]
            # A partition without a message of that time or later is read from its end.
            pairs = zip(times, ends, strict=True)
            found = [offset if offset >= 0 else end for offset, end in pairs]
        return dict(zip(partitions, found, strict=True))

    def _check_same(self, topic_id: str) -> None:
        if topic_id and self._known.id and topic_id != self._known.id:
            raise ShovelError(
                f"{self.shown} was deleted and made again: to move what is in it now, give the"
                " shovel another name"
            )

    def _check_range(self, offsets: dict[int, int]) -> None:
        """OffsetOutOfRange: retention has dropped messages that were not moved.  ShovelError: a
        topic has lost its end, or partitions."""
        if gone := sorted(offsets.keys() - set(self._known.partitions)):
            raise ShovelError(f"{self.shown} has no partition {gone[0]} any more")
        spec = self._link.spec
        firsts = self._link.offsets(spec.earliest(), offsets)
        ends = self._link.offsets(spec.latest(), offsets, committed=False)
        for (partition, offset), first, end in zip(offsets.items(), firsts, ends, strict=True):
            if not first.offset <= offset <= end.offset:
                shown = f"{self.shown} partition {partition}"
                raise OffsetOutOfRange(first.offset, end.offset, shown)

    def read(self, most: int, bytes_most: int, timeout: float) -> Batch | None:
        """As of Source.  A batch without messages has a place to note: where the shovel begins, or,
        while nothing else is to be done, behind marks of transactions, which retention may drop."""
        wrong, self._wrong = self._wrong, None
        if wrong is not None:
            raise wrong
        self._look()
        if self._noted is None:
            return self._batch([])
        until = time.monotonic() + _FIRST_S
        items = self._take(most, bytes_most, timeout)
        # A cluster may take some time for the first messages: nothing is no answer yet.
        while not items and timeout > 0 and not self._is_whole:
            self.watch()
            items = self._take(most, bytes_most, timeout)
            if time.monotonic() > until:
                self._is_whole = True
        if not items and (timeout <= 0 or self._next == self._noted):
            return None
        return self._batch(items)

    def _batch(self, items: list[Item]) -> Batch:
        self._noted = dict(self._next)
        position = Offsets(self._known.id, dict(self._next), self._topic)
        return Batch(items, self._epoch, position)

    def _take(self, most: int, bytes_most: int, timeout: float) -> list[Item]:
        ready = self._ready
        items: list[Item] = []
        size = 0
        if not ready:
            self._fetch(most, timeout)
        while ready and len(items) < most and size < bytes_most:
            if self._unreadable is None:
                taken = RECORDS.take(ready, items, most, size, bytes_most, self._next)
                size, self._unreadable = taken
            if ready and len(items) < most and size < bytes_most:
                item_bytes = self._take_unusual(items)
                if item_bytes is None:
                    break
                size += item_bytes
            if items and not ready and len(items) < most:
                try:
                    self._fetch(most - len(items), 0.0)
                except (Later, Error) as error:
                    self._wrong = error
        return items

    def _take_unusual(self, items: list[Item]) -> int | None:
        """Append an item for the first that is ready, if it is a message.  Returns its bytes; None:
        it is in trouble, and what came before it is good."""
        message = self._ready[0]
        is_error = message.error() is not None
        if items and (is_error or self._unreadable is not None):
            return None
        if is_error:
            self._take_error(self._ready.popleft())
            return 0
        try:
            item = self._item(message)
        except (ValueError, TypeError, SystemError) as error:
            if items:
                self._unreadable = error
                return None
            raise self._cannot_read(message, error) from None
        self._ready.popleft()
        items.append(item)
        self._next[message.partition()] = message.offset() + 1
        return len(item.body) + len(item.properties)

    def _item(self, message: Any) -> Item:
        if self._unreadable is not None:
            raise self._unreadable
        kind, timestamp = message.timestamp()
        if kind == 0:  # TIMESTAMP_NOT_AVAILABLE
            timestamp = -1
        item = item_of(message.key(), message.value(), timestamp, message.headers())
        return item._replace(place=RECORD_PLACE.pack(message.partition(), message.offset()))

    def _cannot_read(self, message: Any, error: Exception) -> ShovelError:
        place = f"partition {message.partition()}, offset {message.offset()}"
        # confluent-kafka raises the one for what is in the other.
        told = error.__cause__ if isinstance(error, SystemError) else error
        return ShovelError(f"{self.shown}, {place}: headers cannot be read: {told}")

    def _fetch(self, most: int, timeout: float) -> None:
        """Messages that are here, or the first that comes."""
        consumer, ready = self._consumer, self._ready
        with self._link.told():
            ready.extend(consumer.consume(most, 0))
            if not ready and timeout > 0 and (first := consumer.poll(timeout)) is not None:
                ready.append(first)
        if ready:
            self._link.forgive()
        self._link.check()

    def _take_error(self, message: Any) -> None:
        error = message.error()
        name = error.name()
        if name == "_PARTITION_EOF":
            partition, end = message.partition(), message.offset()
            self._ends[partition] = end
            self._next[partition] = max(end, self._next.get(partition, 0))
            self._is_whole = self._is_whole or self._ends.keys() >= set(self._known.partitions)
            return
        if name in _GONE:
            before, self._known = self._known, self._link.topic_of(self._link.described())
            self._check_same(before.id)
            self._check_range(self._next)
        raise self._link.trouble_of(error)

    def _look(self) -> None:
        """Now and then: are there new partitions, and is the topic the same?"""
        now = time.monotonic()
        if self._told is not None and now >= self._tell_at:
            self._tell()
        if self._asked is None:
            if now >= self._look_at:
                self._asked = self._link.described()
            return
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._look_at = now + _LOOK_S
        try:
            told = self._link.topic_of(asked)
        except (Later, Error):
            return  # a read tells, too, or to open again
        before, self._known = self._known, told
        self._check_same(before.id)
        fresh = sorted(set(told.partitions) - set(before.partitions))
        if fresh:
            with self._link.told():
                self._consumer.incremental_assign([self._place(each) for each in fresh])

    def settle(self, batch: Batch) -> None:
        """As of Source: Kafka is told now and then, as a courtesy."""
        if batch.epoch == self._epoch and isinstance(batch.position, Offsets):
            self._told = batch.position

    def _tell(self) -> None:
        """The answer is not waited for.  A consumer would wait for it when it is closed."""
        told, self._told = self._told, None
        self._tell_at = time.monotonic() + _TELL_S
        if told is not None:
            self._telling = self._link.tell_group(self._group, told.of)

    def tend(self, _seconds: float) -> None:
        """librdkafka's threads do what has to be done."""

    def lag(self) -> int | None:
        """As of Source."""
        if self._consumer is None:
            return None
        kafka = self._link.kafka
        waiting = 0
        for partition in self._known.partitions:
            place = kafka.TopicPartition(self._topic, partition)
            with self._link.told():
                first, end = self._consumer.get_watermark_offsets(place, cached=True)
            if end < 0:
                return None  # nothing was fetched of it yet
            at = max(self._next.get(partition, first), self._ends.get(partition, 0))
            waiting += max(0, end - at)
        return waiting

    def close(self) -> None:
        """As of Source.  In a second or so, whatever the cluster does."""
        self._ready.clear()
        self._asked = self._wrong = self._unreadable = None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._tell()
            with contextlib.suppress(Exception):
                consumer.close()
        telling, self._telling = self._telling, None
        if telling is not None:
            wait_for([telling], _LAST_S)
        self._link.close()


def _milliseconds(start: object) -> int:
    """Since 1970."""
    if isinstance(start, datetime.timedelta):
        start = datetime.datetime.now(datetime.UTC) - start
    if not isinstance(start, datetime.datetime):
        raise ValueError(f"{start!r} is no place in a topic")
    return int(start.timestamp() * 1000)
