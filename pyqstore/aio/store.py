"""Opening a store for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
)
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from .. import connection as synchronous_connection
from .. import queue as synchronous_queue
from .. import store as synchronous
from .. import stream_consumer as synchronous_consumer
from ..errors import StoreCorrupt
from ..fields import FieldValue
from ..figures import DetailedStats, Stats
from ..listening import Authenticate, Certified, Listener
from ..options import signature_of
from ..queue import Codec
from ..store import RecoveryReport, StoreOptions
from .awaiting import Taken
from .channel import Channel
from .connection import Connection
from .loop_channel import LoopChannel
from .message_trace import Trace
from .queue import Queue
from .registry import Registry
from .stream import Stream, StreamConsumer
from .threads import Threads
from .twin import Closing, PendingOpen, Twin, awaited

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from ..http.server import HttpServer

__all__ = ["Opening", "Store", "open"]

_CLOSE_POLL_S = 0.001


class Opening(PendingOpen["Store"]):
    """A store that is being opened: a coroutine that returns it, and an asynchronous context
    manager that opens and closes it.  From :func:`open`."""

    __slots__ = ()


def open(  # noqa: A001 - pyqstore.aio.open
    path: str | os.PathLike[str], **options: Unpack[StoreOptions]
) -> Opening:
    """Open the store in the directory ``path`` in a thread, like :func:`pyqstore.open`: ``async
    with aio.open(path) as store``, or ``store = await aio.open(path)``.

    ``progress`` is called in that thread.  If this is cancelled, the store is closed again.
    """
    return Opening(_open(path, options))


open.__signature__ = signature_of(open)  # type: ignore[attr-defined]


async def _open(path: str | os.PathLike[str], options: StoreOptions) -> Store:
    threads = Threads()

    def close(store: synchronous.Store) -> None:
        threads.begin(store.close)
        threads.end()

    try:
        store = await threads.run(partial(synchronous.open, path, **options), undo=close)
    except Exception:
        threads.end()
        raise
    return Store._owning(store, threads)


class Store(Twin[synchronous.Store], Closing):
    """An open store: one directory, one owner.  From :func:`open`; or ``Store(store)`` for an open
    :class:`pyqstore.Store`, which threads and loops then use together.

    If a store was given, closing this leaves it open; closing the given store ends this, too.  Any
    loop in any thread may use it; each channel is used by one loop.  Calls that may wait for the
    disk run in four threads that all channels share, and that start when they are needed.
    """

    def __init__(self, store: synchronous.Store) -> None:
        """StoreClosed, ForkedStore if the store cannot be used any more."""
        if not isinstance(store, synchronous.Store):
            raise TypeError(f"store must be a pyqstore.Store, not {type(store).__name__}")
        store._durable_lsn()
        self._twin = self._store = store
        self._is_owner = False
        self._threads = Threads()
        self._channels = Registry()
        store._faces.add(self._channels)
        self._closing: Future[None] | None = None
        self._mutex = threading.Lock()  # of _closing: loops in several threads may close

    @classmethod
    def _owning(cls, store: synchronous.Store, threads: Threads) -> Self:
        self = cls(store)
        self._threads = threads
        self._is_owner = True
        return self

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__} {self.path!r}{' (closed)' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the store, or this object, is closed."""
        return self._store.closed or self._channels.closed

    @property
    def path(self) -> str:
        """The directory that was given to :func:`open`."""
        return self._store.path

    @property
    def directory(self) -> str:
        """See ``pyqstore.Store.directory``."""
        return self._store.directory

    @property
    def options(self) -> Mapping[str, Any]:
        """The options in force, by name; read only."""
        return self._store.options

    @property
    def recovery_report(self) -> RecoveryReport:
        """What the open found and recovered."""
        return self._store.recovery_report

    async def channel(self) -> Channel:
        """Open a channel that is a connection of its own, for the running loop.

        Raises StoreClosed, ForkedStore.
        """
        return Channel(self._store, self._threads, self._channels, None)

    async def connection(self, name: str = "") -> Connection:
        """Open a connection, for channels that share exclusive queues.  Raises StoreClosed,
        ForkedStore."""
        return Connection(self._store, self._threads, self._channels, name)

    async def queue(
        self,
        name: str,
        *,
        codec: Codec | None = None,
        **arguments: FieldValue | timedelta,
    ) -> Queue:
        """Like :meth:`pyqstore.Store.queue`, for the running loop."""
        declare = partial(synchronous_queue.Queue, self._store, name, codec, arguments)
        queue = await self._threads.run(declare)
        synchronous_queue.warn_of_slips(name, arguments, stacklevel=2)
        return Queue(self, queue)

    @awaited(synchronous.Store.stream, made=Stream)
    def stream(self) -> None: ...

    @awaited(
        synchronous.Store.stream_consumer,
        made=StreamConsumer,
        undo=synchronous_consumer.StreamConsumer.close,
    )
    def stream_consumer(self) -> None:
        """``on_assign`` and ``on_revoke`` are called in a thread."""

    async def close(self) -> None:
        """Requeue unacknowledged messages, make everything durable, close the files.  Closing twice
        is fine.  If a store was given, it stays open: only the channels and connections that were
        opened here are closed.

        Tasks that wait on a channel, for an event or for the turn of a call, get ChannelClosed: in
        this loop before anything is closed, in another loop when that loop runs.  A call that runs
        in a thread ends with StoreClosed, or with its result.  A close that is cancelled goes on.
        In a child of fork() only memory is freed.
        """
        if self._store._forked:
            self._store.close()
            return
        ended = self._channels.close()
        with self._mutex:
            if self._closing is None:
                close = self._store.close if self._is_owner else partial(_close_all, ended)
                self._closing = self._threads.finish(close)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    @awaited(synchronous.Store.sync)
    def sync(self) -> None: ...

    @awaited(synchronous.Store.checkpoint)
    def checkpoint(self) -> None: ...

    @awaited(synchronous.Store.snapshot, by=Twin._apart)
    def snapshot(self) -> None:
        """If the task is cancelled, the snapshot is still made."""

    @awaited(synchronous.Store.accept_clock)
    def accept_clock(self) -> None: ...

    async def listen(
        self,
        address: str = "127.0.0.1:5672",
        *,
        vhosts: Mapping[str, Store] | None = None,
        users: Mapping[str, str] | Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        certified: Certified | None = None,
        product: str = "RabbitMQ",
        heartbeat: int = 60,
        connections_max: int = 16_384,
        channel_max: int = 2047,
        frame_max: int = 131_072,
        quorum_as_classic: bool = False,
        proxy_protocol: bool = False,
    ) -> Listener:
        """Like :meth:`pyqstore.Store.listen`.  ``close()`` of the listener waits for clients: call
        it in a thread, or close the store."""
        listen = partial(
            self._store.listen,
            address,
            vhosts=_synchronous(vhosts),
            users=users,
            tls=tls,
            certified=certified,
            product=product,
            heartbeat=heartbeat,
            connections_max=connections_max,
            channel_max=channel_max,
            frame_max=frame_max,
            quorum_as_classic=quorum_as_classic,
            proxy_protocol=proxy_protocol,
        )
        return await self._threads.run(listen)

    async def serve_page(
        self,
        port: int = 15_672,
        host: str = "127.0.0.1",
        *,
        vhosts: Mapping[str, Store] | None = None,
        users: Mapping[str, str] | Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        hosts: Collection[str] = (),
    ) -> HttpServer:
        """Like :meth:`pyqstore.Store.serve_page`.  ``close()`` of the result waits for clients:
        call it in a thread, or close the store."""
        serve = partial(
            self._store.serve_page,
            port,
            host,
            vhosts=_synchronous(vhosts),
            users=users,
            tls=tls,
            hosts=hosts,
        )
        return await self._threads.run(serve)

    async def _inline(self, call: Callable[[], Any]) -> Any:
        self._channels.check()
        return call()

    @awaited(synchronous.Store.queues, by=_inline)
    def queues(self) -> None: ...

    @awaited(synchronous.Store.exchanges, by=_inline)
    def exchanges(self) -> None: ...

    @awaited(synchronous.Store.bindings, by=_inline)
    def bindings(self) -> None: ...

    @awaited(synchronous.Store.queue_status)
    def queue_status(self) -> None: ...

    def browse(
        self,
        queue: str,
        start: int = 0,
        limit: int | None = None,
        *,
        damaged: Callable[[StoreCorrupt], object] | None = None,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Like :meth:`pyqstore.Store.browse`; ``damaged`` is called in a thread.  If an ``anext``
        is cancelled, the next one returns its message."""
        batches = self._store.browse(queue, start, limit, damaged=damaged)
        return Taken(partial(next, batches, None), self._threads)

    @awaited(synchronous.Store.set_queue_mode)
    def set_queue_mode(self) -> None: ...

    @awaited(synchronous.Store.transaction_known)
    def transaction_known(self) -> None: ...

    @awaited(synchronous.Store.adopt)
    def adopt(self) -> None: ...

    @awaited(synchronous.Store.forget_transaction)
    def forget_transaction(self) -> None: ...

    @overload
    async def stats(self, *, detail: Literal[False] = False) -> Stats: ...
    @overload
    async def stats(self, *, detail: Literal[True]) -> DetailedStats: ...
    @overload
    async def stats(self, *, detail: bool) -> Stats: ...
    async def stats(self, *, detail: bool = False) -> Stats:
        """Like :meth:`pyqstore.Store.stats`.

        Here ``auto_ack`` acknowledges a message when it is handed out.  Such a message is counted
        in ``get`` or ``deliver``, and in ``ack``.
        """
        self._channels.check()
        if detail:  # as much as there is: not for the loop
            return await self._threads.run(partial(self._store.stats, detail=True))
        return self._store.stats()

    @awaited(synchronous.Store.counters)
    def counters(self) -> None: ...

    def trace(self, exchange: str | None = None, queue: str | None = None) -> Trace:
        """Like :meth:`pyqstore.Store.trace`, for ``async with`` and ``async for``."""
        self._channels.check()
        return Trace(self._store.trace(exchange, queue), self._threads)


def _close_all(ended: list[LoopChannel | synchronous_connection.Connection]) -> None:
    """Close in a thread what no task uses any more, except for a running call."""
    for handle in ended:
        while True:
            try:
                handle.close()
                break
            except RuntimeError:  # a call is under way, and ends
                time.sleep(_CLOSE_POLL_S)


def _synchronous(vhosts: Any) -> Any:
    """The stores behind these, by name; anything else is passed on, and refused there."""
    if not isinstance(vhosts, Mapping):
        return vhosts
    return {name: each._store if isinstance(each, Store) else each for name, each in vhosts.items()}
