"""A session's channel: messages for its consumers, and their settlement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from .. import _core
from ..channel import Channel
from ..channel.arguments import encoded
from ..connection import Connection
from ..deliveries import Tags
from ..errors import ChannelError, Error
from ..fields import FieldValue
from ..forking import Refusing, check_process, tell_in_child
from ..properties import Properties
from .errors import IllegalState
from .pushing import Watch, begin_pushing

__all__ = ["Link", "Registration", "Sink"]

_DELIVERY = _core.EVENT_DELIVERY
_KINDS = _DELIVERY | _core.EVENT_CANCEL
_ARMING = _KINDS | _core.EVENT_ARM
_EVENTS_FIRST = 8
_EVENTS_PER_CALL = 256


class Registration:
    """A consumer's registration in the engine: its queue and its prefetch."""

    __slots__ = ("arguments", "exclusive", "is_full", "is_paused", "prefetch", "queue", "tag")

    def __init__(self, queue: str, prefetch: int, exclusive: bool, priority: int | None) -> None:
        self.queue: str = queue
        self.prefetch: int = prefetch
        self.exclusive: bool = exclusive
        self.arguments: dict[str, FieldValue] = {} if priority is None else {"x-priority": priority}
        self.tag: str = ""
        self.is_full: bool = False
        """Whether it had no room at the last check, so no more messages were fetched for it."""
        self.is_paused: bool | None = False
        """Whether the consumer is paused in the engine; None: unknown, after an interrupted
        call."""


class Sink(Protocol):
    """A consumer that messages are pushed to."""

    @property
    def _registration(self) -> Registration: ...

    @property
    def _room(self) -> int:
        """The number of further messages that it takes now."""

    @property
    def _is_used_up(self) -> bool:
        """Whether it has as many messages as its prefetch in the engine."""

    @property
    def _push(self) -> Callable[[_core.Message], None]:
        """Called with each message."""

    def _cancelled(self, why: BaseException | None) -> None:
        """Called when no message comes any more: its queue was deleted, or it could not be
        registered again."""


class Link:
    """A channel with consumers.  ``lock`` is held in each call except ``wait`` and ``interrupt``.

    Waiting happens without the lock, at the channel's descriptor, so other threads can acknowledge,
    send and close meanwhile.  Messages are pushed to consumers with room: by ``fill``, for a caller
    that asks, and by ``push``, for the thread.
    """

    def __init__(self, connection: Connection, store: _core.Store, transacted: bool) -> None:
        """Open the channel."""
        self._connection = connection
        self._store = store
        self._transacted = transacted
        self.lock: Any = threading.RLock()
        self.is_closed: bool = False
        self.has_sent: bool = False
        """Whether the open transaction has sent messages."""
        self.on_reopen: Callable[[BaseException | None], object] = lambda because: None
        """Called when earlier tags become invalid, with the error that closed their channel, if it
        is known.  ``has_sent`` is still that of the closed channel."""
        self.on_interrupt: Callable[[], object] = lambda: None
        """Called when a signal handler raised in ``push``: some messages were taken and not handed
        on."""
        self.watch: Watch = Watch()
        self._sinks: dict[str, Sink] = {}
        self._thread: threading.Thread | None = None
        self._raised: Exception | None = None  # an error of push, raised in the next call
        tell_in_child(self)
        self._open()

    def _forget_parent(self) -> None:
        """In a child of fork(): pushed messages are the parent's."""
        self.is_closed = True
        self.lock = Refusing()

    def _open(self) -> None:
        self.channel: Channel = self._connection.channel()
        self.has_sent = False
        if self._transacted:
            self.channel.tx_select()
        else:
            self.channel.confirm_select()
        self._raised = None
        self.watch.follow(self.channel._event_fd())

    def close(self) -> None:
        """Requeues all outstanding messages."""
        if self.is_closed:
            return
        self.is_closed = True
        self.watch.end()
        self._end_channel()
        self._sinks.clear()
        self.interrupt()

    def _end_channel(self) -> None:
        self.channel.close()
        self.channel._forget_event_fd()

    def reopen(self, because: BaseException | None = None) -> None:
        """Called after an error closed the channel, which requeued its messages and dropped those
        sent in its transaction: opens another one, if the connection is open.  A consumer that
        cannot be registered again is cancelled."""
        sinks = list(self._sinks.values())
        self.on_reopen(because)
        try:
            while not self._is_reopened(sinks):
                pass
        except BaseException:
            self.is_closed = True
            self.watch.end()
            self._end_channel()
            raise
        finally:
            self.interrupt()  # waiters wait at the old channel
            self.watch.call()

    def _is_reopened(self, sinks: list[Sink]) -> bool:
        """Whether all consumers were registered; otherwise the one that failed is removed, and the
        channel is closed."""
        self._end_channel()
        self._open()
        self._sinks.clear()
        for sink in sinks:
            try:
                self._consume(sink)
            except ChannelError as error:
                sinks.remove(sink)
                sink._cancelled(error)
                return False
        return True

    def check(self) -> None:
        """IllegalState: the session is closed; ForkedStore."""
        if self.is_closed:
            check_process(self._store)
            raise IllegalState("The Session is closed")

    # ---- consumers ----

    def add(self, sink: Sink) -> None:
        """Registers a consumer, and pushes ready messages to it.  After a ChannelError the session
        is as after ``recover``."""
        self.mend()
        try:
            self._consume(sink)
            if sink._registration.prefetch:
                if self._thread is None:
                    self._thread = begin_pushing(self, self.watch)
                self.push()
        except BaseException as error:
            self.remove(sink)
            self.mend(error)
            raise

    def mend(self, because: BaseException | None = None) -> None:
        """Opens another channel if this one was closed, by ``because`` or another error, and the
        store is open.  Every verb of a session begins with this, except its commit."""
        if self.channel.closed and not self.is_closed and not self._store.closed:
            self.reopen(because)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A step that must be complete.  If a signal handler raises inside, its progress is
        unknown, so the session continues with another channel, to which unsettled messages are
        delivered again."""
        try:
            yield
        except Error:
            raise
        except BaseException as error:
            self.channel.close()
            self.mend(error)
            raise

    def _consume(self, sink: Sink) -> None:
        wanted = sink._registration
        self.channel.basic_qos(wanted.prefetch)
        flags = _core.EXCLUSIVE if wanted.exclusive else 0
        wanted.tag = self.channel._consume(wanted.queue, "", flags, encoded(wanted.arguments))
        wanted.is_full = wanted.is_paused = False
        self._sinks[wanted.tag] = sink

    def remove(self, sink: Sink) -> None:
        """Stops pushing to a consumer, which keeps its messages."""
        sink._registration.is_full = False
        if self._sinks.pop(sink._registration.tag, None) is not None and not self.channel.closed:
            self.channel._cancel(sink._registration.tag)

    # ---- pushing ----

    def fill(self, *, arm: bool) -> bool:
        """Pushes ready messages to consumers with room; whether there were any.  ``arm``: if there
        are none, ``wait`` returns when there are; without it, the consumers do not wait for
        messages any more, unless the pushing thread does.  Also raises an error of ``push``."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            self.watch.tell()
            raise raised
        if self._is_watched:
            return self._push(_ARMING)
        came = self._push(_KINDS)
        if not came and arm:
            came = self._push(_ARMING)
        return came

    def push(self) -> None:
        """Pushes ready messages without a caller; an error is raised in the next call."""
        if self.channel.closed or self._raised is not None:
            return
        try:
            came = self._push(_ARMING if self._is_watched else _KINDS)
        except Exception as error:
            self._raised = error
            came = True
        except BaseException:
            self.on_interrupt()
            raise
        if came:
            self.watch.pushes += 1
            if self.watch.waiting:
                self.interrupt()

    @property
    def _is_watched(self) -> bool:
        """Whether a thread waits at the descriptors, which then signal events."""
        return not self.watch.is_coming or bool(self.watch.waiting)

    def push_in_turn(self) -> bool:
        """Called by the pushing thread, without the lock.  Whether to look again at the next event;
        otherwise when it is called."""
        watch = self.watch
        with self.lock:
            watch.is_coming, watch.is_away = False, True
            if watch.waiting:
                sinks = self._sinks.values()
                if any(sink._registration.is_full and sink._room > 0 for sink in sinks):
                    self.interrupt()
                return False
            watch.is_away = False
            if self.is_closed or self.channel.closed:
                return False
            watch.drain()
            self.push()
            return self._raised is None and not self.channel.closed

    def _push(self, kinds: int) -> bool:
        """Pushes events; whether there were any."""
        came = False
        at_once = _EVENTS_FIRST  # their bodies may be large: then no sink has room after these
        while True:
            most = min(self._most(), at_once)
            if most == 0 and came and kinds == _KINDS:
                break
            if most == 0:  # a waiter still needs to know of a deleted queue
                kinds, most = kinds & ~_DELIVERY, at_once
            events, _ = self.channel._take_events(kinds, most)
            for event in events:
                kind, what, _ = event
                sink = self._sinks.get(what.consumer_tag) if kind == _DELIVERY else None
                if sink is None:
                    self._dispatch(event)
                else:
                    sink._push(what)
            came = came or bool(events)
            if len(events) < most:
                break
            at_once = min(at_once * 4, _EVENTS_PER_CALL)
        return came

    def _most(self) -> int:
        most = _EVENTS_PER_CALL
        has_room = False
        for sink in self._sinks.values():
            registration, room = sink._registration, sink._room
            registration.is_full = room <= 0
            if room > 0:
                has_room, most = True, min(most, room)
            is_paused = room <= 0 and not sink._is_used_up
            if is_paused != registration.is_paused:
                registration.is_paused = None
                self.channel._pause(registration.tag, is_paused)
                registration.is_paused = is_paused
        return most if has_room else 0

    def _dispatch(self, event: tuple[int, Any, Any]) -> None:
        """Handles an event other than a delivery to one of the consumers."""
        kind, what, _ = event
        if kind == _DELIVERY:  # of a consumer that was interrupted during its registration
            self.channel._cancel(what.consumer_tag)
            self.hand_back([what.delivery_tag])
        elif kind == _core.EVENT_CANCEL:
            sink = self._sinks.get(what)
            if sink is not None:
                sink._cancelled(None)
                self._sinks.pop(what, None)
            self.channel._tell(event, [], ())
        elif isinstance(what, BaseException):
            raise what

    def wait(self, seconds: float) -> None:
        """Waits until an event may have come, or ``interrupt`` is called; at most 0.1 s."""
        self.watch.wait(seconds)

    def interrupt(self) -> None:
        """Ends a wait."""
        self.watch.wake()

    @property
    def descriptors(self) -> tuple[int, int]:
        """For an event loop: readable when ``wait`` would return.  After a wake the loop must watch
        them anew, because the first may be of another channel."""
        return self.watch.descriptors

    # ---- settling ----

    def ack(self, tags: list[int], *, wait: bool = False) -> None:
        """Acknowledges the outstanding messages among these; in a transacted session with its
        transaction.  ``wait``: until that is durable."""
        if len(tags) == 1:  # a single message, in most modes
            self.channel._settle_range(tags[0], tags[0], False, False, self._transacted)
        else:
            for first, last in ranges(tags):
                self.channel._settle_range(first, last, False, False, self._transacted)
        if wait and tags:
            self._store.sync()

    def drop(self, tag: int) -> None:
        """Acknowledges a message, independent of a transaction."""
        self.channel._settle_range(tag, tag, False)

    def move(self, tag: int, queue: str, body: bytes, properties: Properties) -> None:
        """Acknowledges a message and publishes another to a queue, atomically and durably.  Nothing
        was sent in an open transaction."""
        try:
            with self.channel.transaction() as transaction:
                transaction.publish("", queue, body, properties)
                self.channel._settle_range(tag, tag, False, False, True)
        except BaseException as error:
            if self._transacted and not self.channel.closed:
                self.channel.tx_rollback()
            self.mend(error)
            raise

    def commit(self, tags: list[int]) -> None:
        """Acknowledges these together with the sent messages."""
        self.ack(tags)
        self.channel.tx_commit()
        self.has_sent = False

    def roll_back(self) -> None:
        """Drops sent messages, and undoes the acknowledgements of the transaction."""
        self.channel.tx_rollback()
        self.has_sent = False

    def put_back(self, tags: list[int], delay: float = 0.0) -> None:
        """Requeues these, independent of a transaction."""
        for first, last in ranges(tags):
            self.channel._settle_range(first, last, True, delay_us=int(delay * 1_000_000))

    def hand_back(self, tags: list[int]) -> None:
        """Returns messages that were pushed and never handed out: they are ready again as if they
        were not pushed.  A closed channel has done so already."""
        self.hand_back_ranges(ranges(tags))

    def hand_back_ranges(self, tags: list[Tags]) -> None:
        """Like ``hand_back``, for the outstanding messages among these."""
        if self.channel.closed:
            return
        for first, last in tags:
            self.channel._withhold(first, last)
        if tags:
            self.channel._recover_withheld()


def ranges(tags: Iterable[int]) -> list[Tags]:
    """Combines consecutive tags."""
    found: list[Tags] = []
    for tag in sorted(tags):
        if found and found[-1][1] == tag - 1:
            found[-1] = (found[-1][0], tag)
        else:
            found.append((tag, tag))
    return found
