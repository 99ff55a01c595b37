"""Connections: what channels can share."""

from __future__ import annotations

import warnings
from typing import Self

from . import _core
from .channel import Channel
from .channel.handle import raise_first, tell_rest
from .closing import Closing

__all__ = ["Connection"]


class Connection(_core.Connection, Closing):
    """A group of channels, from ``Store.connection()``.  Any thread may use it.

    Its exclusive queues are open to all of its channels and to nobody else, and go when it closes.
    Most AMQP errors close the channel they happened on; those with a ``reply_code`` of 500 or more
    (:class:`~pyqstore.NotAllowed`, :class:`~pyqstore.NotImplementedByBroker`, an unknown exchange
    type) close the connection with all of its channels, as a broker would.

    A channel of ``Store.channel()`` is a connection of its own: what it declares exclusive is its
    alone, and every AMQP error closes just that channel.
    """

    _name: str
    _store: _core.Store
    _is_made: bool = False  # the constructor has returned

    def __init__(self, store: _core.Store, name: str = "") -> None:
        """Open a connection; raises StoreClosed and ForkedStore."""
        self._store = store
        self._name = name
        self._is_made = True

    def __new__(cls, store: _core.Store, name: str = "") -> Self:
        """See ``Store.connection``."""
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        return super().__new__(cls, store)

    def __del__(self) -> None:
        if self._is_made and not self.closed and not self._store._forked:
            warnings.warn(
                f"unclosed connection {self!r}", ResourceWarning, stacklevel=2, source=self
            )
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}{' (closed)' if self.closed else ''}>"

    def close(self) -> None:
        """Close the channels, which requeues what they hold, and delete the exclusive queues.
        Closing twice is fine.

        A channel that waits in another thread raises ChannelClosed there.
        """
        self._close()
        if self._is_made:
            raise_first(tell_rest(self._store, self))

    @property
    def name(self) -> str:
        """What it was called when it was opened; for people."""
        return self._name

    def channel(self) -> Channel:
        """Open a channel.  Raises ChannelClosed when the connection is closed, StoreClosed,
        ForkedStore."""
        return Channel(self._store, self)
