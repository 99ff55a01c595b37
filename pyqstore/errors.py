"""What can go wrong, as exceptions.

Wrong arguments are the built-in ``TypeError`` and ``ValueError``, a wait that took too long is the
built-in ``TimeoutError``; everything else is below :class:`Error`.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import ReturnedMessage

__all__ = [
    "AccessRefused",
    "ChannelClosed",
    "ChannelError",
    "ClockJump",
    "ConnectionLost",
    "Empty",
    "Error",
    "ForkedStore",
    "MessageReturned",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "OffsetOutOfRange",
    "PreconditionFailed",
    "PublishRefused",
    "ResourceLocked",
    "ShovelError",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "StoreNotFound",
    "StoreReadOnly",
    "UnknownArgument",
    "Unroutable",
    "UnsafeFilesystem",
]


class ClockJump(UserWarning):
    """The machine's clock differs from the store's by more than an hour: messages expire by the
    store's until ``Store.accept_clock()``."""


class UnknownArgument(UserWarning):
    """A queue was declared with an ``x-`` argument that means nothing here, as after a slip of the
    pen: it is kept, and compared when the queue is declared again, and that is all."""


class UnsafeFilesystem(UserWarning):
    """The store lies in a network file system, or one that is not known: whether a sync is one, and
    a lock is one, is up to that."""


class Error(Exception):
    """The root of this library's own exceptions."""


class ChannelError(Error):
    """An AMQP error.  It closed the channel it happened on, as a broker would; with a code of 500
    or more, all channels of its connection.

    ``reply_code`` is AMQP 0-9-1's number (406), ``reply_text`` its text
    ("PRECONDITION_FAILED - unknown delivery tag 7"), which is also ``str()`` of the exception.
    """

    reply_code: int
    reply_text: str

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(reply_code, reply_text)
        self.reply_code = reply_code
        self.reply_text = reply_text

    def __str__(self) -> str:
        return self.reply_text


class AccessRefused(ChannelError):
    """403: an exclusive consumer, the default or an internal exchange, a reserved name."""


class NotFound(ChannelError):
    """404: no such queue or exchange."""


class ResourceLocked(ChannelError):
    """405: another connection's exclusive queue."""


class PreconditionFailed(ChannelError):
    """406: declared differently before, not empty, in use, unknown delivery tag, too large."""


class Unroutable(PreconditionFailed):
    """406: no queue would take ``count`` of the messages of staged files; nothing was published.
    The text names the first routes that lead nowhere."""

    count: int

    def __init__(self, reply_code: int, reply_text: str, count: int = 0) -> None:
        super().__init__(reply_code, reply_text)
        Exception.__init__(self, reply_code, reply_text, count)  # what pickle makes it of again
        self.count = count


class NotAllowed(ChannelError):
    """530: for example a consumer tag that is taken."""


class NotImplementedByBroker(ChannelError):
    """540: part of AMQP that neither RabbitMQ nor this library offers."""


class ChannelClosed(Error):
    """The channel, or its connection, was closed: by ``close()``, or by the :class:`ChannelError`
    raised before."""


class ConnectionLost(Error, ConnectionError):
    """The server that owns the store is gone, cannot be reached, or did not answer in time: from
    what ``connect`` gave.

    Whether a call that was under way was done is not known.
    """


class ShovelError(Error):
    """A shovel cannot go on: an address or an end is not as it must be, or a message is refused and
    there is no queue for such ones.  What was not moved is where it was."""


class Empty(Error, queue.Empty):
    """No message came in time."""


class OffsetOutOfRange(Error):
    """Reading was to go on at an offset that the stream does not keep any more, or a consumer was
    to go on behind the stream's end.

    ``stream`` is its name, "" where that is not known.  It keeps the offsets from ``first`` on, and
    ``next`` is the one that is published next.
    """

    first: int
    next: int
    stream: str

    def __init__(
        self,
        first: int,
        next: int,  # noqa: A002 - as Stream.next
        stream: str = "",
    ) -> None:
        super().__init__(first, next, stream)
        self.first = first
        self.next = next
        self.stream = stream

    def __str__(self) -> str:
        place = f"stream {self.stream!r}: " if self.stream else ""
        kept = f"there are {self.first} to {self.next - 1}"
        if self.first == self.next:
            kept = f"there are none, and the next is {self.next}"
        return f"{place}the offset was dropped by retention, or is behind the end: {kept}"


class PublishRefused(Error):
    """A queue that is full refused publishes (nack).

    What ``Receipt.wait`` raises, and ``await`` of an asynchronous ``basic_publish``.  ``count``:
    how many were refused; ``publish_number``: the first of them; ``publish_numbers``: the first
    eight, and none outside confirm mode, where the number is 0; ``rows``: the same, counted from 0
    in their batch, and none for a single publish; ``queue``: the name of the queue that refused the
    first, "" when that was deleted since.
    """

    publish_number: int
    count: int
    publish_numbers: tuple[int, ...]
    rows: tuple[int, ...]
    queue: str

    def __init__(
        self,
        publish_number: int,
        count: int = 1,
        publish_numbers: tuple[int, ...] = (),
        rows: tuple[int, ...] = (),
        queue: str = "",
    ) -> None:
        super().__init__(publish_number, count, publish_numbers, rows, queue)
        self.publish_number = publish_number
        self.count = count
        self.publish_numbers = publish_numbers or ((publish_number,) if publish_number else ())
        self.rows = rows
        self.queue = queue

    def __str__(self) -> str:
        by = f"queue {self.queue!r}, which" if self.queue else "a queue that"
        if self.count == 1 and not self.rows:
            return f"publish {self.publish_number} was refused by {by} is full"
        named = self.publish_numbers or self.rows
        more = ", ..." if self.count > len(named) else ""
        what = "of the batch's messages" if self.rows else "messages"
        first = ", the first" if self.queue and self.count > 1 else ""
        return (
            f"{self.count} {what} were refused{first} by {by} is full:"
            f" {'publish numbers' if self.publish_numbers else 'rows'}"
            f" {', '.join(map(str, named))}{more}"
        )


class MessageReturned(Error):
    """In confirm mode, no queue took a message that was published with ``mandatory``, and there is
    no return listener to be told.

    What ``wait_for_confirms`` raises, and ``await`` of an asynchronous ``basic_publish``.
    ``count``: how many came back since the last such error; ``message``: the first of them, None if
    an eighth of ``memory_budget`` was taken by other returned messages, and from a server of Arrow
    Flight or another process that owns the store.  A pickle has a copy of ``message``.
    """

    message: ReturnedMessage | None
    count: int

    def __init__(self, message: ReturnedMessage | None, count: int = 1) -> None:
        super().__init__(message, count)
        self.message = message
        self.count = count

    def __str__(self) -> str:
        what = "a mandatory message" if self.count == 1 else f"{self.count} mandatory messages"
        if self.message is None:
            return f"no queue took {what}"
        return (
            f"no queue took {what}; {'it' if self.count == 1 else 'the first'} was published to"
            f" exchange {self.message.exchange!r} with routing key {self.message.routing_key!r}"
        )


class StoreError(Error):
    """A store could not do what was asked.

    ``status`` is the name of the engine's status ("QS_EIO") or None, ``path`` the file in question,
    relative to the store, or None, ``offset`` the byte in it or None, ``os_errno`` the system's
    error number or None.
    """

    status: str | None = None
    path: str | None = None
    offset: int | None = None
    os_errno: int | None = None


class StoreNotFound(StoreError):
    """There is no store here, and ``create=False``, a missing parent directory, or other things in
    the directory kept it from being made."""


class StoreLocked(StoreError):
    """Another process, or another ``open`` in this one, owns the store.  ``pid``: the owner's, if
    known."""

    pid: int | None = None


class StoreClosed(StoreError):
    """The store was closed."""


class StoreFailed(StoreError):
    """An input/output error.  What was confirmed is safe; open the store again to go on."""


class StoreCorrupt(StoreError):
    """Stored bytes are damaged: in ``path``, at byte ``offset``.  ``pyqstore salvage DIR OUT``
    copies what is whole to a new store; ``recovery="salvage"`` opens it."""


class StoreFull(StoreError):
    """No space left.  Nothing was accepted; try again when there is space."""


class StoreReadOnly(StoreError):
    """The store was opened with ``read_only``: it can be looked into, not changed."""


class ForkedStore(StoreError):
    """The store was opened before ``fork()``; open it in this process."""


_CHANNEL_ERRORS: dict[int, type[ChannelError]] = {
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
    530: NotAllowed,
    540: NotImplementedByBroker,
}
_STORE_ERRORS: dict[str, type[StoreError]] = {
    "QS_EIO": StoreFailed,
    "QS_ECORRUPT": StoreCorrupt,
    "QS_ENOENT": StoreNotFound,
    "QS_ENOSPC": StoreFull,
    "QS_ESTORE_NOT_FOUND": StoreNotFound,
    "QS_ESTORE_LOCKED": StoreLocked,
    "QS_ESTORE_CLOSED": StoreClosed,
    "QS_ESTORE_FAILED": StoreFailed,
    "QS_ESTORE_FULL": StoreFull,
    "QS_ESTORE_READ_ONLY": StoreReadOnly,
    "QS_EFORKED": ForkedStore,
}
# What a store consists of; staged files are somebody else's.
_FILES_OF_A_STORE = ("MANIFEST", "journal", "checkpoint", "index", "messages", "streams")
SALVAGE_HINT = "; pyqstore salvage DIR OUT copies what is whole"
_FIRST_REPLY_CODE = 300  # statuses from here on are AMQP reply codes


def from_status(
    number: int,
    name: str,
    summary: str,
    text: str,
    path: str,
    offset: int,
    os_errno: int,
    pid: int = 0,
) -> Exception:
    """The exception for a status of the C engine and the detail beside it.

    ``text`` and ``path`` may be empty: then there is no detail, and ``summary``, the status in one
    sentence, is all there is to say.
    """
    message = text or summary
    if number >= _FIRST_REPLY_CODE:
        if text and not text.startswith(name.removeprefix("QS_")):
            message = f"{summary} - {text}"
        return _CHANNEL_ERRORS.get(number, ChannelError)(number, message)
    if name == "QS_ECHANNEL_CLOSED":
        return ChannelClosed(message)
    if name == "QS_ENOMEM":
        return MemoryError(message)
    if name == "QS_EINVAL":
        return ValueError(message)
    if name == "QS_EWOULDBLOCK":
        return BlockingIOError(message)
    if name == "QS_ETIMEDOUT":
        return TimeoutError(message)
    if name == "QS_ECORRUPT" and path.partition("/")[0] in _FILES_OF_A_STORE:
        message += SALVAGE_HINT
    error = _STORE_ERRORS.get(name, StoreError)(message)
    error.status = name
    error.path = path or None
    if isinstance(error, StoreCorrupt):
        error.offset = offset
    error.os_errno = os_errno or None
    if isinstance(error, StoreLocked):
        error.pid = pid or None
    return error
