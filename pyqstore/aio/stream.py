"""Streams and their consumers, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .. import stream as synchronous
from .. import stream_consumer as synchronous_consumer
from ..fields import FieldValue
from ..figures import StreamStatus
from ..message import Receipt as SynchronousReceipt
from ..queue import Codec
from ..stream import Reader, Start
from .awaiting import Taken

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .store import Store

__all__ = ["Stream", "StreamConsumer"]


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
        """The offset of the message that is published next."""
        return self._stream.next

    def __len__(self) -> int:
        """How many messages are kept.  NotFound: the stream was deleted."""
        return len(self._stream)

    def __bool__(self) -> bool:
        return True

    async def status(self) -> StreamStatus:
        """As :meth:`pyqstore.Stream.status`."""
        return await self._store._threads.run(self._stream.status)

    async def offset_at(self, when: datetime | timedelta) -> int:
        """As :meth:`pyqstore.Stream.offset_at`."""
        return await self._store._threads.run(partial(self._stream.offset_at, when))

    async def publish(
        self,
        body: object,
        *,
        key: str = "",
        headers: Mapping[str, FieldValue] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """As :meth:`pyqstore.Stream.publish`.  When this is cancelled the message may have been
        published."""
        publish = partial(self._stream.publish, body, key=key, headers=headers, codec=codec)
        await self._store._threads.run(publish)

    async def publish_batch(
        self, data: object, *, routing_key: str | None = None, body: str = "body"
    ) -> SynchronousReceipt:
        """As :meth:`pyqstore.Stream.publish_batch`."""
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
        """As :meth:`pyqstore.Stream.read`: ``async for batch in stream.read()``.  After an
        ``anext`` that was cancelled it goes on with what that would have returned."""
        begun: list[Reader] = []  # in a thread, by the first ``anext``

        def take() -> pyarrow.RecordBatch | None:
            if not begun:
                begun.append(self._stream._reader(start, stop, columns, routing_keys, follow))
            batch = None if begun[0].over else begun[0].next()
            return batch if batch is not None and len(batch) > 0 else None

        begin = self._store._threads.begin_apart
        return Taken(take, begin, has_more=lambda: not begun[0].over)

    async def forget_group(self, group: str) -> None:
        """As :meth:`pyqstore.Stream.forget_group`."""
        await self._store._threads.run(partial(self._stream.forget_group, group))

    async def delete(self) -> int:
        """As :meth:`pyqstore.Stream.delete`."""
        return await self._store._threads.run(self._stream.delete)


class StreamConsumer:
    """Reads streams for a group, from ``Store.stream_consumer()``: see
    :class:`pyqstore.StreamConsumer`.  One task at a time uses it.

    ``on_assign`` and ``on_revoke`` are called in a thread.
    """

    def __init__(self, store: Store, consumer: synchronous_consumer.StreamConsumer) -> None:
        """See ``Store.stream_consumer``."""
        self._store = store
        self._consumer = consumer

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
        """The assigned streams that ``poll`` passes over, sorted."""
        return self._consumer.paused

    async def poll(
        self, max_rows: int = 65_536, timeout: float | None = 0.0
    ) -> pyarrow.RecordBatch:
        """As :meth:`pyqstore.StreamConsumer.poll`.

        When this is cancelled, what came meanwhile comes with the next poll.
        """
        poll = partial(self._consumer.poll, max_rows, timeout)
        return await self._store._threads.run_apart(poll)

    async def commit(self) -> None:
        """As :meth:`pyqstore.StreamConsumer.commit`."""
        await self._store._threads.run(self._consumer.commit)

    async def committed(self, stream: str) -> int | None:
        """As :meth:`pyqstore.StreamConsumer.committed`."""
        return await self._store._threads.run(partial(self._consumer.committed, stream))

    async def position(self, stream: str) -> int:
        """As :meth:`pyqstore.StreamConsumer.position`."""
        return await self._store._threads.run(partial(self._consumer.position, stream))

    async def seek(self, stream: str, offset: Start) -> None:
        """As :meth:`pyqstore.StreamConsumer.seek`."""
        await self._store._threads.run(partial(self._consumer.seek, stream, offset))

    async def pause(self, *streams: str) -> None:
        """As :meth:`pyqstore.StreamConsumer.pause`."""
        await self._store._threads.run(partial(self._consumer.pause, *streams))

    async def resume(self, *streams: str) -> None:
        """As :meth:`pyqstore.StreamConsumer.resume`."""
        await self._store._threads.run(partial(self._consumer.resume, *streams))

    async def lag(self) -> dict[str, int]:
        """As :meth:`pyqstore.StreamConsumer.lag`."""
        return await self._store._threads.run(self._consumer.lag)

    # For transactions.

    def _uncommitted(self) -> dict[str, int]:
        return self._consumer._uncommitted()

    def _note_committed(self, offsets: Mapping[str, int]) -> None:
        self._consumer._note_committed(offsets)

    async def close(self) -> None:
        """As :meth:`pyqstore.StreamConsumer.close`."""
        await self._store._threads.run(self._consumer.close)
