"""Sessions of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import Self

from ... import session as synchronous
from ...errors import Error
from ...session.destinations import Destination, Groups, Queue, Topic
from ...session.errors import IllegalState, TransactionRolledBack
from ...session.listening import NO_CLOSE
from ...session.modes import Mode
from ...session.redelivery import RedeliveryPolicy
from ...waiting import Seconds
from ..awaiting import Taken
from ..threads import Threads
from .consumer import Consumer
from .message import Message
from .producer import Producer
from .turns import Turns

__all__ = ["Session"]


class Session:
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
        self._session = session
        self._threads = threads
        self._on_close = on_close
        session._peers.message_type = Message
        self._turns = Turns(session, threads)
        self._committing: asyncio.Future[None] | None = None  # for somebody who was cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio.{self._session!r}"[:-1] + ">"

    @property
    def mode(self) -> Mode:
        """The acknowledgement mode."""
        return self._session.mode

    @property
    def transacted(self) -> bool:
        """Whether the mode is "transacted"."""
        return self._session.transacted

    @property
    def closed(self) -> bool:
        """Whether the session or its connection was closed."""
        return self._session.closed

    def queue(self, name: str) -> Queue:
        """Like :meth:`pyqstore.session.Session.queue`."""
        return self._session.queue(name)

    def topic(self, name: str) -> Topic:
        """Like :meth:`pyqstore.session.Session.topic`."""
        return self._session.topic(name)

    async def groups(self, name: str, count: int) -> Groups:
        """Like :meth:`pyqstore.session.Session.groups`."""
        return await self._threads.run(partial(self._session.groups, name, count))

    async def temporary_queue(self) -> Queue:
        """Like :meth:`pyqstore.session.Session.temporary_queue`."""
        return await self._threads.run(self._session.temporary_queue)

    async def consumer(
        self,
        destination: Destination,
        *,
        prefetch: int | None = None,
        optimize_acknowledge: bool | None = None,
        optimize_timeout: Seconds | None = None,
        selector: str | None = None,
        redelivery: RedeliveryPolicy | None = None,
    ) -> Consumer:
        """Like :meth:`pyqstore.session.Session.consumer`."""
        make = partial(
            self._session.consumer,
            destination,
            prefetch=prefetch,
            optimize_acknowledge=optimize_acknowledge,
            optimize_timeout=optimize_timeout,
            selector=selector,
            redelivery=redelivery,
        )
        made = await self._threads.run(make, undo=synchronous.Consumer.close)
        return Consumer(self._turns, self._threads, made)

    async def subscribe(
        self,
        topic: Topic,
        name: str | None = None,
        *,
        durable: bool = False,
        shared: bool = False,
        selector: str | None = None,
        prefetch: int | None = None,
        optimize_acknowledge: bool | None = None,
        optimize_timeout: Seconds | None = None,
        redelivery: RedeliveryPolicy | None = None,
    ) -> Consumer:
        """Like :meth:`pyqstore.session.Session.subscribe`."""
        make = partial(
            self._session.subscribe,
            topic,
            name,
            durable=durable,
            shared=shared,
            selector=selector,
            prefetch=prefetch,
            optimize_acknowledge=optimize_acknowledge,
            optimize_timeout=optimize_timeout,
            redelivery=redelivery,
        )
        made = await self._threads.run(make, undo=synchronous.Consumer.close)
        return Consumer(self._turns, self._threads, made)

    async def unsubscribe(self, name: str) -> None:
        """Like :meth:`pyqstore.session.Session.unsubscribe`."""
        await self._threads.run(partial(self._session.unsubscribe, name))

    def browse(self, queue: Queue) -> AsyncIterator[synchronous.Message]:
        """Like :meth:`pyqstore.session.Session.browse`: ``async for message in s.browse(queue)``.
        If an ``anext`` is cancelled, the next one returns its message."""
        found = self._session.browse(queue)
        return Taken(partial(next, found, None), self._threads)

    async def producer(self, destination: Destination | None = None) -> Producer:
        """Like :meth:`pyqstore.session.Session.producer`."""
        make = partial(self._session.producer, destination)
        return Producer(self._threads, await self._threads.run(make))

    async def commit(self) -> None:
        """Like :meth:`pyqstore.session.Session.commit`.  If this is cancelled, it goes on.  If it
        then fails, the next commit raises TransactionRolledBack, unless ``rollback()`` is called
        before."""
        self._threads.check_process()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        committing = asyncio.ensure_future(self._threads.run(self._session.commit))
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
            self._session._peers.loss = error.__cause__

    async def rollback(self) -> None:
        """Like :meth:`pyqstore.session.Session.rollback`."""
        self._threads.check_process()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        await asyncio.shield(self._threads.run(self._session.rollback))

    async def recover(self) -> None:
        """Like :meth:`pyqstore.session.Session.recover`."""
        await asyncio.shield(self._threads.run(self._session.recover))

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
            await self._threads.run(self._session.close)
        finally:
            self._turns.wake()
            self._on_close(self)
