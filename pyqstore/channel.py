"""Channels: the verbs of AMQP 0-9-1.

The verbs that are one call into the engine are in ``_core.Channel``; here are those with arguments
to encode, listeners to run, or something to wait for.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import _core
from .deliveries import Backlog, Tags, handed_out
from .errors import MessageReturned, UnknownArgument
from .fields import FieldValue, encode_table
from .iteration import Messages
from .message import DeclareOk, Message, Receipt, ReturnedMessage, Transaction
from .properties import Properties
from .threadsafe import Settler
from .waiting import SLICE_NS, Deadline, check_timeout

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Channel"]

Arguments = Mapping[str, FieldValue]
MessageCallback = Callable[[Message], object]
ConfirmCallback = Callable[[int, bool], object]
ReturnCallback = Callable[[ReturnedMessage], object]

_ANSWERS = _core.EVENT_RETURN | _core.EVENT_ACK | _core.EVENT_NACK
_ALL_BUT_DELIVERIES = _ANSWERS | _core.EVENT_CANCEL
_ALL = _ALL_BUT_DELIVERIES | _core.EVENT_DELIVERY
_EVENTS_PER_CALL = 65536
_U64_MAX = 2**64 - 1


class _Consumer:
    """A consumer of this channel.  held: what came for it while nobody asked, if it has no
    callback.  cancelled: the store did it, but there is something held."""

    __slots__ = ("auto_ack", "callback", "cancelled", "held")

    def __init__(self, callback: MessageCallback | None, auto_ack: bool) -> None:
        self.callback = callback
        self.auto_ack = auto_ack
        self.cancelled = False
        self.held: Backlog[Message] = Backlog()


class Channel(_core.Channel):
    """A conversation with a store, from ``Store.channel()`` or ``Connection.channel()``.  One
    thread at a time; open one for each thread.

    An AMQP error (a :class:`~pyqstore.ChannelError`) closes the channel it happened on, as a broker
    would; every verb can raise it, and ChannelClosed after that, StoreClosed, StoreFailed,
    ForkedStore, RuntimeError when another thread is inside a call on this channel, and TypeError or
    ValueError for wrong arguments.

    Names of queues, exchanges and consumers are str of at most 255 bytes of UTF-8, without NUL, and
    routing keys are, but for that; counts are numbers of messages; timeouts are seconds, and None
    waits for ever.
    """

    def __init__(self, store: _core.Store, connection: _core.Connection | None = None) -> None:
        """Open a channel; raises StoreClosed, ForkedStore, ChannelClosed (no connection any
        more)."""
        self._store = store
        self._confirm_listeners: list[tuple[ConfirmCallback | None, ConfirmCallback | None]] = []
        self._return_listeners: list[ReturnCallback] = []
        self._cancel_listeners: list[Callable[[str], object]] = []
        self._consumers: dict[str, _Consumer] = {}
        self._callbacks = 0
        self._nacked = False
        self._transaction: Transaction | None = None
        self._consuming = False
        self._stop = False
        self._settler: Settler | None = None
        self._left: list[str] = []  # consumers to be cancelled: see _cancel_left
        self._ignore_returns(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self.closed and not self._store._forked:
            warnings.warn(f"unclosed channel {self!r}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self.closed else ''}>"

    def close(self) -> None:
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Raises RuntimeError when another thread is inside a call on this channel.
        """
        settler = getattr(self, "_settler", None)
        if settler is not None and not self.closed:
            with suppress(Exception):  # those who asked are told
                settler.settle()
        super().close()
        if settler is not None:
            settler.close()
            self._forget_event_fd()

    def _free(self) -> None:
        """For the store, which is closed."""
        super()._free()
        if self._settler is not None:
            self._settler.close()

    def threadsafe(self) -> Settler:
        """What acknowledges and refuses deliveries of this channel from other threads, while this
        one waits in ``process_events`` or ``start_consuming``: for a pool of threads behind a
        consumer.  Always the same :class:`~pyqstore.Settler`::

            settler = channel.threadsafe()

            def handle(message):
                work(message.body)
                settler.basic_ack(message.delivery_tag)

            channel.basic_qos(8)
            channel.basic_consume("jobs", lambda message: pool.submit(handle, message))
            channel.start_consuming()
        """
        if self._settler is None:
            self._settler = Settler(self)
            self._next_event = self._settler.next_event  # type: ignore[method-assign]
        return self._settler

    # Declarations.

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """Make an exchange of ``exchange_type`` ("direct", "fanout", "headers", "topic"), unless
        there is one like it.

        ``passive`` only asks (NotFound).  A ``durable`` one survives a restart and is durable when
        this returns, ``auto_delete`` goes with the last binding that leads from it, ``internal``
        takes no publishes, only what other exchanges pass on.  ``arguments``: what no binding of
        this exchange matches goes to the one named by "alternate-exchange", if that is there.
        PreconditionFailed when it exists and differs, or "alternate-exchange" is no str;
        AccessRefused for "" and names from "amq."; ChannelError (503) for another type.
        """
        flags = (
            (_core.PASSIVE if passive else 0)
            | (_core.DURABLE if durable else 0)
            | (_core.AUTO_DELETE if auto_delete else 0)
            | (_core.INTERNAL if internal else 0)
        )
        self._exchange_declare(exchange, exchange_type, flags, _encoded(arguments))

    def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> DeclareOk:
        """Make a queue unless there is one like it; "" has the store make up a name.

        ``passive`` only asks (NotFound).  A ``durable`` one survives a restart, with its persistent
        messages, and is durable when this returns, ``exclusive`` belongs to this connection and
        goes with it (with the channel, if that is a connection of its own), ``auto_delete`` goes
        with its last consumer.  ``arguments`` are those of RabbitMQ's classic queues.

        PreconditionFailed when it exists and differs, for an argument with a value that it cannot
        have, and for arguments that ask for copies on other machines: an "x-queue-type" other than
        "classic", "x-ha-policy", "x-quorum-..." and the like; ResourceLocked for another
        connection's exclusive queue, and for ``exclusive`` other than before.

        Warns of :class:`~pyqstore.UnknownArgument`: an argument that begins with "x-" and means
        nothing.
        """
        answer = self._declare_queue(queue, passive, durable, exclusive, auto_delete, arguments)
        warn_of_unknown(answer.queue, arguments, stacklevel=2)
        return answer

    def _declare_queue(
        self,
        queue: str,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments | None,
    ) -> DeclareOk:
        flags = (
            (_core.PASSIVE if passive else 0)
            | (_core.DURABLE if durable else 0)
            | (_core.EXCLUSIVE if exclusive else 0)
            | (_core.AUTO_DELETE if auto_delete else 0)
        )
        return DeclareOk(*self._queue_declare(queue, flags, _encoded(arguments)))

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Lead messages of ``exchange`` with ``routing_key`` to ``queue``.  Binding twice is
        binding once.

        A headers exchange compares the messages' headers with ``arguments`` instead: all of them,
        or with ``"x-match": "any"`` any of them; those whose names begin with "x-" only with
        "all-with-x" and "any-with-x".  None asks for a header of any value.

        NotFound: no such queue or exchange; AccessRefused: the default exchange;
        PreconditionFailed: another "x-match".
        """
        self._queue_bind(queue, exchange, routing_key, _encoded(arguments))

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Take back ``queue_bind`` with the same arguments; nothing happens if there was none."""
        self._queue_unbind(queue, exchange, routing_key, _encoded(arguments))

    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Lead messages of the exchange ``source`` with ``routing_key`` to the exchange
        ``destination``, which passes them on by its own bindings.

        A queue gets a message once, whatever the ways to it; circles end.  Arguments and errors
        are those of ``queue_bind``.
        """
        self._exchange_bind(destination, source, routing_key, _encoded(arguments))

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Take back ``exchange_bind`` with the same arguments; nothing happens if there was
        none."""
        self._exchange_unbind(destination, source, routing_key, _encoded(arguments))

    # Publishing.

    def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> Receipt:
        """Publish every row of ``data``, in order, or nothing at all when anything is wrong with
        it.

        ``data`` is anything with the Arrow PyCapsule protocol: a pyarrow Table, RecordBatch or
        RecordBatchReader, a polars or pandas (2.2 or newer) DataFrame...  Read in place, without
        the GIL.  Columns, by name:

        - the one named by ``body``: binary or string of any layout; no nulls.
        - ``exchange``, ``routing_key``: string or dictionary; where absent or null, the arguments
          here (None: "").
        - ``headers``: map<string, string>, without CC and BCC, which would be lists;
          ``message_id``, ``correlation_id``, ``type``, ``app_id``, ``content_type``,
          ``content_encoding``, ``reply_to``, ``user_id``: string or dictionary; ``priority``,
          ``delivery_mode``, ``expiration_ms``: integer; ``timestamp``: timestamp, or integer
          seconds.  A column beats ``properties``.
        - ``due``: timestamp; the row is in its queues at once and delivered from then on, as with
          ``delay`` of ``basic_publish``.  Null, or over by now: at once.

        What ``get_batch`` and ``Store.browse`` return can be published as it is: columns that tell
        of a delivery (``delivery_tag``, ``redelivered``, ``delivery_count``, ``sequence``,
        ``unacked``, ``delayed``) are ignored, and ``exchange`` and ``routing_key`` are where the
        messages were published the first time: drop or replace these two to send them elsewhere.
        Any other column is refused, so that a misspelt name is not lost.
        A message with no delivery mode anywhere is persistent. Raises TypeError for other data;
        ValueError naming the column or row; as ``basic_publish`` otherwise.
        """
        if not isinstance(body, str):
            raise TypeError(f"body must be the name of a column, not {type(body).__name__}")
        if "\0" in body:
            raise ValueError("body must not contain a NUL character")
        key = "" if routing_key is None else routing_key
        export_array = getattr(data, "__arrow_c_array__", None)
        export_stream = getattr(data, "__arrow_c_stream__", None)
        if export_array is not None:
            schema, array = export_array()
            answer = self._publish_array(schema, array, exchange, key, body, properties, mandatory)
        elif export_stream is not None:
            answer = self._publish_stream(
                export_stream(), exchange, key, body, properties, mandatory
            )
        else:
            raise TypeError(
                "data must speak the Arrow PyCapsule protocol (__arrow_c_stream__ or"
                " __arrow_c_array__), as pyarrow, polars and pandas 2.2 do;"
                f" {type(data).__name__} does not"
            )
        first, last, count, lsn, unrouted, refused, refused_rows = answer
        return Receipt(
            first,
            last,
            count,
            refused=refused,
            returned=unrouted if mandatory else 0,
            unroutable=0 if mandatory else unrouted,
            refused_rows=refused_rows,
            store=self._store,
            lsn=lsn,
            transaction=self._transaction,
        )

    def wait_for_confirms(self, timeout: float | None = None) -> bool:
        """Return when every publish of this channel was confirmed or refused; then run the
        listeners.

        False if any was refused (nacked) since the last call.  Raises MessageReturned when no queue
        took a message that was published with ``mandatory`` since the last call, and there is no
        return listener: the next call tells of refusals then.  Raises TimeoutError, having run the
        listeners for what came in time, PreconditionFailed outside confirm mode, and what a
        listener raises: the events behind it stay queued.
        """
        deadline = Deadline(timeout)
        heard = self._confirm_listeners or self._return_listeners
        while True:
            nacked = self._wait_confirms(deadline.slice_ns(), 0 if heard else _ANSWERS)
            self._nacked = self._nacked or bool(nacked)
            if heard:
                self._run(_ANSWERS)
            if nacked is not None:
                break
            if deadline.over:
                raise TimeoutError(f"not all publishes were confirmed within {timeout} s")
        returned = self._take_ignored_returns()
        if returned is not None:
            raise MessageReturned(*returned)
        confirmed = not self._nacked
        self._nacked = False
        return confirmed

    def add_confirm_listener(
        self, on_ack: ConfirmCallback | None, on_nack: ConfirmCallback | None
    ) -> None:
        """Call ``on_ack(publish_number, multiple)`` for confirms, ``on_nack`` likewise for
        refusals.

        With ``multiple`` the call stands for that number and all before it that had no call yet.
        Listeners run in the thread that waits for confirms or processes events, and may use the
        channel.
        """
        self._confirm_listeners.append((on_ack, on_nack))

    def add_return_listener(self, callback: ReturnCallback) -> None:
        """Call ``callback(message)`` with each :class:`ReturnedMessage`, before the confirm of the
        same message.

        Without a listener returned messages are counted (``stats()["messages_returned"]``) and
        dropped, but in confirm mode ``wait_for_confirms`` raises MessageReturned with the first of
        them.  With one they wait in memory until events are processed: an eighth of
        ``memory_budget`` for all channels together, beyond which a ``mandatory`` publish that no
        queue takes raises StoreFull, having published nothing.
        """
        self._return_listeners.append(callback)
        self._ignore_returns(False)

    def add_cancel_listener(self, callback: Callable[[str], object]) -> None:
        """Call ``callback(consumer_tag)`` when the store cancels a consumer, because its queue was
        deleted."""
        self._cancel_listeners.append(callback)

    # Transactions.

    def tx_select(self) -> None:
        """Buffer publishes and acknowledgements from here on, until ``tx_commit`` or
        ``tx_rollback``.

        PreconditionFailed on a channel in confirm mode.
        """
        super().tx_select()
        if self._transaction is None:
            self._transaction = Transaction(self)

    def tx_commit(self, *, key: str | None = None) -> bool:
        """Do everything since the last commit, atomically and durably when this returns.

        ``key`` (str, not empty) is recorded with the transaction.  When a transaction with this key
        was committed before, the buffered work is dropped and False is returned; True otherwise.
        """
        is_new = super().tx_commit(key=key)
        self._end_transaction(committed=True)
        return is_new

    def tx_rollback(self) -> None:
        """Drop the publishes since the last commit and take the acknowledgements back; nothing is
        requeued."""
        super().tx_rollback()
        self._end_transaction(committed=False)

    def _end_transaction(self, committed: bool) -> None:
        assert self._transaction is not None
        self._transaction.end(committed)
        self._transaction = Transaction(self)

    # Events.

    def process_events(self, timeout: float | None = 0.0) -> int:
        """Run listeners and consumers' callbacks for what is there; returns for how many events.

        Waits ``timeout`` seconds for the first one.  Handles at most 65,536 events, so that a
        callback that makes events does not keep it for ever.  Deliveries to consumers without a
        callback are left alone as long as there is none with one.  What a callback raises comes out
        here; the events behind it stay queued.
        """
        deadline = Deadline(timeout)
        while True:
            handled = self._run(self._kinds(), deadline.slice_ns())
            if handled or deadline.over:
                return handled

    def _kinds(self) -> int:
        return _ALL if self._callbacks else _ALL_BUT_DELIVERIES

    def _run(self, kinds: int, first_timeout_ns: int = 0) -> int:
        handled = 0
        if self._left:
            self._cancel_left()
        event = self._next_event(kinds, first_timeout_ns)
        while event is not None:
            handled += 1
            self._dispatch(event)
            if handled == _EVENTS_PER_CALL or self.closed:
                break
            event = self._next_event(kinds, 0)
        return handled

    def _dispatch(self, event: tuple[int, Any, Any]) -> None:
        kind, what, detail = event
        if kind == _core.EVENT_DELIVERY:
            consumer = self._consumers.get(what.consumer_tag)
            if consumer is None:  # an interrupt came before basic_consume noted it
                self._cancel(what.consumer_tag)
                self._put_back(what)
            elif consumer.callback is None:
                try:
                    consumer.held.append(what)
                except MemoryError:
                    self._withhold(what.delivery_tag, what.delivery_tag)
                    raise
                if consumer.held.is_full and not consumer.held.is_paused:
                    consumer.held.is_paused = True
                    self._pause(what.consumer_tag, True)
            else:
                consumer.callback(what)
        elif kind == _core.EVENT_ACK:
            for on_ack, _ in self._confirm_listeners:
                if on_ack is not None:
                    on_ack(what, detail)
        elif kind == _core.EVENT_NACK:
            for _, on_nack in self._confirm_listeners:
                if on_nack is not None:
                    on_nack(what, detail)
        elif kind == _core.EVENT_RETURN:
            for on_return in self._return_listeners:
                on_return(what)
        else:
            self._cancelled(what)
            for on_cancel in self._cancel_listeners:
                on_cancel(what)

    def _cancelled(self, consumer_tag: str) -> None:
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None and consumer.held:
            consumer.cancelled = True
        else:
            self._forget(consumer_tag)

    def _forget(self, consumer_tag: str) -> _Consumer | None:
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is not None and consumer.callback is not None:
            self._callbacks -= 1
        return consumer

    # Settling.

    def _settle_handed_out(self, tag: int, requeue: bool, reject: bool, delay_us: int) -> bool:
        held = self._held()
        if held:
            self._settle_around(held, tag, requeue, reject, delay_us)
        return bool(held)

    def basic_recover(self, requeue: bool = True) -> None:
        """Requeue everything unacknowledged on this channel, what came and was not handed out with
        it.  NotImplementedByBroker without ``requeue``."""
        super().basic_recover(requeue)
        for tag, consumer in self._consumers.items():
            if not consumer.auto_ack:
                consumer.held.clear()
                self._resume(tag, consumer)

    def _resume(self, tag: str, consumer: _Consumer) -> None:
        """Nothing is held for it any more: what comes next is welcome."""
        if consumer.held.is_paused:
            consumer.held.is_paused = False
            self._pause(tag, False)

    def _held(self) -> list[Tags]:
        """What came and was not handed out; with ``auto_ack`` it is settled already."""
        tags = [
            message.delivery_tag
            for consumer in self._consumers.values()
            if consumer.held and not consumer.auto_ack
            for message in consumer.held
        ]
        return [(tag, tag) for tag in sorted(tags)]

    def _settle_around(
        self,
        held: list[Tags],
        tag: int,
        requeue: bool,
        reject: bool,
        delay_us: int,
        last: int = _U64_MAX,
    ) -> None:
        """Settle all up to ``tag``, or with 0 up to ``last``, except what is held."""
        if tag and not any(first <= tag <= last for first, last in held):  # unknown: an error
            if requeue or reject:
                self.basic_nack(tag, False, requeue)
            else:
                self.basic_ack(tag)
        between = handed_out(held, tag or last)
        self._settle_tags(between, requeue, reject, in_transaction=True, delay_us=delay_us)

    def _recover_handed_out(self, between: list[Tags]) -> None:
        """Requeue these, and what could not be handed out."""
        self._settle_tags(between, True)
        self._recover_withheld()

    def _settle_tags(
        self,
        between: list[Tags],
        requeue: bool,
        reject: bool = False,
        in_transaction: bool = False,
        delay_us: int = 0,
    ) -> None:
        for first, last in between or [(1, 0)]:  # none: a closed channel is an error all the same
            self._settle_range(first, last, requeue, reject, in_transaction, delay_us)

    # Receiving.

    def basic_consume(
        self,
        queue: str,
        callback: MessageCallback | None = None,
        *,
        auto_ack: bool = False,
        consumer_tag: str = "",
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> str:
        """Register a consumer and return its tag, made up if none is given.

        ``callback(message)`` runs inside ``start_consuming`` or ``process_events``.  A consumer
        without a callback is read with :meth:`next_delivery`.

        ``arguments``: ``x-priority``, a whole number, 0 without one; others have no effect.
        Messages go to the consumers with the highest priority while one of them has room: while it
        has fewer messages unacknowledged than ``basic_qos`` allows, whether its channel asks for
        messages or not.  Consumers of one priority have them in turn, across channels: each takes
        when its channel asks, but not what others that wait already come first for.

        Of a queue declared with ``x-single-active-consumer`` only one consumer has messages: the
        first, then, when that is cancelled or its channel closes, the one with the highest priority
        that was registered first.  What the old one has unacknowledged stays with it.

        NotAllowed: the channel has a consumer of that tag; NotFound: no such queue; ResourceLocked:
        another connection's exclusive queue; PreconditionFailed: ``x-priority`` is not a whole
        number; AccessRefused: the queue has an exclusive consumer, or ``exclusive`` is asked for
        beside another one or with ``x-single-active-consumer``.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        flags = (_core.NO_ACK if auto_ack else 0) | (_core.EXCLUSIVE if exclusive else 0)
        tag = self._consume(queue, consumer_tag, flags, _encoded(arguments))
        self._consumers[tag] = _Consumer(callback, auto_ack)
        if callback is not None:
            self._callbacks += 1
        return tag

    def basic_cancel(self, consumer_tag: str) -> list[Message]:
        """Stop a consumer.  What it was handed and has not acknowledged stays unacknowledged.

        Messages that came for a consumer without a callback and were not asked for yet are
        requeued; with ``auto_ack`` they have left the queue and are returned.
        """
        self._cancel(consumer_tag)
        consumer = self._forget(consumer_tag)
        if consumer is None:
            return []
        if consumer.auto_ack:
            return list(consumer.held)
        for message in consumer.held:
            self._put_back(message)
        return []

    def _put_back(self, message: Message) -> None:
        """Requeue what nobody was handed: at once, a transaction has no part in it."""
        self._settle_range(message.delivery_tag, message.delivery_tag, True)

    def start_consuming(self) -> None:
        """Run callbacks and listeners until ``stop_consuming``, until no consumer with a callback
        is left, or until one of them closes the channel.

        What a callback raises comes out here, and consuming can be started again.
        """
        if self._consuming:
            raise RuntimeError("this channel is consuming already")
        if self._left:
            self._cancel_left()
        self._consuming = True
        self._stop = False
        dispatch = self._dispatch
        try:
            while self._callbacks and not self._stop:
                event = self._next_event(_ALL, SLICE_NS)
                if event is not None:
                    dispatch(event)
                    if self.closed:
                        break
        finally:
            self._consuming = False
            stopped, self._stop = self._stop, False
            if stopped and not self.closed:
                self._cancel_callbacks()

    def stop_consuming(self) -> None:
        """Cancel the consumers that have a callback, which ends ``start_consuming``.

        From a callback, or from any other thread: then it takes effect within 0.1 s.
        """
        if self._consuming:
            self._stop = True
        else:
            self._cancel_callbacks()

    def _cancel_callbacks(self) -> None:
        for tag in [
            tag for tag, consumer in self._consumers.items() if consumer.callback is not None
        ]:
            self.basic_cancel(tag)

    def next_delivery(self, consumer_tag: str, timeout: float | None = None) -> Message | None:
        """The next message for a consumer without a callback.

        RuntimeError for a consumer with a callback, which its messages go to.  None when nothing
        came within ``timeout`` seconds, or the consumer was cancelled, by ``basic_cancel`` or
        because its queue was deleted: then after the last message that came before.

        Listeners and other consumers' callbacks run meanwhile.  What comes for other consumers
        without a callback waits for their turn; each of them that has 256 messages or 256 KiB
        waiting takes no more until those were asked for, as if its prefetch were used up.
        """
        check_timeout(timeout)
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None and consumer.callback is not None:
            raise RuntimeError("the messages of this consumer go to its callback")
        return self._next_delivery(consumer_tag, timeout)

    def _next_delivery(self, consumer_tag: str, timeout: float | None) -> Message | None:
        deadline: Deadline | None = None  # for what is there already nobody looks at the clock
        if self._left:
            self._cancel_left()
        while True:
            consumer = self._consumers.get(consumer_tag)
            if consumer is None:
                return None
            if consumer.held:
                if len(consumer.held) == 1:
                    self._resume(consumer_tag, consumer)
                return consumer.held.popleft()
            if consumer.cancelled:
                self._forget(consumer_tag)
                return None
            event = self._next_event(_ALL, 0 if deadline is None else deadline.slice_ns())
            if event is not None:
                kind, what, _ = event
                if kind == _core.EVENT_DELIVERY and what.consumer_tag == consumer_tag:
                    message: Message = what
                    return message
                self._dispatch(event)
            elif deadline is None:
                deadline = Deadline(timeout)
            elif deadline.over:
                return None

    def consume(
        self, queue: str, *, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> Messages:
        """Iterate the messages of ``queue`` as they come.

        The iteration ends when no message came for ``inactivity_timeout`` seconds (None: never), or
        when the queue was deleted: without an exception, as in pika.  The consumer is registered by
        the first step, and cancelled when the iteration ends or the iterator is closed or
        forgotten, which leaving a ``for`` loop does unless a variable keeps it; ``with`` closes it
        at once::

            with channel.consume("q") as messages:
                for message in messages:
                    handle(message)
                    message.ack()

        Messages that were handed out and not acknowledged stay so until the channel closes; but
        when an exception leaves the ``with`` block, the one in hand is requeued.
        """
        check_timeout(inactivity_timeout)
        return Messages(self, queue, auto_ack, inactivity_timeout)

    def _cancel_left(self) -> None:
        """Consumers of iterators that another thread forgot while this channel was in a call."""
        while self._left:
            self.basic_cancel(self._left.pop())

    def get_batch(
        self,
        queue: str,
        max_messages: int = 65536,
        *,
        max_bytes: int | None = None,
        auto_ack: bool = False,
        timeout: float | None = 0.0,
    ) -> pyarrow.RecordBatch:
        """Up to ``max_messages`` ready messages as one record batch; no rows when none came within
        ``timeout``.

        Columns: ``delivery_tag`` uint64 (ascending: ``basic_ack(last, multiple=True)`` takes them
        all), ``redelivered`` bool, ``exchange`` and ``routing_key`` dictionary<string>, ``body``
        binary, ``headers`` map<string, string>, and the other properties.  ``max_bytes`` bounds the
        bodies together, but one message always fits.  Nothing is copied on the way from the engine.
        Needs pyarrow (ImportError).  NotFound: no such queue.
        """
        from pyarrow import record_batch

        most = _positive("max_messages", max_messages)
        bytes_most = _U64_MAX if max_bytes is None else _positive("max_bytes", max_bytes)
        deadline = Deadline(timeout)
        while True:
            batch = self._get_batch(queue, most, bytes_most, auto_ack, deadline.slice_ns())
            if len(batch) > 0 or deadline.over:
                try:
                    return record_batch(batch)
                except BaseException:
                    self._withhold_batch(batch)
                    raise


def warn_of_unknown(queue: str, arguments: Arguments | None, stacklevel: int) -> None:
    """Of arguments of a queue that mean nothing, in the caller's name."""
    known = _core.queue_argument_names() if arguments else []
    for name in arguments or ():
        if not str(name).startswith("x-") or name in known:
            continue
        nearest = difflib.get_close_matches(name, known, n=1)
        warnings.warn(
            f"queue {queue!r}: the argument {name!r} means nothing here"
            + (f"; did you mean {nearest[0]!r}?" if nearest else ""),
            UnknownArgument,
            stacklevel=stacklevel + 1,
        )


def _encoded(arguments: Arguments | None) -> bytes:
    return encode_table(arguments, ordered=True) if arguments else b""


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not 1 <= value <= _U64_MAX:
        raise ValueError(f"{name} must be 1 or more, not {value}")
    return value
