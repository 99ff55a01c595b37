"""A topic of Kafka as a target of a stream: each message once, for readers of what is committed.

Messages and the offset to go on at, of a group of Kafka's, are one transaction.  A producer of the
same transactional.id ends those of an earlier one, and what that had not committed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..errors import ShovelError
from .ends import Batch, Later, Position, Refused, StreamOffset
from .kafka_address import KafkaPlace
from .kafka_link import GROUP_TO
from .kafka_target import CONFIRM_S, WATCH_S, KafkaTarget, Sent

__all__ = ["KafkaStreamTarget"]

_SET_UP_S = 60.0
_ABORT_S = 2.0
_TOKEN_BYTES = 8
_FENCED_S = 30.0
"""Between two times that a producer is fenced: a transaction that took too long, for which Kafka
does the same, took a minute."""
_NONE = -1  # an offset below is none


class KafkaStreamTarget(KafkaTarget):
    """Batches that are on their way together are one transaction."""

    keeps_position: bool = True
    may_forget: bool = True

    def __init__(self, place: KafkaPlace, *, shovel: str, source: str) -> None:
        """``source``: what no other stream is called."""
        super().__init__(place)
        self._shovel = shovel
        self._id = f"{GROUP_TO}{shovel}/{place.topic}"
        self._source = source
        self._mark = f"{source} {os.urandom(_TOKEN_BYTES).hex()}"
        """Stands beside each offset, and says whose it is."""
        self._seen = ""
        """The latest mark."""
        self._was_open = False
        self._fenced_at = float("-inf")
        self._consumer: Any = None
        self._position = _NONE
        self._is_begun = False
        """A transaction."""
        self._losses = 0
        """Of the link, when the producer was ready."""
        self._committed: deque[Batch] = deque()

    def _options(self) -> dict[str, Any]:
        return {
            **super()._options(),
            "transactional.id": self._id,
            "delivery.report.only.error": True,
        }

    def open(self) -> Position | None:
        """As of Target.  It ends the producer of an earlier shovel of this name."""
        self._check_fenced()
        self.close()
        self._link.open()
        if self._was_open:
            self._check_alone()
        self._new_producer()
        self._consumer = self._new_consumer("read_committed")
        found = self._noted(self._consumer)
        self._position = found.offset
        self._was_open = True
        if found.offset < 0:
            return None
        self._seen = found.metadata or ""
        if self._seen.split(" ")[0] != self._source:
            raise ShovelError(
                f"{self.shown}: the offset of the group {self._id!r} is of another stream, perhaps"
                " one that was deleted, or no shovel has written it: give this one another name"
            )
        return StreamOffset(found.offset, self._source)

    def _new_consumer(self, isolation: str) -> Any:
        options = {
            "group.id": self._id,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
        return self._link.client("Consumer", options)

    def _noted(self, consumer: Any) -> Any:
        """What the group has: offset and mark.  Later, ShovelError."""
        place = self._link.kafka.TopicPartition(self._topic, 0)
        found = self._until_done(lambda left: consumer.committed([place], left), _SET_UP_S)[0]
        if found.error is not None:
            raise self._link.trouble_of(found.error)
        return found

    def _check_alone(self) -> None:
        """ShovelError: another shovel of this name has committed since.  It goes on, so it must not
        be fenced.  Without waiting for a transaction that did not end, which may be this one's own.
        """
        consumer = self._new_consumer("read_uncommitted")
        try:
            found = self._noted(consumer)
        finally:
            with contextlib.suppress(self._link.kafka.KafkaException):
                consumer.close()
        if found.offset >= 0 and (found.metadata or "") not in (self._seen, self._mark):
            raise self._another()

    def _check_fenced(self) -> None:
        """One that was fenced ends the other, and if that does the same, one of them ends."""
        if not self._link.is_fenced:
            return
        self._link.is_fenced = False
        before, self._fenced_at = self._fenced_at, time.monotonic()
        if self._fenced_at - before < _FENCED_S:
            raise self._another()

    def _another(self) -> ShovelError:
        return ShovelError(f"another shovel named {self._shovel!r} works for {self.shown} just now")

    def _new_producer(self) -> None:
        super()._new_producer()
        self._until_done(self._producer.init_transactions, _SET_UP_S)
        self._producer.poll(0)  # servers of the address that do not answer are told now
        self._losses = self._link.losses

    def _drop_producer(self) -> None:
        """Who reads what is committed need not wait for an open transaction."""
        if self._is_begun:
            self._is_begun = False
            with contextlib.suppress(self._link.kafka.KafkaException):
                self._producer.abort_transaction(_ABORT_S)
        super()._drop_producer()

    def _until_done(self, call: Callable[[float], Any], seconds: float) -> Any:
        """A call of the client that may take long, in parts.  Later, ShovelError."""
        until = time.monotonic() + seconds
        while True:
            try:
                return call(WATCH_S * 5)
            except self._link.kafka.KafkaException as error:
                told = error.args[0]
                may_go_on = told.retriable() or told.name() == "_TIMED_OUT"
                if not may_go_on or time.monotonic() > until:
                    raise self._link.trouble_of(told) from None
            self._check()
            self._link.watch()

    def _indices(self, batch: Batch) -> list[int]:
        """What an earlier transaction had of it is there only if it was committed."""
        first = max(0, self._position - _offset(batch, 0))
        return [index for index in range(first, len(batch.items)) if index not in batch.dead]

    def begin(self, batch: Batch) -> None:
        """As of Target."""
        assert isinstance(batch.position, int)
        if batch.position <= self._position:  # the transaction was committed, as shows now
            self._committed.append(batch)
        elif self._alone > 0:
            with self._link.told():
                self._send_parts(batch, self._indices(batch), batch.position)
            self._committed.append(batch)
            self._alone -= 1
        else:
            with self._link.told():
                self._begin_transaction()
            super().begin(batch)

    def _begin_transaction(self) -> None:
        if self._is_begun:
            return
        self._producer.begin_transaction()
        self._is_begun = True

    def _send_parts(self, batch: Batch, indices: list[int], position: int) -> None:
        """A transaction, or, where Kafka refuses a message, those of its two halves: at the end it
        is known which one.  ``position`` is behind the last."""
        sent = Sent(batch, len(indices))
        self._begin_transaction()
        self._send_all(sent, indices, is_alone=False)
        self._drain()
        if sent.is_good:
            self._commit_to(position)
            return
        self._drop_producer()  # what comes behind its abort may fail as well
        self._new_producer()
        if sent.unclear and len(indices) == 1:
            sent.refused[indices[0]] = sent.unclear
        if sent.refused:
            raise Refused(batch, sent.refused)
        if not sent.unclear:
            raise sent.failed or sent.purged or Later(self.shown)
        half = len(indices) // 2
        self._send_parts(batch, indices[:half], _offset(batch, indices[half]))
        self._send_parts(batch, indices[half:], position)

    def ended(self, timeout: float) -> Batch | None:
        """As of Target.  A transaction ends when more messages are waited for."""
        if not self._committed and self._sent and timeout > 0:
            with self._link.told():
                self._commit()
        return self._committed.popleft() if self._committed else None

    def _commit(self) -> None:
        self._drain()
        if any(not sent.is_good for sent in self._sent):
            self._give_up_all()
        position = self._sent[-1].batch.position
        assert isinstance(position, int)
        self._commit_to(position)
        self._committed.extend(sent.batch for sent in self._sent)
        self._sent.clear()

    def _commit_to(self, position: int) -> None:
        kafka = self._link.kafka
        place = kafka.TopicPartition(self._topic, 0, position, self._mark)
        group = self._consumer.consumer_group_metadata()
        producer = self._producer

        def send_offsets(left: float) -> None:
            self._check_losses()
            producer.send_offsets_to_transaction([place], group, left)

        self._until_done(send_offsets, CONFIRM_S)
        self._until_done(producer.commit_transaction, CONFIRM_S)
        self._is_begun = False
        self._position = position
        self._seen = self._mark

    def _check_losses(self) -> None:
        """Later: a broker was lost since the producer began.  librdkafka would look for the group's
        coordinator at the connection that is gone, for a minute and more, and no timeout ends that.
        """
        self._producer.poll(0)
        if self._link.losses != self._losses:
            raise Later(f"{self.shown}: a broker was lost in a transaction, which is begun again")

    def _give_up_all(self) -> None:
        """The first that failed says why; others of the transaction went with it."""
        if unclear := next((sent.unclear for sent in self._sent if sent.unclear), ""):
            self._alone = len(self._sent)
            raise Later(unclear)
        for sent in self._sent:
            if sent.refused:
                raise Refused(sent.batch, sent.refused)
        failed = [sent.failed for sent in self._sent if sent.failed]
        raise (failed or [sent.purged for sent in self._sent if sent.purged])[0]

    def close(self) -> None:
        """As of Target."""
        self._committed.clear()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(self._link.kafka.KafkaException):
                consumer.close()
        super().close()


def _offset(batch: Batch, index: int) -> int:
    """Of a message: those of a stream are without gaps."""
    assert isinstance(batch.position, int)
    return batch.position - len(batch.items) + index
