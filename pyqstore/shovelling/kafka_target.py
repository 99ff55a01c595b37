"""A topic of Kafka as a target of a queue: each message at least once.

A producer that is idempotent sends again by itself what a broker has not confirmed, and nothing is
there twice then.  What it gave up is sent again by another producer, which knows nothing of that.

A broker refuses all messages that it got together, though it means one.  So each is sent alone once
more: of a single one on its way it is certain.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .ends import LARGE_BATCH, Batch, Later, Linked, Position, Refused, Target
from .kafka_address import KafkaPlace
from .kafka_link import Link
from .kafka_messages import RECORDS, record_of

__all__ = ["CONFIRM_S", "WATCH_S", "KafkaTarget", "Sent"]

CONFIRM_S = 60.0  # after which a producer that has no confirm is given up
WATCH_S = 0.2  # between two looks at whether to stop
_BATCH_BYTES = 1_000_000  # of messages that are sent together: librdkafka's default
_HEAD_BYTES = 512  # beside the messages
# Errors that are over a message, or over one of those beside it.
_REFUSALS = (
    "MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "INVALID_TIMESTAMP",
    "RECORD_LIST_TOO_LARGE", "POLICY_VIOLATION", "_INVALID_ARG",
)  # fmt: skip
_PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")


@dataclass
class Sent:
    """A batch on its way."""

    batch: Batch
    open: int
    """How many are not answered."""
    refused: dict[int, str] = field(default_factory=dict)
    unclear: str = ""
    """Why messages were refused, which may be over others."""
    failed: Exception | None = None
    purged: Exception | None = None
    """Messages went with others that failed."""

    @property
    def is_good(self) -> bool:
        """Nothing failed until now."""
        return not (self.refused or self.unclear or self.failed or self.purged)


class KafkaTarget(Linked[Link], Target):
    """Records are as of ``record_of``."""

    most: int = LARGE_BATCH
    keeps_position: bool = False
    may_forget: bool = False
    buries: bool = False

    def __init__(self, place: KafkaPlace) -> None:
        """See Link."""
        self.shown: str = place.shown
        self._topic = place.topic
        self._given = dict(place.options)
        self._link = Link(place)
        self._producer: Any = None
        self._sent: deque[Sent] = deque()
        self._alone = 0
        """Of how many batches each message is sent alone."""

    def open(self) -> Position | None:
        """As of Target.  NotFound: there is no such topic."""
        self.close()
        self._link.open()
        self._new_producer()
        return None

    def _new_producer(self) -> None:
        self._producer = self._link.client("Producer", self._options())

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": round(CONFIRM_S * 1000),
            "allow.auto.create.topics": False,
        }
        most = self._link.message_bytes_max()
        if most is not None and "message.max.bytes" not in self._given:
            options["message.max.bytes"] = min(max(1000, most), 1_000_000_000)
            if "batch.size" not in self._given:
                options["batch.size"] = max(1, min(_BATCH_BYTES, most - _HEAD_BYTES))
        return options

    def _indices(self, batch: Batch) -> list[int]:
        """What is to be sent."""
        if not (batch.done or batch.dead):
            return list(range(len(batch.items)))
        return [
            index
            for index in range(len(batch.items))
            if index not in batch.done and index not in batch.dead
        ]

    def begin(self, batch: Batch) -> None:
        """As of Target."""
        self._check()
        indices = self._indices(batch)
        sent = Sent(batch, len(indices))
        self._sent.append(sent)
        with self._link.told():
            self._send_all(sent, indices, self._alone > 0)
            if sent.refused:
                self._drain()
                raise Refused(batch, sent.refused)
            self._producer.poll(0)
        if indices:
            self._alone = max(0, self._alone - 1)

    def _send_all(self, sent: Sent, indices: list[int], is_alone: bool) -> None:
        items, done, at = sent.batch.items, sent.batch.done, 0
        answered = partial(self._answered, is_alone=False)
        while at < len(indices):
            if not is_alone:
                at = RECORDS.produce(
                    self._producer, self._topic, items, indices, at, sent, done, answered
                )
            if at < len(indices):
                self._send(sent, indices[at], is_alone)
                at += 1

    def _send(self, sent: Sent, index: int, is_alone: bool) -> None:
        try:
            record = record_of(sent.batch.items[index])
            self._produce(sent, index, record, is_alone)
        except (ValueError, TypeError) as error:
            self._refuse(sent, index, str(error))
        except self._link.kafka.KafkaException as error:
            self._answered(sent, index, error.args[0], is_alone=True)
        if is_alone:
            self._drain()

    def _produce(self, sent: Sent, index: int, record: Any, is_alone: bool) -> None:
        told = partial(self._answered, sent, index, is_alone=is_alone)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    on_delivery=told,
                    timestamp=record.timestamp,
                    headers=record.headers,
                )
                return
            except BufferError:  # there are too many on their way
                self._producer.poll(WATCH_S)
                self._link.watch()

    def _refuse(self, sent: Sent, index: int, why: str) -> None:
        sent.open -= 1
        sent.refused[index] = f"{self.shown}: {why}"

    def _answered(
        self, sent: Sent, index: int, error: Any, _message: Any = None, *, is_alone: bool
    ) -> None:
        """A message is there, or is not."""
        if error is None:
            sent.open -= 1
            sent.batch.done.add(index)
        elif error.name() in _PURGED:
            sent.open -= 1
            sent.purged = self._link.trouble_of(error)
        elif error.name() not in _REFUSALS:
            sent.open -= 1
            sent.failed = sent.failed or self._link.trouble_of(error)
        elif is_alone:
            self._refuse(sent, index, f"{error.str()} ({error.name()})")
        else:
            sent.open -= 1
            sent.unclear = f"{self.shown}: {error.str()} ({error.name()})"

    def _drain(self) -> None:
        """Return when all that is on its way is answered.  Later."""
        until = time.monotonic() + CONFIRM_S + WATCH_S
        while self._producer.flush(WATCH_S) > 0:
            self._check()
            self._link.watch()
            if time.monotonic() > until:
                raise Later(f"{self.shown}: no confirm for {CONFIRM_S:.0f} s")

    def _check(self) -> None:
        """ShovelError, Later: what the producer tells.  It finds brokers again by itself."""
        self._link.forgive()
        self._link.check()

    def ended(self, timeout: float) -> Batch | None:
        """As of Target."""
        with self._link.told():
            return self._ended(timeout)

    def _ended(self, timeout: float) -> Batch | None:
        self._producer.poll(0)
        self._check()
        sent = self._sent[0] if self._sent else None
        if sent is None:
            return None
        until = time.monotonic() + timeout
        while sent.open > 0 and (left := until - time.monotonic()) > 0:
            self._producer.poll(left)
        if sent.open > 0:
            return None
        if not sent.is_good:
            self._give_up(sent)
        self._sent.popleft()
        return sent.batch

    def _give_up(self, sent: Sent) -> None:
        """Not all of it was taken.  What else is on its way is waited for, so that it is not sent
        twice."""
        if sent.unclear:
            self._alone = len(self._sent)
        self._drain()
        if sent.refused:
            raise Refused(sent.batch, sent.refused)
        raise sent.failed or sent.purged or Later(sent.unclear)

    def tend(self, _seconds: float) -> None:
        """librdkafka's threads do what has to be done."""

    def close(self) -> None:
        """As of Target."""
        self._sent.clear()
        self._drop_producer()
        self._link.close()

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(self._link.kafka.KafkaException):
                producer.purge()
                producer.flush(0)
