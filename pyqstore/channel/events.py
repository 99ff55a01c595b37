"""Events: confirms, returns, deliveries and cancellations on their way to who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _core
from ..callbacks import check_callable
from ..outcomes import OutcomeListener
from ..waiting import Deadline, Seconds
from .consuming import Consuming, warn_of_end
from .handle import ConfirmCallback, ReturnCallback

__all__ = ["ALL", "ANSWERS", "Events"]

ANSWERS = _core.EVENT_RETURN | _core.EVENT_ACK | _core.EVENT_NACK
_ALL_BUT_DELIVERIES = ANSWERS | _core.EVENT_CANCEL
ALL = _ALL_BUT_DELIVERIES | _core.EVENT_DELIVERY
_EVENTS_PER_CALL = 65536


class Events(Consuming):
    """Runs listeners and consumers' callbacks."""

    def process_events(self, timeout: Seconds | None = 0.0) -> int:
        """Run listeners and consumers' callbacks for pending events; returns the number of events.

        Waits ``timeout`` seconds for the first one.  Handles at most 65,536 events, so that a
        callback that makes events does not keep it for ever.  Deliveries to consumers without a
        callback stay queued as long as no consumer has one.  An exception of a callback is raised
        here; the events behind it stay queued.
        """
        deadline = Deadline(timeout)
        while True:
            handled = self._run(self._kinds(), deadline.slice_ns())
            if handled or deadline.over:
                return handled

    def add_confirm_listener(
        self, on_ack: ConfirmCallback | None, on_nack: ConfirmCallback | None
    ) -> None:
        """Call ``on_ack(publish_number, multiple)`` for confirms, ``on_nack`` likewise for
        refusals; :attr:`refusal` says why, while that runs.

        With ``multiple`` the call covers that number and all earlier ones without a call.
        Listeners run in the thread that waits for confirms or processes events, and may use the
        channel.  Each listener is called once for each event: if a listener, or a signal handler
        between two, raises, the next call that runs listeners continues behind it.
        """
        self._check_process()
        check_callable(on_ack=on_ack, on_nack=on_nack)
        self._confirm_listeners.append((on_ack, on_nack))

    def add_outcome_listener(self, callback: OutcomeListener) -> None:
        """Call ``callback(outcome)`` once for each later ``basic_publish`` in confirm mode, with an
        :class:`Outcome`: its number and ``correlation``, whether it is confirmed, and if not why.

        The call comes after the confirm listeners, in the order of the verdicts and, within one, of
        the numbers.  Closing the channel, its connection or its store reports all outstanding
        outcomes, and then raises the first exception of a listener.  A ``mandatory`` message that
        no queue took is not confirmed here, although brokers confirm it.  The outcome of a batch is
        in its receipt.
        """
        self._check_process()
        check_callable(callback=callback)
        self._store._listened[id(self)] = self
        self._listen_to_outcomes(callback)

    def add_return_listener(self, callback: ReturnCallback) -> None:
        """Call ``callback(message)`` with each :class:`ReturnedMessage`, before the confirm of the
        same message.

        Without a listener returned messages are counted (``stats()["messages_returned"]``) and
        dropped; in confirm mode ``wait_for_confirms`` raises MessageReturned with the first of
        them.  With a listener they wait in memory until events are processed, up to an eighth of
        ``memory_budget`` for all channels together; beyond that a ``mandatory`` publish that no
        queue takes raises StoreFull and publishes nothing.
        """
        check_callable(callback=callback)
        self._ignore_returns(False)
        self._return_listeners.append(callback)

    def add_cancel_listener(self, callback: Callable[[str], object]) -> None:
        """Call ``callback(consumer_tag)`` when the store cancels a consumer, because its queue was
        deleted.  Without a listener the cancellation of a consumer with a callback is logged."""
        self._check_process()
        check_callable(callback=callback)
        self._cancel_listeners.append(callback)

    def _kinds(self) -> int:
        return ALL if self._callbacks else _ALL_BUT_DELIVERIES

    def _run(self, kinds: int, first_timeout_ns: int = 0) -> int:
        handled = 0
        if self._left:
            self._cancel_left()
        event = self._next_event(kinds, first_timeout_ns)
        while event is not None:
            handled += 1
            self._dispatch(event)
            if handled == _EVENTS_PER_CALL or self.closed:
                break
            event = self._next_event(kinds, 0)
        return handled

    def _dispatch(self, event: tuple[int, Any, Any]) -> None:
        kind, what, detail = event
        if kind == _core.EVENT_DELIVERY:
            consumer = self._consumers.get(what.consumer_tag)
            if consumer is None:  # an interrupt came before basic_consume noted it
                self._cancel(what.consumer_tag)
                self._put_back(what)
            elif consumer.callback is None:
                try:
                    consumer.buffered.append(what)
                except MemoryError:
                    self._withhold(what.delivery_tag, what.delivery_tag)
                    raise
                if consumer.buffered.is_full and not consumer.buffered.is_paused:
                    consumer.buffered.is_paused = True
                    self._pause(what.consumer_tag, True)
            else:
                consumer.callback(what)
        elif kind == _core.EVENT_ACK:
            listeners = [on_ack for on_ack, _ in self._confirm_listeners if on_ack is not None]
            self._tell(event, listeners, (what, detail[0]))
        elif kind == _core.EVENT_NACK:
            listeners = [on_nack for _, on_nack in self._confirm_listeners if on_nack is not None]
            self._tell(event, listeners, (what, detail[0]))
        elif kind == _core.EVENT_RETURN:
            self._tell(event, self._return_listeners, (what,))
        else:
            consumer = self._consumers.get(what)
            if (
                consumer is not None
                and consumer.callback is not None
                and not self._cancel_listeners
            ):
                warn_of_end(what, detail)
            self._cancelled(what, detail)
            self._tell(event, self._cancel_listeners, (what,))
