"""Consumers of sessions: what is pushed to them, handed out, acknowledged and delivered again."""

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
    """What the consumers of a session share."""

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
        """What ended a channel together with a transaction, or with deliveries that one
        ``acknowledge`` was to settle: None, or nobody was told yet."""
        self.dead_letters = dead_letters
        self.wait_for_acks = wait_for_acks
        self.subscribing = subscribing
        """Held while a subscription comes or goes; taken before the link's lock."""
        self.message_type: type[Message] = Message
        self.failures: Failures = failures
        self.has_listener: bool = False
        """Whether one of them has one."""
        self.consumers: list[Consumer] = []
        """With those that were closed and have messages that are not acknowledged."""
        self.await_listener: Callable[[Consumer], object] = lambda consumer: None
        """Until none of the consumer's is running."""
        self.listen: Callable[[], object] = lambda: None
        """There is a listener now."""

    def count_listeners(self) -> None:
        """One came or went."""
        self.has_listener = any(each._listener is not None for each in self.consumers)

    @property
    def delivered(self) -> list[Message]:
        """What they have handed out and is not acknowledged."""
        return [one for each in self.consumers for one in each._delivered.values()]

    def acknowledge(self, message: Message) -> None:
        """All that they have delivered, of which ``message`` is one, or was one.

        IllegalState: its channel ended with it, or with others that it was to acknowledge.
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
        self.loss = None  # what was taken back before is delivered again, and is told as such

    def settled(self, delivered: list[Message]) -> None:
        """They are acknowledged for good."""
        for message in delivered:
            message.is_settled = True
        for consumer in self.consumers:
            consumer._delivered.clear()
        self.forget_closed()
        for consumer in self.consumers:
            consumer._made_room()

    def forget(self, because: BaseException | None) -> None:
        """The channel ended: everything that they had is in its queue again, and what was sent in
        its transaction is dropped."""
        if self._acknowledges_all and (self.link.has_sent or self.delivered):
            if isinstance(because, Error):
                self.loss = because
            else:
                self.loss = ChannelClosed("the session's channel was closed")
        for consumer in self.consumers:
            consumer._forget()
        self.forget_closed()

    def regain(self) -> None:
        """A signal handler raised: what came from the engine and none of them has is ready
        again."""
        for consumer in self.consumers:
            consumer.buffer.recount()
        held = sorted(tag for consumer in self.consumers for tag in consumer._held())
        self.link.hand_back_ranges(handed_out(((tag, tag) for tag in held), _TAGS_MAX))
        self.link.watch.tell()

    def forget_closed(self) -> None:
        """Those that have nothing any more that is not acknowledged."""
        self.consumers[:] = [each for each in self.consumers if not each.closed or each._delivered]


class Plan:
    """How a consumer is to be: what it receives from, by which rules."""

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
        """What it receives from."""
        self._registration: Registration = plan.registration
        self.buffer: PushBuffer = PushBuffer()
        """What was pushed and is not handed out yet."""
        self._push: Callable[[_core.Message], None] = self.buffer.append
        self._pushed = self.buffer.messages  # whether there are some, without a call
        # To be delivered again; those that are settled were acknowledged for nobody.
        self._again: deque[Message] = deque()
        self._in_hand: Message | None = None  # on its way from there to whoever asked
        self._unfit: list[tuple[Message, str]] = []  # for the dead letters, and why
        self._delivered: dict[int, Message] = {}  # by tag: handed out, neither settled nor below
        self._consumed: list[int] = []  # tags to be acknowledged with the next batch
        self._passed_over: list[int] = []  # with it, but they do not count
        self._acked_at = time.monotonic()
        self._due = 0.0  # nothing is handed out before, by the monotonic clock
        self._listener: Listener | None = None
        self._growth = plan.rules.growth
        self._is_pulling = False
        self._is_cancelled = False
        self._cancelled_because: BaseException | None = None
        self._is_told = False  # whoever has its listener
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
                # What is closed has nothing; a pull, and what comes again, take the longer way.
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
        """It was received, and whoever asked did not get it."""
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
        """The next message, which is consumed now; None: there is none yet, or it was closed."""
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
        """Something raised, as a signal handler does at any step: the next ``receive`` gets what
        was on its way, and what nobody has is ready again."""
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
        """Whether it is on its way, and not where it was, nor bound for the dead letters."""
        is_unfit = any(message is unfit for unfit, _ in self._unfit)
        return not is_unfit and message._raw is not self.buffer.first and message not in self._again

    def _held(self) -> Iterator[int]:
        """The tags of what it has that is not settled."""
        yield from (raw.delivery_tag for raw in self.buffer)
        yield from (message._tag for message in self._again if not message.is_settled)
        yield from (message._tag for message, _ in self._unfit)
        yield from self._delivered
        yield from self._consumed
        yield from self._passed_over

    def _end_receive(self) -> None:
        """What came too late for a pull is in its queue again."""
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
        """Nothing is handed out any more."""
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
        """Its session, or it, was closed."""
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
        """Nothing comes any more, and why."""
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
        """Why its listener is not called ever again: once, for ``Failures``."""
        if self._is_told or self._is_closing or not self._is_cancelled or self._has_more:
            return None
        self._is_told = True
        return self._end_of_queue()

    # For the link: all with its lock held.

    @property
    def _room(self) -> int:
        """How many more messages it takes now."""
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
        """How many were handed out, or are not to be, and wait to be settled."""
        return len(self._unfit) + len(self._consumed) + len(self._passed_over)

    @property
    def _is_used_up(self) -> bool:
        """Whether it has as many as the engine lets it have."""
        has = len(self._pushed) + len(self._delivered) + self._behind
        return 0 < self._registration.prefetch <= has

    def _made_room(self) -> None:
        """Some may have come: whoever waits pushes what there is, or the thread soon."""
        if self._registration.is_full:
            if self._watch.waiting:
                self._link.interrupt()
            else:
                self._watch.tell()

    def _cancelled(self, why: BaseException | None) -> None:
        """Its queue was deleted, or it cannot be consumed from."""
        self._is_cancelled = True
        self._cancelled_because = why
        self._registration.is_full = False

    def _forget(self) -> None:
        """Everything it had is in its queue again, but what was acknowledged for nobody."""
        self._delivered.clear()
        self._again = deque(message for message in self._again if message.is_settled)
        self._unfit.clear()
        self._consumed.clear()
        self._passed_over.clear()
        self.buffer.clear()
        self._due = time.monotonic() + self._policy.initial_redelivery_delay

    # Handing out.

    @property
    def _has_more(self) -> bool:
        """Whether the next message is here already."""
        return bool(self._again or self._pushed)

    @property
    def _is_ready(self) -> bool:
        """Whether it is, and may be delivered now; or it is to be told that there is none."""
        if self._is_closing:
            return False
        if self._has_more:
            return time.monotonic() >= self._due
        return self._is_cancelled and not self._is_told

    @property
    def _is_at_hand(self) -> bool:
        """Whether it is, and is handed out without waiting for a disk."""
        first = self.buffer.first
        if first is None or self._again or self._unfit:
            return False
        return first.delivery_count == 0 and not first._has_expiration

    @property
    def _wait_s(self) -> float:
        """Seconds until it may deliver again, infinite if ``_take`` has found that it may."""
        return max(0.0, self._due - time.monotonic()) if self._due > 0 else math.inf

    def _take(self, *, arm: bool) -> Message | None:
        """The next message, which is delivered now; None: there is none yet."""
        if self._is_closed:
            return None
        if self._link.channel.closed:
            self._link.mend()
        if self._unfit:
            self._bury_unfit()
        if not self._again and not self._pushed and not self._is_cancelled:
            # What comes may be for other consumers: then nothing is armed yet.
            while self._link.fill(arm=arm) and not self._pushed and not self._is_cancelled:
                pass
            self._warn_when_stalled()
        if self._due > 0:
            if time.monotonic() < self._due:
                return None
            self._due = 0.0
        while self._again or self._pushed:
            # It is in hand before it leaves its place.
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
        """Why it is not handed out, if it is not."""
        if message._is_expired:
            return "it expired before it was consumed"
        if self._counts_deliveries and not self._policy.allows(message._deliveries_before):
            return f"it was delivered {message._deliveries_before} times and not committed"
        return None

    def _bury_unfit(self) -> None:
        """To the dead letters, or, when they do not take it, to its queue for a while.  An open
        transaction has no part in it: it waits for its end."""
        with self._link.whole():
            while self._unfit and not self._link.has_sent:
                message, because = self._unfit[0]
                channel = self._link.channel
                if not self._is_buried(message, because):
                    if self._link.channel is not channel:  # it ended: all is in its queue again
                        return
                    self._link.put_back([message._tag], _REFUSED_S)
                del self._unfit[:1]
                self._made_room()

    def _keep(self, message: Message) -> None:
        """It was consumed for a ``receive`` that was cancelled meanwhile: the next one gets it."""
        if not message.is_settled:
            self._put_first(message)
        else:
            self._again.appendleft(message)

    def _put_first(self, message: Message) -> None:
        """It was taken and reached nobody."""
        if self._delivered.get(message._tag) is not message:
            return
        del self._delivered[message._tag]
        if self._is_closed:
            self._link.hand_back([message._tag])
        else:
            self._again.appendleft(message)

    def _after(self, message: Message) -> None:
        """It was consumed: ``receive`` is about to return it, or its listener has returned."""
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
        """Acknowledge what was consumed and waits for its batch."""
        self._link.ack(self._consumed + self._passed_over, wait=self._peers.wait_for_acks)
        self._consumed = []
        self._passed_over = []
        self._acked_at = time.monotonic()
        self._made_room()

    def _returned(self, message: Message, error: BaseException | None) -> None:
        """Its listener has returned, or raised; and may have closed the consumer."""
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
        """Its listener raised."""
        _log.warning("the listener of %r raised at %r", self, message, exc_info=error)
        failure = self._rules.failure
        if failure == "leave" or self._delivered.get(message._tag) is not message:
            return
        if failure == "pass over":
            del self._delivered[message._tag]
            message.is_settled = True
            self._passed_over.append(message._tag)
            if len(self._passed_over) >= self._rules.batch:  # or they would fill the window
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

    # Settling.

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
        """Everything delivered and not acknowledged is delivered again."""
        self._take_back(list(self._delivered.values()), cause)

    def _take_back(self, messages: list[Message], cause: str) -> None:
        """Deliver these again, or not any more."""
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
            if self._link.channel is not channel:  # it ended: all is in its queue again
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
        """Whether the dead letters took it, or it is dropped; else it is to be redelivered."""
        try:
            kept = self._peers.dead_letters.take(self._link, message, cause)
        except Error as error:
            _log.error("%r is redelivered: the dead letters did not take it: %s", message, error)
            return False
        message.is_settled = True
        where = f"goes to queue {self._peers.dead_letters.queue!r}" if kept else "is dropped"
        _log.error("%r %s: %s", message, where, cause)
        return True
