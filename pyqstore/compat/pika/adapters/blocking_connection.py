"""pika's blocking connection over a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar, Self

from ....connection import Connection
from ....errors import Error
from ....waiting import Deadline
from ...sharing import Attachment, attach
from .. import exceptions, frame
from ..connection import ConnectionParameters, Parameters
from ..returned import ReturnedMessage
from .blocking_channel import BlockingChannel
from .link import Link
from .translating import check_process, translated
from .turns import Turns

__all__ = ["BlockingChannel", "BlockingConnection", "ReturnedMessage"]


class BlockingConnection(Link):
    """A connection to a store, for one thread.

    Callbacks and timers run in ``process_data_events``, ``sleep`` and ``start_consuming``, and
    while ``consume`` waits.  If another process owns the store, this is a connection of pika itself
    to that process.
    """

    _remote: ClassVar[type[Any]]  # the class for a store that another process owns
    _attachment: Attachment
    _parameters: Parameters

    def __new__(
        cls,
        parameters: Parameters | Sequence[Parameters] | None = None,
        _impl_class: Any = None,
    ) -> Self:
        """Open the store or find its owner.  AMQPConnectionError says why neither is possible."""
        chosen, attachment = _attached(parameters)
        self: Self = object.__new__(cls if attachment.store is not None else cls._remote)
        self._parameters = chosen
        self._attachment = attachment
        return self

    def __init__(
        self,
        parameters: Parameters | Sequence[Parameters] | None = None,
        _impl_class: Any = None,
    ) -> None:
        store = self._attachment.store
        assert store is not None
        self._turns = Turns()
        self._channels: dict[int, BlockingChannel] = {}
        self._callbacks_running = 0
        self._impl = Connection(store, "pika")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'open' if self.is_open else 'closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_open:
            self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # __init__ may have raised
            self._end_impl()
        with suppress(Exception):
            self._attachment.drop()

    # ---- Channels ----

    def channel(self, channel_number: int | None = None) -> BlockingChannel:
        """Open a channel.  Without a number it takes the lowest free one."""
        self._check_open()
        number = self._free_number() if channel_number is None else channel_number
        if type(number) is not int or number < 1:
            raise exceptions.InvalidChannelNumber(number)
        if number in self._channels:
            raise ValueError(f"channel {number} is open already")
        try:
            channel = BlockingChannel(self._impl.channel(), self)
        except Error as error:
            raise translated(error) from error
        channel._number = number
        self._channels[number] = channel
        return channel

    def _free_number(self) -> int:
        most = min(self._parameters.channel_max, Parameters.DEFAULT_CHANNEL_MAX)
        for number in range(1, most + 1):
            if number not in self._channels:
                return number
        raise exceptions.NoFreeChannels

    def _forget(self, channel: BlockingChannel) -> None:
        """Removes a closed channel."""
        if self._channels.get(channel.channel_number) is channel:
            del self._channels[channel.channel_number]

    # ---- Events ----

    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run the callbacks and timers that are due, or wait for the first one, at most
        ``time_limit`` seconds; None waits without limit.  Inside a callback it runs no others and
        only sleeps."""
        self._check_open()
        if self._callbacks_running:
            time.sleep(time_limit or 0)
            return
        deadline = Deadline(time_limit)
        while not (self._run() or deadline.over):
            self._check_store()
            armed = [channel._arm() for channel in list(self._channels.values())]
            if all(armed):
                self._turns.wait(deadline.left_s())

    def _run(self) -> int:
        with self._dispatching():
            handled = self._turns.run()
            for channel in list(self._channels.values()):
                handled += channel._dispatch_events()
            return handled

    @contextmanager
    def _dispatching(self) -> Iterator[None]:
        self._callbacks_running += 1
        try:
            yield
        finally:
            self._callbacks_running -= 1

    def sleep(self, duration: float) -> None:
        """Process events for ``duration`` seconds."""
        deadline = Deadline(duration)
        while True:
            self.process_data_events(deadline.left_s())
            if deadline.over:
                break

    def call_later(self, delay: float, callback: Callable[[], None]) -> int:
        """Call ``callback`` in ``delay`` seconds; returns the timer's number."""
        _check_callable(callback)
        return self._turns.later(delay, callback)

    def remove_timeout(self, timeout_id: int) -> None:
        """Cancel a timer of ``call_later``."""
        self._turns.forget(timeout_id)

    def add_callback_threadsafe(self, callback: Callable[..., None]) -> None:
        """Run the callback in the connection's thread.  Only this method may be called by any
        thread."""
        if self.is_closed or not self._turns.ask(callback):
            raise exceptions.ConnectionWrongStateError(
                "add_callback_threadsafe() called on a closed connection"
            )

    def add_on_connection_blocked_callback(
        self, callback: Callable[[Any, frame.Method[Any]], None]
    ) -> None:
        """The callback is never called: a publish to a full store raises
        ConnectionBlockedTimeout."""
        _check_callable(callback)

    def add_on_connection_unblocked_callback(
        self, callback: Callable[[Any, frame.Method[Any]], None]
    ) -> None:
        """The callback is never called."""
        _check_callable(callback)

    # ---- The end ----

    def update_secret(self, new_secret: str, reason: str) -> None:
        """Does nothing: a store has no secret."""
        self._check_open()

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown") -> None:
        """Close the channels and return their unacknowledged messages.  The last connection of the
        process closes the store."""
        self._check_open()
        for channel in list(self._channels.values()):
            with suppress(exceptions.AMQPError):
                channel.close(reply_code, reply_text)
        self._end()

    def _end(self) -> None:
        """Releases everything, in any state."""
        self._end_impl()
        self._attachment.close()

    def _end_impl(self) -> None:
        impl = getattr(self, "_impl", None)
        if impl is not None:
            for channel in list(self._channels.values()):
                channel._end()
            self._turns.close()
            impl.close()

    def _check_store(self) -> None:
        store = self._attachment.store
        if store is not None:
            check_process(store)
        if store is not None and store.closed:  # by the thread that shared it
            self._end()
            raise exceptions.StreamLostError("the store was closed")

    def _check_open(self) -> None:
        if self.is_closed:
            check_process(self._impl._store)
            raise exceptions.ConnectionWrongStateError("the connection is closed")

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed, by ``close()`` or by an error."""
        return self._impl.closed

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return not self.is_closed

    # ---- What it can do ----

    @property
    def basic_nack_supported(self) -> bool:
        """True."""
        return True

    @property
    def consumer_cancel_notify_supported(self) -> bool:
        """True."""
        return True

    @property
    def exchange_exchange_bindings_supported(self) -> bool:
        """True."""
        return True

    @property
    def publisher_confirms_supported(self) -> bool:
        """True."""
        return True

    basic_nack = basic_nack_supported
    consumer_cancel_notify = consumer_cancel_notify_supported
    exchange_exchange_bindings = exchange_exchange_bindings_supported
    publisher_confirms = publisher_confirms_supported


def _check_callable(callback: object) -> None:
    if not callable(callback):
        raise TypeError(f"callback must be callable, but got {callback!r}")


def _attached(
    parameters: Parameters | Sequence[Parameters] | None,
) -> tuple[Parameters, Attachment]:
    """The first parameters whose store can be opened or reached."""
    if parameters is None:
        parameters = ConnectionParameters()
    several = (parameters,) if isinstance(parameters, Parameters) else tuple(parameters)
    if not several:
        raise ValueError("Expected a non-empty sequence of connection parameters")
    trouble: Exception | None = None
    for one in several:
        try:
            return one, attach(one.path)
        except (Error, OSError, ValueError) as error:
            trouble = exceptions.AMQPConnectionError(str(error))
            trouble.__cause__ = error
        except exceptions.AMQPConnectionError as error:
            trouble = error
    assert trouble is not None
    raise trouble
