"""A stream of a store that another process owns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..figures import StreamStatus
from ..message import Receipt
from ..stream import Start, names_of
from .wire import WINDOW, pack, pack_start

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from .link import Link

__all__ = ["ReadStream", "RemoteStream"]


class Way(Protocol):
    """The connection to a store in another process."""

    @property
    def url(self) -> str:
        """The URL of the store."""

    def call(self, do: str, /, **arguments: Any) -> Any:
        """The answer to a call."""

    def get(self, ticket: bytes, *, is_endless: bool = False) -> Any:
        """Schema and batches for the ticket."""


class ReadStream:
    """A log of messages, for reading."""

    def __init__(self, way: Way, name: str) -> None:
        """Makes no call."""
        self._way = way
        self._name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} at {self._way.url!r}>"

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    @property
    def first(self) -> int:
        """The offset of the first message that is kept."""
        return self.status().first

    @property
    def next(self) -> int:
        """The offset of the next message to be published."""
        return self.status().next

    def status(self) -> StreamStatus:
        """Like ``Stream.status``."""
        return StreamStatus(**self._way.call("stream_status", name=self._name))

    def offset_at(self, when: datetime | timedelta) -> int:
        """Like ``Stream.offset_at``."""
        return self.offset_of(when)

    def offset_of(self, start: Start) -> int:
        """The present offset of a start of ``read``."""
        return int(self._way.call("offset_of", name=self._name, start=pack_start(start)))

    def commit_offset(self, group: str, offset: int) -> None:
        """Set the group's position to ``offset``; durable when this returns."""
        self._way.call("commit_offset", name=self._name, group=group, offset=offset)

    def read(
        self,
        start: Start = "first",
        stop: str | int | datetime | timedelta | None = None,
        columns: Sequence[str] | None = None,
        routing_keys: Sequence[str] | None = None,
        follow: bool = False,
    ) -> pyarrow.RecordBatchReader:
        """Like ``Stream.read``; unread batches wait at the server."""
        import pyarrow

        ticket = pack(
            "read",
            stream=self._name,
            start=pack_start(start),
            stop=pack_start(stop),
            columns=names_of("columns", columns),
            routing_keys=names_of("routing_keys", routing_keys),
            follow=follow,
        )
        schema, batches = self._way.get(ticket, is_endless=follow)
        return pyarrow.RecordBatchReader.from_batches(schema, batches)


class RemoteStream(ReadStream):
    """A log of messages, from ``Client.stream()``: the methods are those of ``Stream``."""

    def __init__(self, link: Link, name: str) -> None:
        """See ``Client.stream``."""
        super().__init__(link, name)
        self._link = link

    def publish_batch(
        self, data: object, *, routing_key: str | None = None, body: str = "body"
    ) -> Receipt:
        """Like ``Stream.publish_batch``; in messages of 8 MiB, like ``Client.publish_batch``."""
        command = pack(
            "publish_stream",
            stream=self._name,
            routing_key=routing_key,
            body=body,
            window=WINDOW,
        )
        return self._link.publish(command, data, WINDOW)
