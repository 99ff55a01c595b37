"""Connections, which are shared by sessions."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace

from ..callbacks import check_callable
from ..closing import Closing
from ..forking import check_process
from ..store import Store
from .errors import IllegalState
from .failures import ExceptionListener
from .modes import Mode, check_mode
from .options import Options, parse_uri
from .redelivery import RedeliveryPolicy
from .registry import Opened, Registry
from .session import Home, Session

__all__ = ["Connection", "connect"]


def connect(
    uri_or_store: str | Store,
    client_id: str | None = None,
    redelivery: RedeliveryPolicy | None = None,
) -> Connection:
    """Connect to an open store, or to one by URI, ``qstore:///path?prefetch=100``.

    Connections by URI in one process share the store; the last close closes it.  The options of a
    URI have the names of ActiveMQ, times in milliseconds, with or without "jms.": ``prefetch`` and
    ``prefetchPolicy.*``, ``optimizeAcknowledge``, ``optimizeAcknowledgeTimeOut``,
    ``redeliveryPolicy.*``, ``nonBlockingRedelivery``, ``sendAcksAsync`` (false: an acknowledgement
    is durable when it returns), ``useAsyncSend`` (true: ``send`` does not wait),
    ``deadLetterQueue``, ``clientID``.

    ``client_id``: the name of this connection, for durable subscriptions; one connection at a time
    has it.  ``redelivery``: the policy of redeliveries.  Both take precedence over the URI.

    ValueError names an unknown option; IllegalState: the client id is in use; errors of ``open``.
    """
    return Connection(uri_or_store, client_id, redelivery)


class Connection(Closing):
    """Sessions of one client: from :func:`connect`.  Any thread may use it."""

    def __init__(
        self,
        uri_or_store: str | Store,
        client_id: str | None = None,
        redelivery: RedeliveryPolicy | None = None,
    ) -> None:
        """See :func:`connect`."""
        self._path: str | None = None
        options = Options()
        if isinstance(uri_or_store, str):
            self._path, options = parse_uri(uri_or_store)
        elif not isinstance(uri_or_store, Store):
            kind = type(uri_or_store).__name__
            raise TypeError(f"connect to a URI or to a pyqstore.Store, not {kind}")
        if client_id is not None:
            options = replace(options, client_id=client_id)
        if redelivery is not None:
            options = replace(options, redelivery=redelivery)
        self._options = options
        self._lock = threading.Lock()
        self._is_closed = False
        self._sessions: set[Session] = set()
        self._store = uri_or_store if isinstance(uri_or_store, Store) else self._opened()
        try:
            self._store._check()
            registry = Registry.of(self._store)
            if options.client_id is not None:
                registry.enter(options.client_id)
            try:
                connection = self._store.connection(options.client_id or "")
            except BaseException:
                registry.leave(options.client_id or "")
                raise
        except BaseException:
            self._leave_store()
            raise
        self._home = Home(self._store, connection, registry, options)

    def _opened(self) -> Store:
        assert self._path is not None
        return Opened.open(self._path)

    def _leave_store(self) -> None:
        if self._path is not None:
            Opened.close(self._path, self._store)

    def __repr__(self) -> str:
        name = f" {self.client_id!r}" if self.client_id is not None else ""
        return (
            f"<{type(self).__name__}{name} to {self._store!r}{' (closed)' if self.closed else ''}>"
        )

    @property
    def client_id(self) -> str | None:
        """The connection's name."""
        return self._options.client_id

    @property
    def store(self) -> Store:
        """The store of the connection."""
        return self._store

    @property
    def options(self) -> Options:
        """Defaults of consumers and producers."""
        return self._options

    @property
    def closed(self) -> bool:
        """Whether the connection was closed; True in a child of fork()."""
        return self._is_closed or self._store._forked

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function, called with an :class:`~pyqstore.Error` when listeners of the sessions are
        not called any more.  IllegalState names a deleted queue, once for each consumer; an error
        of the store ends all listeners of a session.  The call comes in the session's own thread.
        Without a function (None) the error is logged.
        """
        return self._home.failures.listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        check_callable(exception_listener=listener)
        self._home.failures.listener = listener

    def session(self, mode: str = "auto") -> Session:
        """A session that acknowledges

        - "auto": each message when ``receive`` returns it, or its listener has returned;
        - "client": all that the session has delivered, with ``Message.acknowledge()``;
        - "dups_ok": late and in batches;
        - "transacted": with ``Session.commit()``;
        - "individual": each message with its ``acknowledge()``.

        IllegalState: the connection is closed; ValueError: another mode.
        """
        check_process(self._store)
        checked: Mode = check_mode(mode)
        with self._lock:
            if self._is_closed:
                raise IllegalState("The connection is closed")
            session = Session(self._home, checked, self._sessions.discard)
            self._sessions.add(session)
        return session

    def close(self) -> None:
        """Close the sessions, and the store if it was opened by URI and no other connection is
        open.  Closing twice is fine.

        Waits for running listeners.  IllegalState: a listener calls this.
        """
        if self._store._forked:  # the resources are the parent's
            return
        for session in list(self._sessions):
            session._check_not_listening()
        with ExitStack() as rest:  # close all of them, even after errors
            with self._lock:
                is_first = not self._is_closed
                self._is_closed = True
            if is_first:
                rest.callback(self._end)
            for session in list(self._sessions):
                rest.callback(session.close)

    def _end(self) -> None:
        with ExitStack() as rest:
            rest.callback(self._leave_store)
            if self._options.client_id is not None:
                rest.callback(self._home.registry.leave, self._options.client_id)
            if not self._store.closed:
                rest.callback(self._home.connection.close)
