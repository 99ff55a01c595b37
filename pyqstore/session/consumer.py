"""Consumers of sessions: pushed messages, handing out, acknowledgement and redelivery."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from .. import _core
from ..callbacks import check_callable
from ..closing import Closing
from ..deliveries import handed_out
from ..errors import ChannelClosed, Error, NotFound
from ..waiting import Seconds, check_main, check_timeout
from .buffer import PushBuffer
from .dead_letters import DeadLetters
from .destinations import Destination
from .errors import IllegalState
from .failures import Failures
from .link import Link, Registration
from .message import Message
from .modes import Mode, Rules
from .redelivery import RedeliveryPolicy

__all__ = ["Consumer", "Listener", "Peers", "Plan"]

_log = logging.getLogger(__name__)

Listener = Callable[[Message], object]

_NO_LISTENER_OF_PULL = (
    "Illegal prefetch size of zero. This setting is not supported for asynchronous consumers"
    " please set a value of at least 1"
)
_REFUSED_S = 1.0
_TAGS_MAX = 2**64 - 1
_NO_RECEIVE = "Cannot synchronously receive a message when a MessageListener is set"


class Peers:
    """The state shared by the consumers of a session."""

    def __init__(
        self,
        link: Link,
        mode: Mode,
        dead_letters: DeadLetters,
        wait_for_acks: bool,
        subscribing: AbstractContextManager[object],
        failures: Failures,
    ) -> None:
        self.link = link
        link.on_reopen = self.forget
        link.on_interrupt = self.regain
        self._acknowledges_all = mode in ("client", "transacted")
        self.loss: Error | None = None
        """The error that closed the channel with a transaction, or with deliveries that one
        ``acknowledge`` would settle; None after it was reported."""
        self.dead_letters = dead_letters
        self.wait_for_acks = wait_for_acks
        self.subscribing = subscribing
        """Held while a subscription is added or ended; taken before the link's lock."""
        self.message_type: type[Message] = Message
        self.failures: Failures = failures
        self.has_listener: bool = False
        """Whether a consumer has a listener."""
        self.consumers: list[Consumer] = []
        """All consumers, including closed ones with unacknowledged messages."""
        self.await_listener: Callable[[Consumer], object] = lambda consumer: None
        """Waits until no listener of the consumer is running."""
        self.listen: Callable[[], object] = lambda: None
        """Starts the thread for listeners."""

    def count_listeners(self) -> None:
        """Called when a listener was set or removed."""
        self.has_listener = any(each._listener is not None for each in self.consumers)

    @property
    def delivered(self) -> list[Message]:
        """Messages that were handed out and are not acknowledged."""
        return [one for each in self.consumers for one in each._delivered.values()]

    def acknowledge(self, message: Message) -> None:
        """Acknowledges all messages that they have delivered, of which ``message`` is or was one.

        IllegalState: its channel was closed together with it, or with other messages to
        acknowledge.
        """
        is_older = message._raw._channel is not self.link.channel
        if is_older and (self.loss is not None or not message.is_settled):
            loss, self.loss = self.loss, None
            raise IllegalState(
                f"what the session had delivered with {message!r} was taken back and is delivered"
                " again"
            ) from loss
        delivered = self.delivered
        tags = [each._tag for each in delivered]
        self.link.ack(tags, wait=self.wait_for_acks)
        self.settled(delivered)
        # Messages taken back before are delivered again, with the redelivered flag.
        self.loss = None

    def settled(self, delivered: list[Message]) -> None:
        """Called when messages are acknowledged durably."""
        for message in delivered:
            message.is_settled = True
        for consumer in self.consumers:
            consumer._delivered.clear()
        self.forget_closed()
        for consumer in self.consumers:
            consumer._made_room()

    def forget(self, because: BaseException | None) -> None:
        """Called when the channel was closed: its messages are in their queues again, and messages
        sent in its transaction are dropped."""
        if self._acknowledges_all and (self.link.has_sent or self.delivered):
            if isinstance(because, Error):
                self.loss = because
            else:
                self.loss = ChannelClosed("the session's channel was closed")
        for consumer in self.consumers:
            consumer._forget()
        self.forget_closed()

    def regain(self) -> None:
        """Called after a signal handler raised: messages that left the engine and reached no
        consumer are ready again."""
        for consumer in self.consumers:
            consumer.buffer.recount()
        held = sorted(tag for consumer in self.consumers for tag in consumer._held())
        self.link.hand_back_ranges(handed_out(((tag, tag) for tag in held), _TAGS_MAX))
        self.link.watch.tell()

    def forget_closed(self) -> None:
        """Removes closed consumers without unacknowledged messages."""
        self.consumers[:] = [each for each in self.consumers if not each.closed or each._delivered]


class Plan:
    """The settings of a consumer: what it receives from, and by which rules."""

    def __init__(
        self,
        destination: Destination,
        registration: Registration,
        rules: Rules,
        policy: RedeliveryPolicy,
        on_close: Callable[[], object] | None = None,
    ) -> None:
        self.destination = destination
        self.registration = registration
        self.rules = rules
        self.policy = policy
        self.on_close = on_close


class Consumer(Closing):
    """Receives messages of a destination; made by ``Session.consumer()`` and
    ``Session.subscribe()``.

    Messages are pushed into the consumer's buffer ahead of calls, as many as its prefetch allows:
    present ones at once, more as they come and as others are acknowledged.  No other consumer gets
    them meanwhile.  With a prefetch of 0 each ``receive`` fetches one.
    """

    def __init__(self, peers: Peers, plan: Plan) -> None:
        """See ``Session.consumer``."""
        self._peers = peers
        self._link = peers.link
        self._watch = peers.link.watch
        self._rules = plan.rules
        self._counts_deliveries = plan.rules.mode == "transacted"
        self._policy = plan.policy
        self._on_close = plan.on_close
        self.destination: Destination = plan.destination
        """The source of its messages."""
        self._registration: Registration = plan.registration
        self.buffer: PushBuffer = PushBuffer()
        """Messages that were pushed and not handed out."""
        self._push: Callable[[_core.Message], None] = self.buffer.append
        self._pushed = self.buffer.messages  # for a test without a call
        # To be handed out again; settled ones were acknowledged for a call that was cancelled.
        self._again: deque[Message] = deque()
        self._in_hand: Message | None = None  # on its way to the caller
        self._unfit: list[tuple[Message, str]] = []  # for the dead-letter queue, each with a reason
        # By tag: handed out, not settled, and not in the next two.
        self._delivered: dict[int, Message] = {}
        self._consumed: list[int] = []  # tags to acknowledge with the next batch
        self._passed_over: list[int] = []  # with the same batch, but they do not count
        self._acked_at = time.monotonic()
        self._due = 0.0  # time.monotonic() before which nothing is handed out
        self._listener: Listener | None = None
        self._growth = plan.rules.growth
        self._is_pulling = False
        self._is_cancelled = False
        self._cancelled_because: BaseException | None = None
        self._is_told = False  # the error was passed to the exception listener
        self._is_closing = False
        self._is_closed = False
        self._is_warned = False
        with self._link.lock:
            self._link.check()
            peers.consumers.append(self)
            try:
                self._link.add(self)
            except BaseException:
                peers.consumers.remove(self)
                peers.regain()
                raise

    def __repr__(self) -> str:
        closed = " (closed)" if self._is_closed else ""
        return f"<{type(self).__name__} of {self.destination}{closed}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its session was."""
        return self._is_closed or self._link.is_closed

    @property
    def prefetch(self) -> int:
        """The number of messages pushed ahead."""
        return self._rules.prefetch

    @property
    def listener(self) -> Listener | None:
        """A function, called with each message in the session's own thread, or None.  If the queue
        was deleted, ``Connection.exception_listener`` is called.

        Setting it raises ValueError if the prefetch is 0, and IllegalState as ``receive`` does.
        """
        return self._listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        check_callable(listener=listener)
        with self._link.lock:
            self._check()
            if listener is not None and self.prefetch == 0:
                raise ValueError(_NO_LISTENER_OF_PULL)
            self._listener = listener
            self._peers.count_listeners()
        if listener is not None:
            self._peers.listen()

    def receive(self, timeout: Seconds | None = None) -> Message | None:
        """Return the next message; None if none came within ``timeout`` seconds (None: for ever),
        or the consumer was closed meanwhile.

        IllegalState: the consumer is closed, its queue was deleted, or its session has a listener.
        If a signal handler raises meanwhile, the next call returns the message.
        """
        seconds = check_timeout(timeout)
        message = None
        try:
            with self._link.lock:
                # Closed consumers have no messages; a pull, and redeliveries, take the slower path.
                if self._pushed and not self._peers.has_listener and self._rules.prefetch:
                    message = self._receive(arm=False)
                    if message is not None:
                        return message
                self._begin_receive()
            return self._wait_for_message(time.monotonic() + seconds)
        except BaseException:
            self._undo_receive(message)
            raise

    def _wait_for_message(self, end: float) -> Message | None:
        message = None
        watch = self._watch
        has_waited = False
        try:
            while True:
                now = time.monotonic()
                with self._link.lock:
                    watch.waiting.discard(self)
                    message = self._receive(arm=now < end)
                    is_over = message is not None or now >= end or self.closed
                    if not is_over:
                        watch.waiting.add(self)
                if is_over:
                    break
                if end == math.inf:
                    check_main()
                if not has_waited:
                    has_waited = True
                    watch.enter(self)
                watch.wait(min(end, self._due if self._due > now else end) - now)
            watch.leave(self, in_haste=message is not None)
            self._end_receive()
            return message
        except BaseException:
            self._undo_receive(message)
            watch.leave(self)
            self._end_receive()
            raise

    def _undo_receive(self, message: Message | None) -> None:
        """Puts back a message that was received and did not reach its caller."""
        if message is not None:
            with self._link.lock:
                self._keep(message)

    def _begin_receive(self) -> None:
        self._check_receive()
        self._is_pulling = self.prefetch == 0

    def _check_receive(self) -> None:
        self._check()
        if self._peers.has_listener:
            raise IllegalState(_NO_RECEIVE)

    def _receive(self, *, arm: bool) -> Message | None:
        """Returns the next message, which is consumed then; None: there is none yet, or the
        consumer was closed."""
        if self._is_closed or self._link.is_closed:
            return None
        self._in_hand = None
        try:
            message = self._take(arm=arm)
            if message is None:
                self._check_receive()
            else:
                self._after(message)
            return message
        except BaseException:
            self._regain()
            raise

    def _regain(self) -> None:
        """Called after something raised, as a signal handler can at any point: the next ``receive``
        gets the message on its way, and messages that left the engine are ready again."""
        if self._is_closed or self._link.is_closed or self._link.channel.closed:
            return
        message = self._in_hand
        if message is not None and self._has_left(message):
            is_current = message._raw._channel is self._link.channel
            if is_current and message.is_settled and message._tag not in self._consumed:
                self._link.ack([message._tag], wait=self._peers.wait_for_acks)
            if is_current or message.is_settled:
                self._delivered.pop(message._tag, None)
                self._again.appendleft(message)
        self._peers.regain()

    def _has_left(self, message: Message) -> bool:
        """Whether the message is on its way: neither in its former place, nor marked for the dead
        letters."""
        is_unfit = any(message is unfit for unfit, _ in self._unfit)
        return not is_unfit and message._raw is not self.buffer.first and message not in self._again

    def _held(self) -> Iterator[int]:
        """The tags of its unsettled messages."""
        yield from (raw.delivery_tag for raw in self.buffer)
        yield from (message._tag for message in self._again if not message.is_settled)
        yield from (message._tag for message, _ in self._unfit)
        yield from self._delivered
        yield from self._consumed
        yield from self._passed_over

    def _end_receive(self) -> None:
        """Requeues a message that came too late for a pull."""
        if not self._is_pulling:
            return
        with self._link.lock:
            self._is_pulling = False
            if self.closed or self._is_cancelled or self._link.channel.closed:
                return
            if not self._registration.is_paused:
                self._registration.is_paused = None
                self._link.channel._pause(self._registration.tag, True)
                self._registration.is_paused = True
                self._link.hand_back(self.buffer.clear())

    def close(self) -> None:
        """End the consumer.  Buffered messages return to the queue as if they had not been pushed;
        unacknowledged messages that were handed out stay with the session.  Closing twice is fine.

        Waits for a running listener, unless that calls this.
        """
        if self._link.is_closed:
            return
        with self._link.lock:
            self._is_closing = True  # its listener is not called again
        try:
            self._peers.await_listener(self)
        except BaseException:
            self._is_closing = False
            raise
        with self._peers.subscribing, self._link.lock:
            if self._is_closed or self._link.is_closed:
                return
            self._link.remove(self)
            self._end()
            self._peers.forget_closed()
        self._link.interrupt()
        self._ended()

    def _end(self) -> None:
        """Stops handing out messages."""
        if self._is_closed:
            return
        self._is_closed = self._is_closing = True
        self._listener = None
        self._peers.count_listeners()
        again = [message._tag for message in self._again if not message.is_settled]
        if len(again) < len(self._again):
            _log.warning(
                "%r ends with messages that are acknowledged for a receive that was cancelled", self
            )
        self._again.clear()
        pushed = [*self.buffer.clear(), *(message._tag for message, _ in self._unfit)]
        self._unfit.clear()
        if not self._link.channel.closed:
            self._flush()
            self._link.hand_back(pushed)
            self._link.put_back(again)

    def _ended(self) -> None:
        """Called when its session, or the consumer itself, was closed."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _check(self) -> None:
        self._link.check()
        if self._is_closed:
            raise IllegalState("The Consumer is closed")
        if self._is_cancelled and not self._has_more:
            raise self._end_of_queue()

    def _end_of_queue(self) -> IllegalState:
        """The error after the queue was deleted."""
        because, destination = self._cancelled_because, self.destination
        queue = self._registration.queue
        if because is None or isinstance(because, NotFound):
            name = "" if queue == destination.name else f" {queue!r}"  # of a subscription
            end = IllegalState(f"the queue{name} of {destination} was deleted")
        else:
            end = IllegalState(f"{destination} is not consumed any more: {because}")
        end.__cause__ = because
        return end

    def _untold(self) -> IllegalState | None:
        """The error that ended its listener's calls: once, for ``Failures``."""
        if self._is_told or self._is_closing or not self._is_cancelled or self._has_more:
            return None
        self._is_told = True
        return self._end_of_queue()

    # Called by the link, with its lock held.

    @property
    def _room(self) -> int:
        """The number of further messages that it takes now."""
        rules, unacknowledged = self._rules, len(self._delivered)
        if rules.prefetch == 0:
            return 1 if self._is_pulling and not self.buffer else 0
        room = rules.prefetch - len(self._pushed) - unacknowledged
        if 0 < rules.growth <= unacknowledged:
            room += rules.growth
        if self._again or self._unfit or self._consumed or self._passed_over:
            room -= len(self._again) + self._behind
        return self.buffer.room(room)

    @property
    def _behind(self) -> int:
        """The number of messages that were handed out, or will not be, and are not settled yet."""
        return len(self._unfit) + len(self._consumed) + len(self._passed_over)

    @property
    def _is_used_up(self) -> bool:
        """Whether it has as many messages as its prefetch in the engine."""
        has = len(self._pushed) + len(self._delivered) + self._behind
        return 0 < self._registration.prefetch <= has

    def _made_room(self) -> None:
        """Called when there is room again: a waiting caller, or soon the thread, pushes ready
        messages."""
        if self._registration.is_full:
            if self._watch.waiting:
                self._link.interrupt()
            else:
                self._watch.tell()

    def _cancelled(self, why: BaseException | None) -> None:
        """Called when its queue was deleted, or cannot be consumed from."""
        self._is_cancelled = True
        self._cancelled_because = why
        self._registration.is_full = False

    def _forget(self) -> None:
        """Drops all messages, which are in their queues again; keeps acknowledged ones that reached
        no caller."""
        self._delivered.clear()
        self._again = deque(message for message in self._again if message.is_settled)
        self._unfit.clear()
        self._consumed.clear()
        self._passed_over.clear()
        self.buffer.clear()
        self._due = time.monotonic() + self._policy.initial_redelivery_delay

    # Handing out messages.

    @property
    def _has_more(self) -> bool:
        """Whether the next message is in memory."""
        return bool(self._again or self._pushed)

    @property
    def _is_ready(self) -> bool:
        """Whether the next message is here and may be delivered now, or the end must be
        reported."""
        if self._is_closing:
            return False
        if self._has_more:
            return time.monotonic() >= self._due
        return self._is_cancelled and not self._is_told

    @property
    def _is_at_hand(self) -> bool:
        """Whether the next message can be handed out without a wait for the disk."""
        first = self.buffer.first
        if first is None or self._again or self._unfit:
            return False
        return first.delivery_count == 0 and not first._has_expiration

    @property
    def _wait_s(self) -> float:
        """Seconds until the next delivery may happen; infinite if ``_take`` may deliver now."""
        return max(0.0, self._due - time.monotonic()) if self._due > 0 else math.inf

    def _take(self, *, arm: bool) -> Message | None:
        """Returns the next message, which is delivered then; None: there is none yet."""
        if self._is_closed:
            return None
        if self._link.channel.closed:
            self._link.mend()
        if self._unfit:
            self._bury_unfit()
        if not self._again and not self._pushed and not self._is_cancelled:
            # Messages may be for other consumers; then nothing is armed yet.
            while self._link.fill(arm=arm) and not self._pushed and not self._is_cancelled:
                pass
            self._warn_when_stalled()
        if self._due > 0:
            if time.monotonic() < self._due:
                return None
            self._due = 0.0
        while self._again or self._pushed:
            # It is in hand before it is removed from its place.
            if self._again:
                message = self._in_hand = self._again[0]
                self._again.popleft()
                if message.is_settled:
                    return message
            else:
                raw = self._pushed[0]
                message = self._in_hand = self._peers.message_type(raw, self, self.destination)
                self.buffer.popleft()
            unfit = None
            if message._raw._has_expiration or self._counts_deliveries:
                unfit = self._unfit_because(message)
            if unfit is None:
                self._delivered[message._tag] = message
                if len(self._delivered) == self._growth:
                    self._made_room()
                return message
            self._unfit.append((message, unfit))
            self._in_hand = None
            self._bury_unfit()
        return None

    def _unfit_because(self, message: Message) -> str | None:
        """The reason for not handing it out, or None."""
        if message._is_expired:
            return "it expired before it was consumed"
        if self._counts_deliveries and not self._policy.allows(message._deliveries_before):
            return f"it was delivered {message._deliveries_before} times and not committed"
        return None

    def _bury_unfit(self) -> None:
        """Moves messages to the dead letters, or, if that is refused, requeues them with a delay.
        This is not part of an open transaction: it waits for the transaction's end."""
        with self._link.whole():
            while self._unfit and not self._link.has_sent:
                message, because = self._unfit[0]
                channel = self._link.channel
                if not self._is_buried(message, because):
                    # It was closed: all is in the queue again.
                    if self._link.channel is not channel:
                        return
                    self._link.put_back([message._tag], _REFUSED_S)
                del self._unfit[:1]
                self._made_room()

    def _keep(self, message: Message) -> None:
        """Keeps a message that was consumed for a cancelled ``receive``: the next one gets it."""
        if not message.is_settled:
            self._put_first(message)
        else:
            self._again.appendleft(message)

    def _put_first(self, message: Message) -> None:
        """Puts back a message that was taken and did not reach its caller."""
        if self._delivered.get(message._tag) is not message:
            return
        del self._delivered[message._tag]
        if self._is_closed:
            self._link.hand_back([message._tag])
        else:
            self._again.appendleft(message)

    def _after(self, message: Message) -> None:
        """Called after a message was consumed: ``receive`` is about to return it, or its listener
        has returned."""
        if self._rules.batch == 0 or self._delivered.get(message._tag) is not message:
            return
        del self._delivered[message._tag]
        message.is_settled = True
        if self._rules.batch == 1:
            self._link.ack([message._tag], wait=self._peers.wait_for_acks)
            if not self._watch.is_coming:
                self._made_room()
            return
        self._consumed.append(message._tag)
        timeout = self._rules.timeout
        if len(self._consumed) >= self._rules.batch or (
            timeout is not None and time.monotonic() >= self._acked_at + timeout
        ):
            self._flush()

    def _flush(self) -> None:
        """Acknowledges consumed messages that wait for their batch."""
        self._link.ack(self._consumed + self._passed_over, wait=self._peers.wait_for_acks)
        self._consumed = []
        self._passed_over = []
        self._acked_at = time.monotonic()
        self._made_room()

    def _returned(self, message: Message, error: BaseException | None) -> None:
        """Called after its listener has returned, or raised; it may have closed the consumer."""
        if self._link.is_closed:
            return
        self._link.mend()
        if error is None:
            self._after(message)
        else:
            self._failed(message, error)
        if self._is_closed:
            self._flush()
            self._peers.forget_closed()

    def _failed(self, message: Message, error: BaseException) -> None:
        """Called after its listener raised."""
        _log.warning("the listener of %r raised at %r", self, message, exc_info=error)
        failure = self._rules.failure
        if failure == "leave" or self._delivered.get(message._tag) is not message:
            return
        if failure == "pass over":
            del self._delivered[message._tag]
            message.is_settled = True
            self._passed_over.append(message._tag)
            if len(self._passed_over) >= self._rules.batch:  # otherwise they would fill the window
                self._flush()
        elif failure == "redeliver":
            self._take_back([message], f"its listener raised {error!r}")
        else:
            self._take_back(list(self._delivered.values()), f"its listener raised {error!r}")

    def _warn_when_stalled(self) -> None:
        if self.buffer or self._is_warned or self._rules.growth == 0 or self.prefetch == 0:
            return
        if self._room <= 0:
            self._is_warned = True
            _log.warning(
                "%r has %d messages that are not acknowledged and gets no more before that",
                self,
                len(self._delivered),
            )

    # Settling messages.

    def _acknowledge(self, message: Message) -> None:
        with self._link.lock:
            if self._link.channel.closed:
                self._link.check()
                self._link.mend()
            if self._rules.mode == "client":
                self._peers.acknowledge(message)
            elif self._rules.mode == "individual" and not message.is_settled:
                if self._delivered.get(message._tag) is not message:
                    raise IllegalState(f"{message!r} was taken back and is delivered again")
                self._link.ack([message._tag], wait=self._peers.wait_for_acks)
                del self._delivered[message._tag]
                message.is_settled = True
                self._made_room()

    def _recover(self, cause: str) -> None:
        """Redelivers all unacknowledged messages."""
        self._take_back(list(self._delivered.values()), cause)

    def _take_back(self, messages: list[Message], cause: str) -> None:
        """Redelivers these messages, or moves them to the dead letters."""
        with self._link.whole():
            self._take_each_back(messages, cause)
        self._made_room()

    def _take_each_back(self, messages: list[Message], cause: str) -> None:
        again: list[Message] = []
        channel = self._link.channel
        for message in messages:
            del self._delivered[message._tag]
            deliveries = message.delivery_count
            because = f"delivery {deliveries} was the last: {cause}"
            if not self._policy.allows(deliveries) and self._is_buried(message, because):
                continue
            if self._link.channel is not channel:  # it was closed: all is in the queue again
                return
            if self._is_closed:
                self._link.put_back([message._tag])
            elif self._policy.non_blocking_redelivery:
                self._link.put_back([message._tag], self._policy.delay(message.delivery_count))
            else:
                again.append(message)
        if again:
            delay = self._policy.delay(max(message.delivery_count for message in again))
            self._due = time.monotonic() + delay
            again = [message._next() for message in again]
            self._again = deque(sorted((*again, *self._again), key=lambda each: each._tag))

    def _is_buried(self, message: Message, cause: str) -> bool:
        """Whether the message was dead-lettered or dropped; otherwise it must be redelivered."""
        try:
            kept = self._peers.dead_letters.take(self._link, message, cause)
        except Error as error:
            _log.error("%r is redelivered: the dead letters did not take it: %s", message, error)
            return False
        message.is_settled = True
        where = f"goes to queue {self._peers.dead_letters.queue!r}" if kept else "is dropped"
        _log.error("%r %s: %s", message, where, cause)
        return True
