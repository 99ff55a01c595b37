"""Publishing, confirms and the other listeners, transactions: awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..._core import Confirm
from ...callbacks import check_callable
from ...channel import Channel as SynchronousChannel
from ...channel import ConfirmCallback, ReturnCallback
from ...errors import MessageReturned, PreconditionFailed, PublishRefused, StoreFailed
from ...listings import Unconfirmed
from ...message import Receipt as SynchronousReceipt
from ...outcomes import OutcomeListener
from ...properties import Properties
from ...waiting import Seconds, check_timeout
from ..message import Receipt
from ..twin import awaited
from .handle import CALLS_PER_TURN, Handle, nothing

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Publishing"]


class Publishing(Handle):
    """The methods that publish, and their listeners."""

    async def confirm_select(self) -> None:
        """Like :meth:`pyqstore.Channel.confirm_select`; ``basic_publish`` waits from now on."""
        self._check()
        # In the lane: what comes behind is confirmed, whoever is cancelled meanwhile.
        await self._lane.run(
            self._twin.confirm_select,
            then=lambda _: self._events.select_confirms(),
            inline=True,
        )

    @property
    def next_publish_number(self) -> int:
        """The number the next publish gets; 0 outside confirm mode.

        RuntimeError while a call of this channel is in a thread.
        """
        return self._twin.next_publish_number

    @property
    def unconfirmed(self) -> Unconfirmed:
        """Like :attr:`pyqstore.Channel.unconfirmed`.

        RuntimeError while a call of this channel is in a thread.
        """
        return self._twin.unconfirmed

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: Buffer | str,
        properties: Properties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
        *,
        delay: float | timedelta | None = None,
        correlation: object = None,
    ) -> Confirm:
        """Like :meth:`pyqstore.Channel.basic_publish`; in confirm mode ``await`` returns when the
        message is confirmed.

        Many publishes can be under way at once.  Publishes that are confirmed together cost one
        callback of the loop; ``asyncio.gather`` needs no task for them.  PublishRefused: a full
        queue refused the message (nack); StoreFailed: the message is not durable and never will be.
        With ``mandatory``, a message that no queue took goes to the return listeners first, and is
        confirmed then; in confirm mode and without a listener this raises MessageReturned.  If this
        is cancelled, the message may have been published, and may be durable.
        """
        given = exchange, routing_key, body, properties, mandatory, immediate, delay, correlation
        return Confirm(self._next_turn, self._publish, given)

    def _publish(self, confirm: Confirm, arguments: tuple[Any, ...]) -> None:
        """Publish; the confirm raises every error."""
        lane, events = self._lane, self._events
        try:
            if get_ident() != self._thread or not self._loop.is_running():
                self._check_loop()
            if lane.end is not None:
                self._check()
            if events.confirms is None or self._in_block or not lane.free:
                self._publish_in_turn(confirm, arguments)
                return
            try:
                events.confirms.publish(confirm, arguments)
            except BlockingIOError:
                self._publish_in_turn(confirm, arguments)
                return
            if not events.looks_soon:
                events.look_soon()
            if arguments[4]:
                self._check_returned(confirm)
        except Exception as error:
            self._failed(error)
            confirm.set_exception(error)

    def _publish_in_turn(self, confirm: Confirm, arguments: tuple[Any, ...]) -> None:
        mandatory = arguments[4]
        self._lane.publish(
            partial(
                self._twin.basic_publish,
                *arguments[:-2],
                delay=arguments[-2],
                correlation=arguments[-1],
            ),
            partial(self._published, confirm, mandatory),
            confirm,
        )

    def _published(self, confirm: Confirm, mandatory: bool, number: int) -> None:
        """In the loop, before anything else happens on the channel."""
        confirms = self._events.confirms
        if confirms is not None or mandatory:
            self._events.look_soon()
        if confirms is None or number == 0:  # of a transaction
            self._unconfirmed(confirm)
            return
        confirms.add(number, confirm)
        if mandatory:
            self._check_returned(confirm)
        if self._lane.end is not None:
            self._events.end(self._lane.end)

    def _check_returned(self, confirm: Confirm) -> None:
        """Handle a message that was just published and returned, if no listener can learn of it."""
        returned, confirms = self._twin._take_ignored_returns(), self._events.confirms
        if returned is not None and confirms is not None:
            confirms.fail(confirm, MessageReturned(*returned))

    def _unconfirmed(self, confirm: Confirm) -> None:
        """Outside confirm mode the publish is done: at once, or in the loop's next turn, so that
        endless publishing does not keep other tasks from running."""
        self._calls += 1
        if self._calls % CALLS_PER_TURN == 0:
            self._loop.call_soon(_confirm_0, confirm)
        else:
            _confirm_0(confirm)

    async def publish_batch(
        self,
        data: object,
        exchange: str = "",
        routing_key: str | None = None,
        *,
        body: str = "body",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> Receipt:
        """Like :meth:`pyqstore.Channel.publish_batch`, in a thread.  It returns when the batch is
        accepted, and ``await receipt.wait()`` when the batch is durable."""
        self._check()
        receipt: Receipt = await self._lane.run(
            partial(
                self._twin.publish_batch,
                data,
                exchange,
                routing_key,
                body=body,
                mandatory=mandatory,
                properties=properties,
            ),
            then=self._published_batch,
        )
        return receipt

    def _published_batch(self, receipt: SynchronousReceipt) -> Receipt:
        if self._events.confirms is not None and not self._in_block:
            self._events.confirms.add_batch(receipt.last_publish_number, receipt.count)
            returned = self._twin._take_ignored_returns()
            if returned is not None:
                self._events.confirms.note_returned(*returned)
        self._events.look_soon()
        return Receipt.of(receipt, self._threads)

    async def wait_for_confirms(self, timeout: Seconds | None = None) -> bool:
        """Return when every publish so far was confirmed or refused, after the listeners have run.

        False if any was refused (nacked) since the last call; :attr:`refusal` has the reason.
        Raises MessageReturned like :meth:`pyqstore.Channel.wait_for_confirms`, for batches, and for
        messages whose ``basic_publish`` was cancelled; every other ``basic_publish`` raises it
        itself.  Raises TimeoutError, PreconditionFailed outside confirm mode, ChannelClosed.
        """
        end = self._loop.time() + check_timeout(timeout)
        self._check()
        await self._lane.run(nothing, inline=True, until=end)  # what was begun before is published
        if self._lane.end is not None:
            raise self._lane.end
        if self._events.confirms is None:
            raise PreconditionFailed(
                406, "PRECONDITION_FAILED - the channel is not in confirm mode"
            )
        self._events.look_soon()
        async with asyncio.timeout_at(None if end == math.inf else end):
            return await self._events.confirms.wait()

    @property
    def refusal(self) -> PublishRefused | StoreFailed | None:
        """Like :attr:`pyqstore.Channel.refusal`."""
        return self._twin.refusal

    def add_confirm_listener(
        self, on_ack: ConfirmCallback | None, on_nack: ConfirmCallback | None
    ) -> None:
        """Like :meth:`pyqstore.Channel.add_confirm_listener`; called in the loop.

        An exception of a listener goes to the loop's exception handler.
        """
        self._twin._check_process()
        check_callable(on_ack=on_ack, on_nack=on_nack)
        self._events.confirm_listeners.append((on_ack, on_nack))

    def add_outcome_listener(self, callback: OutcomeListener) -> None:
        """Like :meth:`pyqstore.Channel.add_outcome_listener`; called in the loop.

        An exception of a listener goes to the loop's exception handler.
        """
        self._twin.add_outcome_listener(callback)

    def add_return_listener(self, callback: ReturnCallback) -> None:
        """Like :meth:`pyqstore.Channel.add_return_listener`; called in the loop."""
        self._twin._check_process()
        check_callable(callback=callback)
        self._events.return_listeners.append(callback)
        self._lane.post(partial(self._twin._ignore_returns, False))

    def add_cancel_listener(self, callback: Callable[[str], object]) -> None:
        """Like :meth:`pyqstore.Channel.add_cancel_listener`; called in the loop."""
        self._twin._check_process()
        check_callable(callback=callback)
        self._events.cancel_listeners.append(callback)

    @awaited(SynchronousChannel.tx_select, by=Handle._inline)
    def tx_select(self) -> None: ...

    @awaited(SynchronousChannel.tx_commit)
    def tx_commit(self) -> None:
        """If this is cancelled, the transaction may have been committed: a ``key`` tells."""

    @awaited(SynchronousChannel.tx_rollback)
    def tx_rollback(self) -> None: ...

    async def _begin_transaction(self) -> bool:
        """Return whether the channel was not transactional before."""
        begun: bool = await self._threaded(self._twin._begin_transaction)
        self._in_block = self._in_block or begun
        return begun

    async def _leave_transaction(self) -> None:
        """Restore the channel's state before the transaction."""
        await self._threaded(self._twin._leave_transaction)
        self._in_block = False


def _confirm_0(confirm: Confirm) -> None:
    if not confirm.done():
        confirm.set_result(0)
