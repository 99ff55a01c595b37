"""Who waits for which publish number."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from ..errors import MessageReturned, PublishRefused
from ..message import ReturnedMessage

__all__ = ["Confirms"]


class Confirms:
    """Publish numbers of a channel in confirm mode, and the futures of those who wait for them."""

    __slots__ = (
        "_decided",
        "_futures",
        "_loop",
        "_nacked",
        "_outstanding",
        "_published",
        "_returned",
        "_waits",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: OrderedDict[int, asyncio.Future[int]] = OrderedDict()
        self._waits: list[tuple[int, asyncio.Future[None]]] = []
        self._published = 0
        self._decided = 0  # every number up to it is confirmed or refused
        self._outstanding = 0
        self._nacked = False
        self._returned: MessageReturned | None = None

    def add(self, number: int) -> asyncio.Future[int]:
        """One message was published: resolved with its number when it is confirmed."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._futures[number] = future
        self._published = number
        self._outstanding += 1
        return future

    def fail(self, number: int, error: MessageReturned) -> None:
        """What was just added came back: whoever waits for it learns that now.  It will be
        confirmed all the same."""
        future = self._futures.pop(number)
        future.set_exception(error)
        future.exception()  # seen: who was cancelled does not ask

    def add_batch(self, last: int, count: int) -> None:
        """Messages of which nobody waits for one alone."""
        self._published = max(self._published, last)
        self._outstanding += count

    def note_returned(self, first: ReturnedMessage | None, count: int) -> None:
        """So many came back, of which nobody has been told: whoever waits for all is."""
        if self._returned is None:
            self._returned = MessageReturned(first, count)
        else:
            self._returned = MessageReturned(self._returned.message, self._returned.count + count)

    def decide(self, number: int, multiple: bool, count: int, confirmed: bool) -> None:
        """A verdict about ``count`` numbers: this one and, with ``multiple``, all before it."""
        self._outstanding -= count
        self._nacked = self._nacked or not confirmed
        if multiple or number == self._decided + 1:
            self._decided = number
        futures = self._futures
        if multiple:
            while futures and next(iter(futures)) <= number:
                _resolve(*futures.popitem(last=False), confirmed)
        elif number in futures:
            _resolve(number, futures.pop(number), confirmed)
        if self._waits:
            self._wake()

    def _wake(self) -> None:
        waiting = []
        for upto, future in self._waits:
            if self._are_decided(upto):
                if not future.done():
                    future.set_result(None)
            else:
                waiting.append((upto, future))
        self._waits = waiting

    def _are_decided(self, upto: int) -> bool:
        # Beside the order of numbers, since what needs no disk may overtake: then the next verdict
        # that comes in order says the same.
        return self._outstanding == 0 or self._decided >= upto

    async def wait(self) -> bool:
        """Whether none was refused since the last call, once all published so far are decided.
        Raises MessageReturned for what was noted since then."""
        upto = self._published
        if not self._are_decided(upto):
            entry = (upto, self._loop.create_future())
            self._waits.append(entry)
            try:
                await entry[1]
            finally:
                if entry in self._waits:
                    self._waits.remove(entry)
        returned, self._returned = self._returned, None
        if returned is not None:
            raise returned
        nacked, self._nacked = self._nacked, False
        return not nacked

    def reject(self, error: BaseException) -> None:
        """Nothing more will be decided."""
        futures: list[asyncio.Future[Any]] = list(self._futures.values())
        futures += [future for _, future in self._waits]
        self._futures.clear()
        self._waits.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: who was cancelled does not ask


def _resolve(number: int, future: asyncio.Future[int], confirmed: bool) -> None:
    if future.done():
        return  # cancelled
    if confirmed:
        future.set_result(number)
    else:
        future.set_exception(PublishRefused(number))
        future.exception()  # as above
