"""Streams and their consumers, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from .. import stream as synchronous
from .. import stream_consumer as synchronous_consumer
from ..stream import Reader, Start
from ..stream_consumer import rows_of
from ..waiting import Deadline, Seconds, check_main
from .calls import Calls
from .twin import Closing, Twin, awaited

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["Stream", "StreamConsumer"]


class Stream(Twin[synchronous.Stream]):
    """A log of messages, from ``Store.stream()``: see :class:`pyqstore.Stream`.  Any task may use
    it."""

    def __init__(self, store: Store, stream: synchronous.Stream) -> None:
        """See ``Store.stream``."""
        self._store = store
        self._threads = store._threads
        self._twin = stream

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__} {self.name!r} of {self._store!r}>"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._twin.name

    @property
    def first(self) -> int:
        """The offset of the first message that is kept."""
        return self._twin.first

    @property
    def next(self) -> int:
        """The offset of the next message to be published."""
        return self._twin.next

    def __len__(self) -> int:
        """The number of messages that are kept.  NotFound: the stream was deleted."""
        return len(self._twin)

    def __bool__(self) -> bool:
        return True

    @awaited(synchronous.Stream.status)
    def status(self) -> None: ...

    @awaited(synchronous.Stream.offset_at)
    def offset_at(self) -> None: ...

    @awaited(synchronous.Stream.publish)
    def publish(self) -> None:
        """If this is cancelled, the message may have been published."""

    @awaited(synchronous.Stream.publish_batch, by=Twin._apart)
    def publish_batch(self) -> None:
        """The receipt is a :class:`pyqstore.Receipt`, with nothing to await.  If this is cancelled,
        it goes on."""

    def read(
        self,
        start: Start = "first",
        stop: str | int | datetime | timedelta | None = None,
        columns: Sequence[str] | None = None,
        routing_keys: Sequence[str] | None = None,
        follow: bool = False,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Like :meth:`pyqstore.Stream.read`: ``async for batch in stream.read()``.

        After a step that was cancelled the next one continues after the last returned batch.
        """
        make = partial(self._twin._reader, start, stop, columns, routing_keys, follow)
        return _Batches(self._store, make)

    @awaited(synchronous.Stream.forget_group)
    def forget_group(self) -> None: ...

    @awaited(synchronous.Stream.delete)
    def delete(self) -> None: ...


class _Batches(AsyncIterator["pyarrow.RecordBatch"]):
    """The batches of ``Stream.read``.  It is no generator, because an exception thrown into a
    generator ends it."""

    def __init__(self, store: Store, make: Callable[[], Reader]) -> None:
        self._calls = Calls(store._threads)
        self._make = make
        self._reader: Reader | None = None
        self._is_closed = False
        self._is_in_use = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pyarrow.RecordBatch:
        if self._is_in_use:
            raise RuntimeError("another task is using this reader; open one for each")
        self._is_in_use = True
        try:
            return await self._next()
        finally:
            self._is_in_use = False

    async def _next(self) -> pyarrow.RecordBatch:
        while not self._is_closed:
            if self._reader is None:
                await self._calls.run(self._open)
            elif self._reader.over:
                break
            # Nothing is awaited between taking the rows and returning them, so none are lost.
            elif (found := await self._calls.run_apart(self._reader.look)) is not None:
                batch: pyarrow.RecordBatch = self._reader.take(found)
                if len(batch) > 0:
                    return batch
            elif self._reader.follows:
                check_main()
        raise StopAsyncIteration

    def _open(self) -> None:
        """Open the reader.  After a cancelled call the next one continues with the same reader:
        another reader would begin elsewhere."""
        if self._reader is None:
            self._reader = self._make()

    async def aclose(self) -> None:
        """End the iteration."""
        self._is_closed = True


class StreamConsumer(Twin[synchronous_consumer.StreamConsumer], Closing):
    """Reads streams for a group, from ``Store.stream_consumer()``: see
    :class:`pyqstore.StreamConsumer`.  One task at a time uses it.

    ``on_assign`` and ``on_revoke`` are called in a thread.
    """

    def __init__(self, store: Store, consumer: synchronous_consumer.StreamConsumer) -> None:
        """See ``Store.stream_consumer``."""
        self._store = store
        self._threads = store._threads
        self._twin = consumer
        self._calls = Calls(store._threads)
        self._is_polling = False

    def __repr__(self) -> str:
        return f"<aio.{self._twin!r}"[:-1] + ">"

    @property
    def group(self) -> str:
        """The group's name."""
        return self._twin.group

    @property
    def instance(self) -> str:
        """The name of this consumer in its group."""
        return self._twin.instance

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._twin.closed

    @property
    def assignment(self) -> list[str]:
        """The streams that this consumer reads now, sorted."""
        return self._twin.assignment

    @property
    def paused(self) -> list[str]:
        """The assigned streams that ``poll`` skips, sorted."""
        return self._twin.paused

    async def poll(
        self, max_rows: int = 65_536, timeout: Seconds | None = 0.0
    ) -> pyarrow.RecordBatch:
        """Like :meth:`pyqstore.StreamConsumer.poll`.

        If this is cancelled, the next poll returns its messages.  That poll waits until this one
        has ended in its thread: 0.1 s at most, plus the time of a listener that it called.
        """
        if self._is_polling:
            raise RuntimeError("another task is polling this consumer")
        deadline = Deadline(timeout)
        look = partial(self._twin._look, rows_of(max_rows), deadline)
        self._is_polling = True
        try:
            # Nothing is awaited between taking the rows and returning them, so none are lost.
            return self._twin._taken(await self._calls.run_apart(look, deadline.end))
        finally:
            self._is_polling = False

    async def _threaded(self, call: Callable[[], Any]) -> Any:
        """Run in a thread, after a poll that was abandoned; a listener's own calls do not wait for
        that poll."""
        if self._twin._is_telling:
            return await self._threads.run(call)
        return await self._calls.run(call)

    @awaited(synchronous_consumer.StreamConsumer.commit)
    def commit(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.committed)
    def committed(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.position)
    def position(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.seek)
    def seek(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.pause)
    def pause(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.resume)
    def resume(self) -> None: ...

    @awaited(synchronous_consumer.StreamConsumer.lag)
    def lag(self) -> None: ...

    # For transactions.

    async def _rest(self) -> None:
        """Return when no abandoned call is running."""
        if not self._twin._is_telling:
            await self._calls.rest()

    def _note_committed(self, offsets: Mapping[str, int]) -> None:
        self._twin._note_committed(offsets)

    async def close(self) -> None:
        """Like :meth:`pyqstore.StreamConsumer.close`.  A close that is cancelled goes on."""
        if self.closed:
            return
        await asyncio.shield(self._threaded(self._twin.close))
