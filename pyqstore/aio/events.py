"""Events of the engine: confirms, returned messages, deliveries, cancelled consumers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from .. import _core
from ..channel import ConfirmCallback, ReturnCallback
from ..channel.consuming import warn_of_end
from ..refusals import Reason
from ..waiting import check_main
from .awaiting import wait_until
from .confirms import Confirms
from .consumers import Consumers
from .lane import Lane
from .loop_channel import LoopChannel

__all__ = ["Events"]

_QUIET = _core.EVENT_RETURN | _core.EVENT_ACK | _core.EVENT_NACK | _core.EVENT_CANCEL
_ALL = _QUIET | _core.EVENT_DELIVERY
_EVENTS_PER_TURN = 256
_DELIVERIES_PER_THREAD_CALL = 16

_Event = tuple[int, Any, Any]


class Events:
    """Events are taken in the loop, while the lane is free, for the tasks that wait.

    ``failed`` is called with an exception of taking, ``report`` with an exception that no task
    waits for.
    """

    def __init__(
        self,
        channel: LoopChannel,
        lane: Lane,
        consumers: Consumers,
        failed: Callable[[BaseException], object],
        report: Callable[[BaseException], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._lane = lane
        self._consumers = consumers
        self._failed = failed
        self._report = report
        self.looks_soon: bool = False
        """It will look in the loop's next turn."""
        self._is_armed = False
        self._changes: list[asyncio.Future[None]] = []
        self.count: int = 0
        """The number of events so far."""
        self.confirms: Confirms | None = None
        """In confirm mode."""
        self.confirm_listeners: list[tuple[ConfirmCallback | None, ConfirmCallback | None]] = []
        self.return_listeners: list[ReturnCallback] = []
        self.cancel_listeners: list[Callable[[str], object]] = []

    def select_confirms(self) -> None:
        """The engine is in confirm mode from now on."""
        if self.confirms is None:
            self.confirms = Confirms(self._channel)

    def end(self, error: BaseException) -> None:
        """The channel is closed: report that to waiting tasks and to listeners of outcomes.  No
        more events are reported."""
        if self.confirms is not None:
            self.confirms.reject(error)
        self._changed()
        for raised in self._channel.tell_rest():
            self._report(raised)

    def _changed(self) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    async def change(self, happened: Callable[[], Awaitable[bool]], end: float) -> bool:
        """Return whether ``happened`` is true; if not, return at the next change of any kind, or at
        ``end``.  Later changes signal the eventfd."""
        change: asyncio.Future[None] = self._loop.create_future()
        self._changes.append(change)
        try:
            self.look()
            if await happened():
                return True
            self.look()
            if self._lane.end is not None:
                return False  # there are no more changes
            if end == math.inf:
                check_main()
            await wait_until(change, end)
        finally:
            self._changes.remove(change)
        return False

    def signalled(self) -> None:
        """The eventfd was signalled."""
        self._changed()
        self.look()

    def look_soon(self) -> None:
        """Look in the loop's next turn."""
        if not self.looks_soon:
            self.looks_soon = True
            self._loop.call_soon(self.look)

    def look(self) -> None:
        """Take the events that are there, for the tasks that wait; later events signal the
        eventfd."""
        self.looks_soon = False
        taken = 0
        while self._lane.end is None and self._lane.free:
            wanted = self._consumers.are_waiting
            kinds = (_ALL if wanted else _QUIET) | _core.EVENT_ARM
            kinds |= _core.EVENT_CHANGE if self._changes else 0
            try:
                count, would_wait = self._take(kinds, 1 if wanted else _EVENTS_PER_TURN)
            except Exception as error:
                self._blame(error)
                count, would_wait = 1, False
            if would_wait:
                self._fetch()
                return
            if count == 0:
                self._is_armed = True
                return
            taken += count
            if taken >= _EVENTS_PER_TURN:
                self.look_soon()
                return

    def take_one(self) -> bool:
        """Return whether an event came, perhaps a delivery.  The lane is free."""
        if self._is_armed:  # asking disarms, and others may wait as well
            self._is_armed = False
            self.look_soon()
        return self._take(_ALL, 1)[0] > 0

    def _take(self, kinds: int, most: int) -> tuple[int, bool]:
        """Return the number of events, and whether the next one needs a wait."""
        try:
            events, would_wait = self._channel._take_events(kinds, most)
        except Exception as error:
            self._failed(error)
            raise
        self._dispatch_all(events)
        return len(events), would_wait

    def _fetch(self) -> None:
        """The next message must be read from a file: read it in a thread, with some more."""

        def take() -> list[tuple[int, Any, Any]]:
            return self._channel._take_events(_ALL, _DELIVERIES_PER_THREAD_CALL)[0]

        # At once: until the call is in the lane another look would fetch, too.
        self._lane.post(take, then=self._dispatch_all, refused=self._blame, inline=False)

    def _blame(self, error: BaseException) -> None:
        if self._lane.end is None and not self._consumers.blame(error):
            self._report(error)

    def _dispatch_all(self, events: list[tuple[int, Any, Any]]) -> None:
        for event in events:
            try:
                self._dispatch(event)
            except Exception as error:
                if self.confirms is not None:
                    self.confirms.give_up(error)
                self._tell(event, [])  # or it would come for ever
                raise

    def _dispatch(self, event: _Event) -> None:
        kind, what, detail = event
        if kind & _QUIET and not self._channel._is_unheard(event):
            return  # a look while it was on its way from a thread, or a listener's
        self.count += 1
        if kind == _core.EVENT_DELIVERY:
            self._consumers.deliver(what)
        elif kind == _core.EVENT_ACK:
            multiple, count = detail
            self._decided(event, multiple, count, None)
        elif kind == _core.EVENT_NACK:
            multiple, count, queue = detail
            reason = self._channel._store._failure() if queue is None else queue
            self._decided(event, multiple, count, reason)
        elif kind == _core.EVENT_RETURN:
            self._tell(event, self.return_listeners, what)
        elif kind == _core.EVENT_CANCEL:
            consumer = self._consumers.get(what)
            if consumer is not None and consumer.task is not None and not self.cancel_listeners:
                warn_of_end(what, detail)
            self._consumers.cancelled(what, detail)
            self._tell(event, self.cancel_listeners, what)
        else:
            self._failed(what)
            self._blame(what)

    def _decided(self, event: _Event, multiple: bool, count: int, reason: Reason | None) -> None:
        number = event[1]
        if self.confirms is not None:
            self.confirms.decide(event, number, multiple, count, reason)
        which = 0 if reason is None else 1
        listeners = [each[which] for each in self.confirm_listeners if each[which] is not None]
        self._tell(event, cast("list[ConfirmCallback]", listeners), number, multiple)

    def _tell(
        self, event: _Event, listeners: Sequence[Callable[..., object]], *arguments: object
    ) -> None:
        while self._channel._is_unheard(event):
            try:
                self._channel._tell(event, listeners, arguments)
            except Exception as error:
                self._report(error)
