"""What channels hand out: messages, and the answers to declarations and batches."""

from __future__ import annotations

import copyreg
import weakref
from typing import Any, NamedTuple

from . import _core
from ._core import Message, ReturnedMessage
from .errors import PublishRefused
from .forking import check_process
from .json import loads
from .properties import Properties
from .waiting import Deadline, Seconds, told

__all__ = ["DeclareOk", "Message", "Receipt", "ReturnedCopy", "ReturnedMessage", "Transaction"]


class ReturnedCopy(ReturnedMessage):
    """A returned message apart from its channel: what comes out of a pickle, for one of
    :class:`~pyqstore.MessageReturned`."""

    __slots__ = (
        "body", "exchange", "properties", "queue", "reply_code", "reply_text", "routing_key",
    )  # fmt: skip

    body: bytes
    exchange: str
    properties: Properties
    queue: str
    reply_code: int
    reply_text: str
    routing_key: str

    def __init__(
        self,
        body: bytes,
        exchange: str,
        properties: Properties,
        queue: str,
        reply_code: int,
        reply_text: str,
        routing_key: str,
    ) -> None:
        self.body = body
        self.exchange = exchange
        self.properties = properties
        self.queue = queue
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.routing_key = routing_key

    def json(self) -> Any:
        """The body as JSON.  ValueError: it is none."""
        return loads(self.body)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} from exchange {self.exchange!r} with routing key"
            f" {self.routing_key!r}: {len(self.body)} bytes>"
        )


def _reduced(message: ReturnedMessage) -> tuple[type[ReturnedCopy], tuple[Any, ...]]:
    return ReturnedCopy, tuple(getattr(message, name) for name in ReturnedCopy.__slots__)


# Other messages refuse: what they can do is their channel's.
copyreg.pickle(ReturnedMessage, _reduced)
copyreg.pickle(ReturnedCopy, _reduced)


class DeclareOk(NamedTuple):
    """The answer to ``queue_declare``."""

    queue: str
    """The queue's name, made up by the store if none was given."""
    message_count: int
    """How many messages are ready."""
    consumer_count: int
    """How many consumers there are."""


class Transaction:
    """What became of a channel's transaction; ``channel`` is where it is open."""

    __slots__ = ("_channel", "is_committed", "is_over")

    def __init__(self, channel: _core.Channel) -> None:
        self._channel = weakref.ref(channel)
        self.is_committed: bool = False
        self.is_over: bool = False

    def end(self, committed: bool) -> None:
        """It was committed, or rolled back."""
        self.is_committed = committed
        self.is_over = True

    def check(self) -> None:
        """RuntimeError unless it was committed."""
        if self.is_committed:
            return
        channel = self._channel()
        if self.is_over or channel is None or channel.closed:
            raise RuntimeError("the transaction was rolled back: nothing of the batch is published")
        raise RuntimeError("the batch is part of a transaction: tx_commit() publishes it")


class Receipt:
    """What became of the rows of a ``publish_batch``.

    - ``count``: how many there are; ``first_publish_number``, ``last_publish_number``: their
      numbers, 0 outside confirm mode and for an empty batch.
    - ``refused``: rows that were nacked, because a queue is full and refuses more.
    - ``confirmed``: rows that have their confirm: the others, once what is persistent among them is
      durable.
    - ``returned``: of the confirmed rows those that no queue took, with ``mandatory``;
      ``unroutable``: the same without it.
    """

    __slots__ = (
        "_is_durable",
        "_lsn",
        "_refused_by",
        "_refused_rows",
        "_store",
        "_transaction",
        "count",
        "first_publish_number",
        "last_publish_number",
        "refused",
        "returned",
        "unroutable",
    )

    first_publish_number: int
    last_publish_number: int
    count: int
    refused: int
    returned: int
    unroutable: int

    def __init__(
        self,
        first_publish_number: int,
        last_publish_number: int,
        count: int,
        *,
        refused: int = 0,
        returned: int = 0,
        unroutable: int = 0,
        refused_rows: tuple[int, ...] = (),
        refused_by: str = "",
        store: _core.Store | None = None,
        lsn: int = 0,
        transaction: Transaction | None = None,
    ) -> None:
        """``lsn`` is the journal position of ``store`` that covers the batch; 0: nothing to wait
        for."""
        self.first_publish_number = first_publish_number
        self.last_publish_number = last_publish_number
        self.count = count
        self.refused = refused
        self.returned = returned
        self.unroutable = unroutable
        self._refused_rows = refused_rows
        self._refused_by = refused_by
        self._store = store
        self._lsn = lsn
        self._is_durable = store is None or lsn == 0
        self._transaction = transaction

    def _is_decided(self) -> bool:
        """Whether nothing is left to wait for.  Raises ForkedStore."""
        self._check_process()
        if self._transaction is not None:
            return self._transaction.is_committed
        if not self._is_durable:
            assert self._store is not None
            self._is_durable = self._store._durable_lsn() >= self._lsn
        return self._is_durable

    def _check_process(self) -> None:
        if self._store is not None:
            check_process(self._store)

    @property
    def confirmed(self) -> int:
        """How many rows are confirmed by now.  Raises as :attr:`done`."""
        return self.count - self.refused if self._is_decided() else 0

    @property
    def done(self) -> bool:
        """Whether every row is confirmed: what is persistent is durable.  Never, when one was
        refused, or for a transaction that is not committed.

        Raises StoreClosed unless it was seen before.
        """
        return self.refused == 0 and self._is_decided()

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Return True once :attr:`done`; ``timeout`` in seconds.

        Raises PublishRefused, once the others are durable, when rows were refused; TimeoutError;
        StoreFailed when the batch never will be durable; StoreClosed; RuntimeError for a batch of a
        transaction that was not committed.
        """
        deadline = Deadline(timeout, for_commit=True)
        self._check_process()
        if self._transaction is not None:
            self._transaction.check()
        while not self._is_durable:
            assert self._store is not None
            if self._store._wait_durable(self._lsn, deadline.slice_ns()):
                self._is_durable = True
            elif deadline.over:
                raise TimeoutError(f"the batch was not durable within {told(timeout)}")
        self._check_refused()
        return True

    def _check_refused(self) -> None:
        if self.refused > 0:
            first = self.first_publish_number
            numbers = tuple(first + row for row in self._refused_rows) if first > 0 else ()
            number = numbers[0] if numbers else 0
            raise PublishRefused(
                number, self.refused, numbers, self._refused_rows, self._refused_by
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Receipt):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, int]:
        return self.first_publish_number, self.last_publish_number, self.count

    def __repr__(self) -> str:
        return f"Receipt({self.first_publish_number}, {self.last_publish_number}, {self.count})"
