"""Streams and their consumers, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from .. import stream as synchronous
from .. import stream_consumer as synchronous_consumer
from ..fields import FieldValue
from ..figures import StreamStatus
from ..message import Receipt as SynchronousReceipt
from ..queue import Codec
from ..stream import Reader, Start
from ..stream_consumer import rows_of
from ..waiting import Deadline, Seconds, check_main
from .calls import Calls

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["Stream", "StreamConsumer"]

_Result = TypeVar("_Result")


class Stream:
    """A log of messages, from ``Store.stream()``: see :class:`pyqstore.Stream`.  Any task may use
    it."""

    def __init__(self, store: Store, stream: synchronous.Stream) -> None:
        """See ``Store.stream``."""
        self._store = store
        self._stream = stream

    def __repr__(self) -> str:
        return f"<aio.{type(self).__name__} {self.name!r} of {self._store!r}>"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._stream.name

    @property
    def first(self) -> int:
        """The offset of the first message that is kept."""
        return self._stream.first

    @property
    def next(self) -> int:
        """The offset of the next message to be published."""
        return self._stream.next

    def __len__(self) -> int:
        """The number of messages that are kept.  NotFound: the stream was deleted."""
        return len(self._stream)

    def __bool__(self) -> bool:
        return True

    async def status(self) -> StreamStatus:
        """Like :meth:`pyqstore.Stream.status`."""
        return await self._store._threads.run(self._stream.status)

    async def offset_at(self, when: datetime | timedelta) -> int:
        """Like :meth:`pyqstore.Stream.offset_at`."""
        return await self._store._threads.run(partial(self._stream.offset_at, when))

    async def publish(
        self,
        body: object,
        *,
        key: str = "",
        headers: Mapping[str, FieldValue] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Like :meth:`pyqstore.Stream.publish`.  If this is cancelled, the message may have been
        published."""
        publish = partial(self._stream.publish, body, key=key, headers=headers, codec=codec)
        await self._store._threads.run(publish)

    async def publish_batch(
        self, data: object, *, routing_key: str | None = None, body: str = "body"
    ) -> SynchronousReceipt:
        """Like :meth:`pyqstore.Stream.publish_batch`."""
        publish = partial(self._stream.publish_batch, data, routing_key=routing_key, body=body)
        return await self._store._threads.run_apart(publish)

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
        make = partial(self._stream._reader, start, stop, columns, routing_keys, follow)
        return _Batches(self._store, make)

    async def forget_group(self, group: str) -> None:
        """Like :meth:`pyqstore.Stream.forget_group`."""
        await self._store._threads.run(partial(self._stream.forget_group, group))

    async def delete(self) -> int:
        """Like :meth:`pyqstore.Stream.delete`."""
        return await self._store._threads.run(self._stream.delete)


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


class StreamConsumer:
    """Reads streams for a group, from ``Store.stream_consumer()``: see
    :class:`pyqstore.StreamConsumer`.  One task at a time uses it.

    ``on_assign`` and ``on_revoke`` are called in a thread.
    """

    def __init__(self, store: Store, consumer: synchronous_consumer.StreamConsumer) -> None:
        """See ``Store.stream_consumer``."""
        self._store = store
        self._consumer = consumer
        self._calls = Calls(store._threads)
        self._is_polling = False

    def __repr__(self) -> str:
        return f"<aio.{self._consumer!r}"[:-1] + ">"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def group(self) -> str:
        """The group's name."""
        return self._consumer.group

    @property
    def instance(self) -> str:
        """The name of this consumer in its group."""
        return self._consumer.instance

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._consumer.closed

    @property
    def assignment(self) -> list[str]:
        """The streams that this consumer reads now, sorted."""
        return self._consumer.assignment

    @property
    def paused(self) -> list[str]:
        """The assigned streams that ``poll`` skips, sorted."""
        return self._consumer.paused

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
        look = partial(self._consumer._look, rows_of(max_rows), deadline)
        self._is_polling = True
        try:
            # Nothing is awaited between taking the rows and returning them, so none are lost.
            return self._consumer._taken(await self._calls.run_apart(look, deadline.end))
        finally:
            self._is_polling = False

    async def _run(self, call: Callable[[], _Result]) -> _Result:
        """Run in a thread, after a poll that was abandoned; a listener's own calls do not wait for
        that poll."""
        if self._consumer._is_telling:
            return await self._store._threads.run(call)
        return await self._calls.run(call)

    async def commit(self) -> None:
        """Like :meth:`pyqstore.StreamConsumer.commit`."""
        await self._run(self._consumer.commit)

    async def committed(self, stream: str) -> int | None:
        """Like :meth:`pyqstore.StreamConsumer.committed`."""
        return await self._run(partial(self._consumer.committed, stream))

    async def position(self, stream: str) -> int:
        """Like :meth:`pyqstore.StreamConsumer.position`."""
        return await self._run(partial(self._consumer.position, stream))

    async def seek(self, stream: str, offset: Start) -> None:
        """Like :meth:`pyqstore.StreamConsumer.seek`."""
        await self._run(partial(self._consumer.seek, stream, offset))

    async def pause(self, *streams: str) -> None:
        """Like :meth:`pyqstore.StreamConsumer.pause`."""
        await self._run(partial(self._consumer.pause, *streams))

    async def resume(self, *streams: str) -> None:
        """Like :meth:`pyqstore.StreamConsumer.resume`."""
        await self._run(partial(self._consumer.resume, *streams))

    async def lag(self) -> dict[str, int]:
        """Like :meth:`pyqstore.StreamConsumer.lag`."""
        return await self._run(self._consumer.lag)

    # For transactions.

    async def _rest(self) -> None:
        """Return when no abandoned call is running."""
        if not self._consumer._is_telling:
            await self._calls.rest()

    def _note_committed(self, offsets: Mapping[str, int]) -> None:
        self._consumer._note_committed(offsets)

    async def close(self) -> None:
        """Like :meth:`pyqstore.StreamConsumer.close`.  A close that is cancelled goes on."""
        if self.closed:
            return
        await asyncio.shield(self._run(self._consumer.close))
