"""A channel's life: opened, closed, settled from other threads; and what it keeps meanwhile."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress

from .. import _core
from ..closing import Closing
from ..deliveries import Backlog
from ..forking import check_process, tell_in_child
from ..message import Message, ReturnedMessage, Transaction
from ..refusals import Refusals
from ..threadsafe import Settler

__all__ = [
    "ConfirmCallback",
    "Consumer",
    "Handle",
    "MessageCallback",
    "ReturnCallback",
    "raise_first",
    "tell_rest",
]

MessageCallback = Callable[[Message], object]
ConfirmCallback = Callable[[int, bool], object]
ReturnCallback = Callable[[ReturnedMessage], object]


class Consumer:
    """A consumer of this channel.  buffered: what came for it while nobody asked, if it has no
    callback.  cancelled: the store did it, but there is something buffered."""

    __slots__ = ("auto_ack", "buffered", "callback", "cancelled")

    def __init__(self, callback: MessageCallback | None, auto_ack: bool) -> None:
        self.callback: MessageCallback | None = callback
        self.auto_ack: bool = auto_ack
        self.cancelled: bool = False
        self.buffered: Backlog[Message] = Backlog()


class Handle(_core.Channel, Closing):
    """What every room of a channel's verbs stands on."""

    _is_made: bool = False  # the constructor has returned

    def __init__(self, store: _core.Store, connection: _core.Connection | None = None) -> None:
        """Open a channel; raises StoreClosed, ForkedStore, ChannelClosed (no connection any
        more)."""
        self._store = store
        self._connection = connection
        self._confirm_listeners: list[tuple[ConfirmCallback | None, ConfirmCallback | None]] = []
        self._return_listeners: list[ReturnCallback] = []
        self._cancel_listeners: list[Callable[[str], object]] = []
        self._consumers: dict[str, Consumer] = {}
        self._gone: dict[str, str] = {}  # the queues of the latest that the store cancelled
        self._callbacks = 0
        self._nacked = False
        self._refusals = Refusals(self._refused, store)
        self._transaction: Transaction | None = None
        self._consuming = False
        self._stop = False
        self._settler: Settler | None = None
        self._left: list[str] = []  # consumers to be cancelled: see _cancel_left
        self._ignore_returns(True)
        tell_in_child(self)
        self._is_made = True

    def __del__(self) -> None:
        # Nobody could close what the constructor did not return.
        if self._is_made and not self.closed and not self._store._forked:
            warnings.warn(f"unclosed channel {self!r}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def _forget_parent(self) -> None:
        """What came for the consumers is the parent's."""
        self._consumers = {}
        self._callbacks = 0

    def _check_process(self) -> None:
        """ForkedStore, from verbs that do not ask the engine."""
        check_process(self._store)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self.closed else ''}>"

    def close(self) -> None:
        """Requeue everything unacknowledged and cancel the consumers.  Closing twice is fine.

        Raises RuntimeError when another thread is inside a call on this channel.
        """
        settler = getattr(self, "_settler", None)
        if settler is not None and not self.closed:
            with suppress(Exception):  # those who asked are told
                settler._settle()
        self._close()
        if settler is not None:
            settler._close()
            self._forget_event_fd()
        if self._is_made:  # else there is no more of it than its base
            raise_first(self._tell_rest())

    def _tell_rest(self) -> list[Exception]:
        """The channel is closed: who listens to outcomes hears those that were not told.  Returns
        what listeners raised."""
        raised: list[Exception] = []
        while True:
            try:
                if not self._tell_closed():
                    return raised
            except Exception as error:
                raised.append(error)

    def _free(self) -> None:
        """For the store, which is closed."""
        super()._free()
        settler = getattr(self, "_settler", None)
        if settler is not None:
            settler._close()

    def threadsafe(self) -> Settler:
        """A :class:`~pyqstore.Settler`, always the same, with which other threads acknowledge and
        reject deliveries of this channel while this thread waits in ``process_events`` or
        ``start_consuming``: for a pool of threads behind a consumer::

            settler = channel.threadsafe()

            def handle(message):
                work(message.body)
                settler.basic_ack(message.delivery_tag)

            channel.basic_qos(8)
            channel.basic_consume("jobs", lambda message: pool.submit(handle, message))
            channel.start_consuming()
        """
        self._check_process()
        if self._settler is None:
            self._settler = Settler(self, self._store)
            self._next_event = self._settler._next_event  # type: ignore[method-assign]
        return self._settler


def tell_rest(store: _core.Store, connection: _core.Connection | None = None) -> list[Exception]:
    """These are closed, and so are their channels: see ``Handle._tell_rest``."""
    raised: list[Exception] = []
    for reference in store._listened.valuerefs():
        channel = reference()
        if channel is not None and connection in (None, channel._connection):
            raised += channel._tell_rest()
    return raised


def raise_first(raised: list[Exception]) -> None:
    """What listeners raised, if they did."""
    for error in raised:
        raise error
