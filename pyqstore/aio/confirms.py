"""Tasks that wait for publish numbers."""

from __future__ import annotations

import asyncio

from .._core import Confirm, Outstanding, confirm_all
from ..errors import MessageReturned
from ..message import ReturnedMessage
from ..refusals import Reason, refusal_of
from .loop_channel import LoopChannel

__all__ = ["Confirms"]


class Confirms(Outstanding):
    """The publish numbers of a channel in confirm mode, and the awaitables of tasks that wait for
    them."""

    __slots__ = ("_decided", "_loop", "_nacked", "_refusals", "_returned", "_waits")

    def __init__(self, channel: LoopChannel) -> None:
        """For this channel."""
        self._refusals = channel._refusals
        self._loop = asyncio.get_running_loop()
        self._waits: list[tuple[int, asyncio.Future[None]]] = []
        self._decided = 0  # every number up to it is confirmed or refused
        self._nacked = False
        self._returned: MessageReturned | None = None

    def fail(self, confirm: Confirm, error: MessageReturned) -> None:
        """The message that was just added was returned: its waiter learns that now.  The message is
        still confirmed later."""
        self.drop(confirm)
        if confirm.done():  # cancelled
            self._note(error)
        else:
            confirm.set_exception(error, unheard=self._note)

    def _note(self, error: MessageReturned) -> None:
        self.note_returned(error.message, error.count)

    def note_returned(self, first: ReturnedMessage | None, count: int) -> None:
        """Note so many returned messages that were reported to no task: the next ``wait`` reports
        them."""
        if self._returned is None:
            self._returned = MessageReturned(first, count)
        else:
            self._returned = MessageReturned(self._returned.message, self._returned.count + count)

    def give_up(self, error: Exception) -> None:
        """A verdict could not be reported because of this error: tasks that await their publish get
        it."""
        while self.taken:
            single = self.taken.pop()
            if not single.done():
                single.set_exception(error)

    def decide(
        self, verdict: object, number: int, multiple: bool, count: int, reason: Reason | None
    ) -> None:
        """Report a verdict about ``count`` numbers: this one and, with ``multiple``, all before it.
        A verdict of None confirms them.  After a signal handler raised here, this is called again
        with a verdict."""
        self._nacked = self._nacked or reason is not None
        if multiple or number == self._decided + 1:
            self._decided = number
        self.take(verdict, number, multiple, count)
        if reason is None:
            confirm_all(self.taken)
        while self.taken:
            single = self.taken[-1]
            if not single.done():  # else a signal handler raised right behind it
                single.set_exception(refusal_of(single.publish_number, reason or ""))
            self.taken.pop()
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
        return self.undecided == 0 or self._decided >= upto

    async def wait(self) -> bool:
        """Return when all publishes so far are decided, and say whether none was refused since the
        last call.  Raises MessageReturned for messages that were noted since then."""
        upto = self.published
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
        self._refusals.tell(not nacked)
        return not nacked

    def reject(self, error: BaseException) -> None:
        """Fail all that wait: nothing more will be decided."""
        for single in self.take_all():
            single.set_exception(error)
        waits, self._waits = self._waits, []
        for _, future in waits:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: who was cancelled does not ask
