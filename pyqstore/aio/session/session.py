"""Sessions of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from ... import session as synchronous
from ...errors import Error
from ...session.destinations import Queue, Topic
from ...session.errors import IllegalState, TransactionRolledBack
from ...session.listening import NO_CLOSE
from ...session.modes import Mode
from ..awaiting import Taken
from ..threads import Threads
from ..twin import Closing, Twin, awaited
from .consumer import Consumer
from .message import Message
from .producer import Producer
from .turns import Turns

__all__ = ["Session"]


def _consumer(session: Session, made: synchronous.Consumer) -> Consumer:
    return Consumer(session._turns, session._threads, made)


def _producer(session: Session, made: synchronous.Producer) -> Producer:
    return Producer(session._threads, made)


class Session(Twin[synchronous.Session], Closing):
    """Receives and sends by the rules of one acknowledgement mode: see
    :class:`pyqstore.session.Session`.  One task at a time uses it.  Once a consumer has a listener,
    that is the session's own task, and other tasks may close, send and acknowledge."""

    def __init__(
        self,
        session: synchronous.Session,
        threads: Threads,
        on_close: Callable[[Session], object],
    ) -> None:
        """See ``Connection.session``."""
        self._twin = session
        self._threads = threads
        self._on_close = on_close
        session._peers.message_type = Message
        self._turns = Turns(session, threads)
        self._committing: asyncio.Future[None] | None = None  # for somebody who was cancelled

    def __repr__(self) -> str:
        return f"<aio.{self._twin!r}"[:-1] + ">"

    @property
    def mode(self) -> Mode:
        """The acknowledgement mode."""
        return self._twin.mode

    @property
    def transacted(self) -> bool:
        """Whether the mode is "transacted"."""
        return self._twin.transacted

    @property
    def closed(self) -> bool:
        """Whether the session or its connection was closed."""
        return self._twin.closed

    def queue(self, name: str) -> Queue:
        """Like :meth:`pyqstore.session.Session.queue`."""
        return self._twin.queue(name)

    def topic(self, name: str) -> Topic:
        """Like :meth:`pyqstore.session.Session.topic`."""
        return self._twin.topic(name)

    @awaited(synchronous.Session.groups)
    def groups(self) -> None: ...

    @awaited(synchronous.Session.temporary_queue)
    def temporary_queue(self) -> None: ...

    @awaited(synchronous.Session.consumer, made=_consumer, undo=synchronous.Consumer.close)
    def consumer(self) -> None: ...

    @awaited(synchronous.Session.subscribe, made=_consumer, undo=synchronous.Consumer.close)
    def subscribe(self) -> None: ...

    @awaited(synchronous.Session.unsubscribe)
    def unsubscribe(self) -> None: ...

    def browse(self, queue: Queue) -> AsyncIterator[synchronous.Message]:
        """Like :meth:`pyqstore.session.Session.browse`: ``async for message in s.browse(queue)``.
        If an ``anext`` is cancelled, the next one returns its message."""
        found = self._twin.browse(queue)
        return Taken(partial(next, found, None), self._threads)

    @awaited(synchronous.Session.producer, made=_producer)
    def producer(self) -> None: ...

    async def commit(self) -> None:
        """Like :meth:`pyqstore.session.Session.commit`.  If this is cancelled, it goes on.  If it
        then fails, the next commit raises TransactionRolledBack, unless ``rollback()`` is called
        before."""
        self._threads.check_process()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        committing = asyncio.ensure_future(self._threads.run(self._twin.commit))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            self._committing = committing
            committing.add_done_callback(self._committed_for_nobody)
            raise

    def _committed_for_nobody(self, committing: asyncio.Future[None]) -> None:
        if self._committing is committing:
            self._committing = None
        error = None if committing.cancelled() else committing.exception()
        if isinstance(error, TransactionRolledBack) and isinstance(error.__cause__, Error):
            self._twin._peers.loss = error.__cause__

    async def rollback(self) -> None:
        """Like :meth:`pyqstore.session.Session.rollback`."""
        self._threads.check_process()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        await asyncio.shield(self._threads.run(self._twin.rollback))

    async def recover(self) -> None:
        """Like :meth:`pyqstore.session.Session.recover`."""
        await asyncio.shield(self._threads.run(self._twin.recover))

    def _check_not_listening(self) -> None:
        if self._turns.is_here:
            raise IllegalState(NO_CLOSE)

    async def close(self) -> None:
        """Like :meth:`pyqstore.session.Session.close`.  If this is cancelled while a listener runs,
        the session stays open."""
        if self.closed:
            return
        self._check_not_listening()
        await self._turns.end()
        await asyncio.shield(self._end())

    async def _end(self) -> None:
        try:
            await self._threads.run(self._twin.close)
        finally:
            self._turns.wake()
            self._on_close(self)
