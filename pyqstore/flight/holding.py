"""Connections that the server holds for clients, each with a channel that has the client's
deliveries."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..channel import Channel
from ..connection import Connection
from ..errors import ChannelClosed
from ..store import Store

__all__ = ["Held", "Holdings"]


_TOLD = "the next call begins anew"


class Held:
    """One client's connection.  It ends with the call that holds it, and its unsettled deliveries
    are requeued.

    If an error closed the connection or its channel, the client's next call that needs it reports
    that once; later calls have another connection.
    """

    def __init__(self, store: Store, peer: str) -> None:
        self.key: str = secrets.token_urlsafe(16)  # whoever knows it may settle
        self._store = store
        self._name = f"flight {peer}"
        self._lock = threading.Lock()
        self.is_over: bool = False
        self._open()

    def _open(self) -> None:
        self._connection: Connection = self._store.connection(self._name)
        self._channel: Channel = self._connection.channel()

    @property
    def connection(self) -> Connection:
        """The connection, for further channels while another call may use its channel.
        ChannelClosed."""
        if self._connection.closed:
            with self._lock:
                self._look()
        return self._connection

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """The channel with the client's deliveries, for one call at a time.  ChannelClosed."""
        with self._lock:
            self._look()
            yield self._channel

    def _look(self) -> None:
        if self.is_over:
            raise ChannelClosed("the connection is closed")
        if self._connection.closed:
            self._channel.close()
            self._open()
            raise ChannelClosed(
                "an error closed the connection: what was got and not acknowledged went back, and"
                f" its exclusive queues are gone; {_TOLD}"
            )
        if self._channel.closed:
            self._channel = self._connection.channel()
            raise ChannelClosed(
                f"an error closed the channel: what was got and not acknowledged went back; {_TOLD}"
            )

    def close(self) -> None:
        """Requeue everything.  A running call ends first."""
        self.is_over = True
        with self._lock:
            self._channel.close()
            self._connection.close()


class Holdings:
    """All held connections of a server, by the key that their clients have."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()

    def open(self, peer: str) -> Held:
        """Hold a new one.  ChannelClosed: the server has its maximum."""
        with self._lock:
            if len(self._held) >= self._most:
                raise ChannelClosed(f"the server has {self._most} connections, which is its limit")
            held = Held(self._store, peer)
            self._held[held.key] = held
        return held

    def find(self, key: str) -> Held:
        """The connection of that key.  ChannelClosed: it has ended."""
        held = self._held.get(key)
        if held is None:
            raise ChannelClosed("the connection is closed: its client went, or the server")
        return held

    def close(self, held: Held) -> None:
        """End the connection."""
        with self._lock:
            self._held.pop(held.key, None)
        held.close()
