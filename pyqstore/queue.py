"""Queues that lose nothing by default: durable, with persistent messages and confirmed puts."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast

from .channel import Channel, warn_of_unknown
from .errors import (
    Empty,
    NotFound,
    PreconditionFailed,
    StoreCorrupt,
)
from .fields import FieldValue
from .keyed import keyed_exchange
from .message import Message, Receipt
from .peeking import peeks
from .properties import Properties, whole_milliseconds
from .sequences import is_ours
from .waiting import Seconds, check_timeout, told

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Codec", "Queue", "Seconds"]


class Codec(Protocol):
    """Converts values to bodies and back: ``pickle``, ``orjson``, ``pyqstore.json``...

    Messages get the codec's ``content_type``, if it has one.
    """

    @property
    def dumps(self) -> Callable[[Any], bytes | str]:
        """A function that makes a body of a value; text becomes UTF-8."""
        ...

    @property
    def loads(self) -> Callable[[bytes], Any]:
        """A function that makes the value of a body again."""
        ...


_CODEC = ("dumps", "loads")
_EXPIRES_MS_MAX = 2**32 - 2
_TAG = "get"  # of the consumer that waits for a message
_TAGS_MAX = 2**64 - 1


class Queue:
    """A durable queue, from ``Store.queue()``.  Any thread may use it.

    Messages are persistent, and a put returns when they are durable.  A message belongs to the
    thread that got it; a thread that ends requeues its unsettled messages.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        codec: Codec | None = None,
        arguments: Mapping[str, FieldValue | timedelta] | None = None,
    ) -> None:
        """See ``Store.queue``."""
        self._store = store
        self._name = check_name(name)
        self._codec = check_codec(codec)
        self._channels = _Channels(store)
        declare(store, self._channels, name, arguments or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._store!r}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    def __len__(self) -> int:
        """How many messages are ready.  NotFound: the queue was deleted."""
        return int(self._store.queue_status(self._name)["messages_ready"])

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    # Putting.

    def put(
        self,
        body: object,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        expires: Seconds | None = None,
        headers: Mapping[str, FieldValue] | None = None,
        key: str = "",
        codec: Codec | None = None,
    ) -> None:
        """Put a message in the queue; it is durable when this returns.

        ``body``: bytes, or str, which becomes UTF-8, or any value that the ``codec`` (given here,
        or of the queue) accepts; bytes stay as they are in any case.  ``priority``: 0 and up, of a
        queue with ``max_priority``.  ``delay``: seconds until the message is ready; ``expires``:
        seconds for which it is ready before it is dropped or dead-lettered.  ``key``: its
        ``routing_key``; by default the queue's name.

        Raises PublishRefused if the queue is full (``overflow="reject-publish"``), MessageReturned
        if it was deleted, StoreFull, StoreFailed.
        """
        encoded, properties = envelope(
            body,
            check_codec(codec) or self._codec,
            priority=priority,
            expires=expires,
            headers=headers,
        )
        exchange = self._exchange() if key else ""
        self._publish(exchange, key or self._name, encoded, properties, delay)

    def _publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: Properties,
        delay: Seconds | None = None,
    ) -> None:
        with self._channels.publishing() as channel:
            channel.basic_publish(exchange, key, body, properties, mandatory=True, delay=delay)
            wait(channel)

    def put_many(self, data: object, *, codec: Codec | None = None) -> int:
        """Put many messages and return how many; all are durable then.

        ``data``: an iterable of bodies as ``put`` takes them, or anything with the Arrow PyCapsule
        protocol, with the columns of ``Channel.publish_batch``; ``exchange``, ``routing_key`` and
        ``delivery_mode`` are ignored.  If Arrow data are invalid, nothing is put.  If an iterable
        raises, or the queue refuses some messages, the others stay in the queue.  Raises as ``put``
        does; ``PublishRefused.count`` says how many were refused.
        """
        count = 0
        receipt: Receipt | None = None
        with self._channels.publishing() as channel:
            if is_arrow(data):
                rows = only_messages(data)
                receipt = channel.publish_batch(rows, "", self._name, mandatory=True)
                count = receipt.count
            else:
                for body in bodies(data):
                    encoded, properties = envelope(body, check_codec(codec) or self._codec)
                    channel.basic_publish("", self._name, encoded, properties, mandatory=True)
                    count += 1
            wait(channel, receipt)
        return count

    def _exchange(self) -> str:
        """Where messages with keys of their own are published."""
        return keyed_exchange(self._channels.receiving, "queue", self._name)

    # Getting.

    def get(self, timeout: Seconds | None = None) -> Message:
        """The first ready message; waits ``timeout`` seconds for one (None: for ever).

        ``with queue.get() as message:`` acknowledges the message at the end, and requeues it if the
        block raises.  Without ``with`` settle it yourself: ``message.ack()``, ``message.nack()``,
        ``message.retry()``.

        Raises Empty if none came in time, NotFound if the queue was deleted.  If a signal handler
        raises meanwhile, the message goes back to the queue.
        """
        end = time.monotonic() + check_timeout(timeout)
        channel = self._channels.receiving()
        last_tag = channel.last_tag
        try:
            message = self._next(channel, end)
            if message is not None:
                channel.last_tag = message.delivery_tag
                return message
        except BaseException:
            channel.last_tag = last_tag
            channel.put_back()
            raise
        raise Empty(f"no message in queue {self._name!r} within {told(timeout)}")

    def _next(self, channel: _Channel, end: float) -> Message | None:
        while True:
            message = channel.basic_get(self._name)
            left = end - time.monotonic()
            if message is not None or left <= 0:
                return message
            message = self._wait(channel, left)
            if message is not None:
                return message

    def _wait(self, channel: _Channel, seconds: float) -> Message | None:
        """As a consumer for as long as it takes, with a prefetch of one: what comes is ours."""
        channel.basic_consume(self._name, consumer_tag=_TAG)
        message = channel._next_delivery(_TAG, seconds)
        if not channel.closed:
            channel.basic_cancel(_TAG)
        return message

    def __iter__(self) -> Iterator[Message]:
        """The messages as they come, for ever; each is acknowledged when the loop's body ends.

        What leaves the body, an exception, ``break`` or ``return``, gives the message under way
        back, unless it was settled: call ``message.ack()`` before a ``break``.
        """
        while True:
            with self.get() as message:
                yield message

    def decode(self, message: Message) -> Any:
        """The value of a message, by the queue's codec; without a codec, its body."""
        if not isinstance(message, Message):
            raise TypeError(f"not a message: {type(message).__name__}")
        return message.body if self._codec is None else self._codec.loads(message.body)

    def peek(self, count: int = 1) -> list[Message]:
        """The first ``count`` ready messages.  They stay, and cannot be settled.

        Raises StoreCorrupt when one cannot be read.
        """
        number = operator.index(count)
        if number < 0:
            raise ValueError(f"count must be 0 or more, not {number}")
        return first_ready(self._store, self._name, number)

    def purge(self) -> int:
        """Drop all messages that are ready or delayed, and return how many."""
        return self._channels.receiving().queue_purge(self._name)

    def delete(self) -> int:
        """Delete the queue, and return how many messages were ready."""
        return self._channels.receiving().queue_delete(self._name)

    def work(
        self,
        function: Callable[[Message], object],
        threads: int = 4,
        retries: int = 5,
        backoff: Seconds | Callable[[int], Seconds] = 1.0,
        dead: str | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Call ``function(message)`` with each message, in ``threads`` threads, until ``stop`` is
        set or SIGTERM comes; then end after the running calls.

        A message is acknowledged when its call returns, unless the function settled it.  If the
        call raises, the message is tried again ``retries`` times: after ``backoff`` seconds, and
        twice as long each time, an hour at most, or after ``backoff(attempt)``, attempt 1 and up.
        Then it goes to the queue ``dead`` (None: this queue's name and ``.dead``), which is made,
        with headers ``x-error``, ``x-attempts``, ``x-queue`` and ``x-routing-key``.  Attempts are
        counted by the engine (``Message.delivery_count``).

        Declare the queue with a ``delivery_limit`` so that the count survives the process, for
        messages that kill it: ``delivery_limit=5, dead_letter_exchange="",
        dead_letter_routing_key="jobs.dead"``.  Without the last two the engine drops a message that
        was delivered too often.  A call that raises is tried again as often as both limits allow.

        An exception that is no Exception, such as SystemExit, requeues the message, ends the other
        threads after their running calls, and is raised here; so are errors of the store, and
        Ctrl-C.  SIGTERM is caught in the main thread only.  Logged by ``pyqstore.work``.
        """
        from .work import Work

        Work(self, function, retries=retries, backoff=backoff, dead=dead, stop=stop).run(threads)


class _Channel(Channel):
    """A channel that nobody else knows: it ends with its queue or its thread, without a warning."""

    last_tag: int = 0
    """The delivery tag of the message that was handed out last."""

    def put_back(self) -> None:
        """Requeue what was taken and not handed out, and cancel the consumer that took it."""
        if not self.closed:
            self.basic_cancel(_TAG)
            self._settle_range(self.last_tag + 1, _TAGS_MAX, True)

    def __del__(self) -> None:
        self.close()


class _Channels:
    """Two channels for each thread.  An AMQP error closes one; the next call opens another."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own = threading.local()

    @contextmanager
    def publishing(self) -> Iterator[Channel]:
        """One in confirm mode, with which nothing is got: its errors put no messages back."""
        channel = self._opened("publishing")
        if channel.next_publish_number == 0:
            channel.confirm_select()
        try:
            yield channel
        except BaseException:
            channel.close()  # answers that are still to come are not those of the next call
            raise

    def receiving(self) -> _Channel:
        """One with a prefetch of one message for each consumer."""
        return self._opened("receiving")

    def _opened(self, name: str) -> _Channel:
        channel = cast("_Channel | None", getattr(self._own, name, None))
        if channel is None or (channel.closed and not self._store.closed):
            channel = _Channel(self._store)
            channel.basic_qos(1)
            setattr(self._own, name, channel)
        return channel


def wait(channel: Channel, receipt: Receipt | None = None) -> None:
    """Until all is durable; ``receipt``: of the batch, if it was one.  Raises PublishRefused or
    StoreFailed when some of it was not taken."""
    if channel.wait_for_confirms():
        return
    if receipt is not None:
        receipt.wait()  # which names the rows
    raise channel._refusals.told()


# Shared with the queues of asyncio.


def check_name(name: object) -> str:
    """A queue's name, which the store must not make up."""
    if not isinstance(name, str):
        raise TypeError(f"name must be str, not {type(name).__name__}")
    if not name:
        raise ValueError("a queue needs a name")
    return name


def check_codec(codec: Codec | None) -> Codec | None:
    """TypeError for what makes no bodies."""
    if codec is not None and not all(callable(getattr(codec, f, None)) for f in _CODEC):
        raise TypeError(f"a codec has dumps and loads, as pyqstore.json; {codec!r} has not")
    return codec


def declare(
    store: Store,
    channels: _Channels,
    name: str,
    arguments: Mapping[str, FieldValue | timedelta],
) -> None:
    """Declare a durable queue; without arguments a durable one that is there will do."""
    if not arguments:
        try:
            status = store.queue_status(name)
        except NotFound:
            pass
        else:
            check_safe(name, status)
            return
    encoded = amqp_arguments(arguments)
    channels.receiving()._declare_queue(name, False, True, False, False, encoded)


def warn_of_slips(
    name: str, arguments: Mapping[str, FieldValue | timedelta], stacklevel: int
) -> None:
    """Of arguments that mean nothing, in the name of the caller of the caller."""
    if arguments:
        warn_of_unknown(name, amqp_arguments(arguments), stacklevel + 1)


def check_safe(name: str, status: Mapping[str, Any]) -> None:
    """A queue that is there must keep what it has, and a stream is none."""
    if status["stream"]:
        raise PreconditionFailed(
            406, f"PRECONDITION_FAILED - queue '{name}' is a stream: open it with store.stream()"
        )
    if not status["durable"] or status["exclusive"] or status["auto_delete"]:
        raise PreconditionFailed(
            406,
            f"PRECONDITION_FAILED - queue '{name}' is there and is not durable, or it is exclusive"
            " or deleted with its last consumer: delete it, or choose another name",
        )


def amqp_arguments(arguments: Mapping[str, FieldValue | timedelta]) -> dict[str, FieldValue]:
    """``max_length=5`` as ``{"x-max-length": 5}``; time spans in milliseconds."""
    return {
        "x-" + key.removeprefix("x-").removeprefix("x_").replace("_", "-"): (
            whole_milliseconds(value) if isinstance(value, timedelta) else value
        )
        for key, value in arguments.items()
    }


def milliseconds_of(expires: Seconds) -> int:
    """Whole milliseconds, those begun counted.  TypeError and ValueError that name ``expires``."""
    if isinstance(expires, timedelta):
        milliseconds: float = whole_milliseconds(expires)
    elif isinstance(cast("object", expires), int | float) and not isinstance(expires, bool):
        milliseconds = -(-expires * 1000 // 1)
    else:
        raise TypeError(f"expires must be seconds or a timedelta, not {type(expires).__name__}")
    if not 0 <= milliseconds <= _EXPIRES_MS_MAX:  # not a number as well
        raise ValueError(f"expires must be 0 to {_EXPIRES_MS_MAX // 1000} seconds, not {expires}")
    return int(milliseconds)


PERSISTENT = Properties(delivery_mode=2)
_TEXT = Properties(delivery_mode=2, content_type="text/plain", content_encoding="utf-8")


def envelope(
    body: object,
    codec: Codec | None,
    *,
    priority: int | None = None,
    expires: Seconds | None = None,
    headers: Mapping[str, FieldValue] | None = None,
) -> tuple[bytes, Properties]:
    """Body and properties of a message.  TypeError for what has no form as bytes."""
    properties = PERSISTENT
    if isinstance(body, bytes | bytearray | memoryview):
        encoded = cast("bytes", body)
    elif codec is not None:
        dumped = codec.dumps(body)
        encoded = dumped.encode() if isinstance(dumped, str) else dumped
        kind = getattr(codec, "content_type", None)
        if kind is not None:
            properties = Properties(delivery_mode=2, content_type=kind)
    elif isinstance(body, str):
        encoded, properties = body.encode(), _TEXT
    else:
        raise TypeError(
            f"a body is bytes or str, not {type(body).__name__}; give the queue a codec"
            " (codec=pyqstore.json) for other values"
        )
    if priority is not None or expires is not None or headers is not None:
        properties = properties.replace(
            priority=priority,
            expiration=None if expires is None else milliseconds_of(expires),
            headers=headers,
        )
    return encoded, properties


def is_arrow(data: object) -> bool:
    """Whether it speaks the Arrow PyCapsule protocol."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def only_messages(data: object) -> object:
    """Arrow data without columns that would lead elsewhere, or let messages go at a close."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    table = pyarrow.table(data)
    others = {"exchange", "routing_key", "delivery_mode"}
    return table.select([i for i, name in enumerate(table.column_names) if name not in others])


_ONE_BODY = (bytes, bytearray, memoryview, str, Mapping)


def bodies(data: object) -> Iterable[object]:
    """What can be iterated, unless it is one body."""
    if isinstance(data, _ONE_BODY) or not isinstance(data, Iterable) or is_ours(data):
        raise TypeError(
            f"put_many takes an iterable of bodies or Arrow data, not {type(data).__name__}"
        )
    return data


def first_ready(store: Store, name: str, count: int) -> list[Message]:
    """The first ``count`` ready messages, without taking them."""

    def damaged(error: StoreCorrupt) -> None:
        raise error

    found: list[Message] = []
    if count == 0:
        return found
    for message, state in peeks(store, name, damaged):
        if state == "ready":
            found.append(message)
            if len(found) == count:
                break
    return found
