"""Connections of asyncio."""

from __future__ import annotations

import asyncio
from functools import partial

from ... import session as synchronous
from ...session.errors import IllegalState
from ...session.failures import ExceptionListener
from ...session.options import Options
from ...session.redelivery import RedeliveryPolicy
from ...store import Store as SynchronousStore
from ..store import Store
from ..threads import Threads
from ..twin import Closing, PendingOpen
from .session import Session

__all__ = ["Connecting", "Connection", "connect"]


class Connecting(PendingOpen["Connection"]):
    """A connection that is being made: a coroutine that returns it, and an asynchronous context
    manager that makes and closes it.  From :func:`connect`."""

    __slots__ = ()


def connect(
    uri_or_store: str | Store | SynchronousStore,
    client_id: str | None = None,
    redelivery: RedeliveryPolicy | None = None,
) -> Connecting:
    """Like :func:`pyqstore.session.connect`: ``async with connect(store) as connection``, or
    ``connection = await connect(store)``."""

    async def make() -> Connection:
        store = uri_or_store._store if isinstance(uri_or_store, Store) else uri_or_store
        threads = Threads(IllegalState("The connection is closed"))
        opening = partial(synchronous.connect, store, client_id, redelivery)
        try:
            made = await threads.run(opening, undo=synchronous.Connection.close)
        except BaseException:
            threads.end()
            raise
        face = uri_or_store if isinstance(uri_or_store, Store) else Store(made.store)
        return Connection(made, face, threads)

    return Connecting(make())


class Connection(Closing):
    """Sessions of one client: see :class:`pyqstore.session.Connection`.  From :func:`connect`."""

    def __init__(self, connection: synchronous.Connection, store: Store, threads: Threads) -> None:
        """See :func:`connect`."""
        self._connection = connection
        self._store = store
        self._threads = threads
        self._sessions: set[Session] = set()

    def __repr__(self) -> str:
        return f"<aio.{self._connection!r}"[:-1] + ">"

    @property
    def client_id(self) -> str | None:
        """The connection's client id."""
        return self._connection.client_id

    @property
    def store(self) -> Store:
        """The connected store."""
        return self._store

    @property
    def options(self) -> Options:
        """The default options of consumers and producers."""
        return self._connection.options

    @property
    def closed(self) -> bool:
        """Whether the connection was closed."""
        return self._connection.closed

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Like :attr:`pyqstore.session.Connection.exception_listener`: a function or a coroutine
        function, called in the loop of the session."""
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    async def session(self, mode: str = "auto") -> Session:
        """Like :meth:`pyqstore.session.Connection.session`, for the running loop."""
        made = await self._threads.run(
            partial(self._connection.session, mode), undo=synchronous.Session.close
        )
        session = Session(made, self._threads, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Like :meth:`pyqstore.session.Connection.close`."""
        if self.closed:
            return
        for session in list(self._sessions):
            session._check_not_listening()
        raised: list[Exception] = []
        for session in list(self._sessions):  # all of them
            try:
                await session.close()
            except Exception as error:
                raised.append(error)
        try:
            if not self.closed:  # by another task meanwhile
                await asyncio.shield(self._threads.run(self._connection.close))
        finally:
            self._threads.end()
        if raised:
            raise raised[0]
